"""A run directory that somebody else made (S3, M6, C12): regular files only, nothing outside is read or written."""

import inspect
import json
import os
import shutil
from pathlib import Path

import pytest

import dragoman
from dragoman.checkpoints import find_damage
from dragoman.cli.main import app
from dragoman.errors import UserError
from dragoman.run import RUN_FILES, Run, read_metrics
from dragoman.storage import to_json
from dragoman.training.events import CheckpointSaved
from dragoman.training.loop import TrainingStep

STEP = "000000008"
PATHS = [file.path.replace("*/*.", f"{STEP}/model.").replace("*/", f"{STEP}/").replace("*", "1") for file in RUN_FILES]
ARGUMENTS = {  # besides the run
    "attention": ["a b"], "bench": ["--only", "decoding", "--quick"],
    "evaluate": ["--source", "text", "--reference", "text"], "export": ["--output", "exported"],
    "generate": ["a"], "inflect": ["a\tV"], "parse": ["a b"], "pronounce": ["a"], "serve": ["--port", "0"],
    "transcribe": ["a.wav"], "translate": ["a b"], "watch": ["--port", "0"],
}  # fmt: skip
WITH_RUN_OPTION = {"train": ["--resume"], "quickstart": [], "lab": ["heads", "--corpus", "text"]}
VERBS = {command.callback.__name__: inspect.signature(command.callback) for command in app.registered_commands}
COMMANDS = [
    (verb, [*ARGUMENTS.get(verb, [])])
    for verb, signature in VERBS.items()
    if "run" in signature.parameters and verb not in (*WITH_RUN_OPTION, "plan")
]


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    """A copy of a trained run, to be changed, in the current directory."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(trained, tmp_path / "run")


def replace(path, make):
    """Put something else into the place of a file or directory."""
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    make(path)


IRREGULAR = {
    "a symbolic link": lambda path: path.symlink_to("/dev/zero"),
    "a FIFO": os.mkfifo,
}


def snapshot(folder):
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize(("kind", "make"), IRREGULAR.items())
@pytest.mark.parametrize("name", PATHS)
def test_every_file_of_the_table_must_be_regular(run, name, kind, make):
    replace(run / name, make)
    with pytest.raises(UserError, match=f"run: {name} is {kind}. A run directory has regular files only, without"):
        dragoman.load(run)


@pytest.mark.parametrize(("name", "limit"), list(zip(PATHS, [file.max_bytes for file in RUN_FILES], strict=True)))
def test_no_file_of_the_table_is_opened_when_it_is_larger_than_its_limit(tmp_path, name, limit):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(limit + 1)  # sparse: it takes no space
    with pytest.raises(UserError, match=f"{name} has {limit + 1:,} bytes, more than the maximum of {limit:,} bytes"):
        Run(tmp_path).read_file(path)


@pytest.mark.parametrize(("verb", "arguments"), COMMANDS)
def test_every_command_refuses_a_run_with_a_fifo(command, run, verb, arguments):
    replace(run / "metrics.jsonl", os.mkfifo)
    before = sorted(run.iterdir())
    refused = command(verb, run, *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert "run: metrics.jsonl is a FIFO. A run directory has regular files only" in refused.err
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize(("verb", "arguments"), WITH_RUN_OPTION.items())
def test_every_command_with_a_run_option_refuses_a_run_with_a_device_behind_a_link(command, run, verb, arguments):
    replace(run / "metrics.jsonl", lambda path: path.symlink_to("/dev/zero"))
    refused = command(verb, "--run", run, *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert "run: metrics.jsonl is a symbolic link." in refused.err


@pytest.mark.parametrize("name", ["attention.html", "corpus", "corpus/test.en"])
def test_the_quick_start_writes_nothing_through_a_link(command, run, tmp_path, name):
    outside = tmp_path / "outside"
    (outside.mkdir if name == "corpus" else outside.touch)()
    replace(run / name, lambda path: path.symlink_to(outside))
    refused = command("quickstart", "--run", run, "--overwrite")
    assert (refused.code, f"run: {name} is a symbolic link." in refused.err) == (2, True)
    assert (list(outside.iterdir()) if outside.is_dir() else outside.read_bytes()) in ([], b"")


def test_every_command_that_takes_a_run_is_tried():
    """A new command joins by its parameter; one that needs more arguments is added to ARGUMENTS."""
    tried = {verb for verb, _ in COMMANDS} | WITH_RUN_OPTION.keys()
    assert {verb for verb, signature in VERBS.items() if "run" in signature.parameters} - tried == {
        "plan"
    }  # which writes a run


@pytest.mark.parametrize("options", [["--resume"], ["--overwrite"]])
@pytest.mark.parametrize("name", [".lock", "curves.png", "metrics.jsonl", "README.md", "skipped.jsonl"])
def test_training_writes_nothing_through_a_link_to_a_file(command, run, tmp_path, name, options):
    outside = tmp_path / "outside"
    outside.write_text("precious")
    replace(run / name, lambda path: path.symlink_to(outside))
    before = snapshot(run)
    refused = command("train", run / "recipe.toml", "--run", run, *options)
    assert (refused.code, f"{name} is a symbolic link" in refused.err) == (2, True)
    assert outside.read_text() == "precious"
    assert snapshot(run) == before


@pytest.mark.parametrize("options", [["--resume"], ["--overwrite"]])
@pytest.mark.parametrize("name", ["checkpoints", "events", "heads", f"checkpoints/{STEP}"])
def test_training_writes_and_deletes_nothing_through_a_link_to_a_directory(command, run, tmp_path, name, options):
    outside = tmp_path / "outside"
    (outside / ".tmp-1").mkdir(parents=True)
    (outside / ".tmp-1" / "precious").write_text("precious")
    replace(run / name, lambda path: path.symlink_to(outside))
    before = snapshot(outside), snapshot(run)
    refused = command("train", run / "recipe.toml", "--run", run, *options)
    assert (refused.code, f"{name} is a symbolic link" in refused.err) == (2, True)
    assert (snapshot(outside), snapshot(run)) == before


def test_a_lock_with_a_second_name_is_not_overwritten(command, run, tmp_path):
    (tmp_path / "outside").write_text("precious")
    replace(run / ".lock", lambda path: path.hardlink_to(tmp_path / "outside"))
    refused = command("average", run)
    assert (refused.code, ".lock has another name elsewhere (a hard link)" in refused.err) == (2, True)
    assert (tmp_path / "outside").read_text() == "precious"


def test_the_run_directory_itself_may_be_reached_by_a_link(command, run, tmp_path):
    (tmp_path / "linked").symlink_to("run")
    assert command("translate", "linked", "a b").code == 0
    assert command("train", "run/recipe.toml", "--run", "linked", "--resume").code == 0


def test_other_files_in_the_directory_are_left_alone(command, run):
    (run / "corpora").symlink_to("/usr/share")
    os.mkfifo(run / "notes")
    assert command("translate", run, "a b").code == 0


@pytest.mark.parametrize("name", ["../../../outside", "/etc/hostname", "state.json/..", "x.safetensors\n"])
def test_a_manifest_that_lists_files_elsewhere_is_damaged(run, name):
    path = run / "checkpoints" / STEP / "manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest["files"][name] = manifest["files"]["state.json"]
    path.write_bytes(to_json(manifest))
    assert find_damage(path.parent) == f"manifest.json lists {name!r}, which is not a file of a checkpoint"


def test_a_line_of_metrics_without_end_is_read_in_parts(tmp_path):
    with (tmp_path / "metrics.jsonl").open("wb") as file:
        file.write(b'{"event": "train", "step": 1}\n')
        file.seek(20 << 20)
        file.write(b'\n{"event": "train", "step": 2}\n')
    assert [entry["step"] for entry in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]


class Mover:
    """Does something to a run directory after a step of its training, and counts what follows."""

    def __init__(self, act, after=4):
        self.act, self.after, self.steps, self.saved = act, after, 0, []

    def __call__(self, event):
        if isinstance(event, TrainingStep):
            self.steps = event.number
            if event.number == self.after:
                self.act()
        if isinstance(event, CheckpointSaved):
            self.saved.append(event.step)


def replace_directory(run, elsewhere):
    run.rename(elsewhere)
    run.mkdir()


@pytest.mark.parametrize(
    "act",
    [lambda run, elsewhere: run.rename(elsewhere), lambda run, elsewhere: shutil.rmtree(run), replace_directory],
    ids=["moved", "deleted", "replaced"],
)
@pytest.mark.parametrize("after", [4, 6, 8])  # an ordinary step, before a checkpoint, and before the last one
def test_a_run_that_is_moved_or_deleted_during_a_training_ends_it_at_the_next_write(toy_recipe, tmp_path, act, after):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    mover = Mover(lambda: act(run, elsewhere), after)
    with pytest.raises(UserError, match=r"run was moved or deleted during the training, which ends here. If it was"):
        dragoman.train(toy_recipe(run, "training.checkpoint_every=2"), on_event=mover)
    assert mover.steps == after
    assert mover.saved == list(range(2, after, 2))
    assert not run.exists() or list(run.iterdir()) == []


def test_a_run_that_was_moved_back_is_resumed(toy_recipe, tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    with pytest.raises(UserError, match="moved or deleted"):
        dragoman.train(toy_recipe(run), on_event=Mover(lambda: run.rename(elsewhere)))
    elsewhere.rename(run)
    resumed = dragoman.train(toy_recipe(run), resume=True)
    undisturbed = dragoman.train(toy_recipe(tmp_path / "undisturbed"))
    assert resumed.weights_file.read_bytes() == undisturbed.weights_file.read_bytes()


def test_a_moved_run_ends_the_command_with_code_2(command, toy_recipe, tmp_path, monkeypatch):
    from dragoman import checkpoints

    monkeypatch.setattr(checkpoints, "save_hook", lambda _stage: Path(run).exists() and run.rename(tmp_path / "moved"))
    run, recipe = tmp_path / "run", tmp_path / "recipe.toml"
    recipe.write_text(toy_recipe(run).to_toml())
    ended = command("train", recipe)
    assert (ended.code, "was moved or deleted during the training" in ended.err) == (2, True)
    assert not run.exists()
