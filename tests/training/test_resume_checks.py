"""What a training may find in its directory, and what it must find to go on (A13)."""

import json
import shutil

import pytest

import dragoman
from dragoman.errors import TrainingStopped, UserError
from dragoman.tasks.events import Notice
from dragoman.training.events import CheckpointSaved, StopRequest


@pytest.fixture
def begun(toy_recipe, toy_files, tmp_path):
    """A recipe whose training into tmp_path / "run" was stopped at its first checkpoint, on files of its own."""
    for file in toy_files:
        shutil.copy(file, tmp_path)
    settings = [f"data.source={tmp_path / toy_files[0].name}", f"data.target={tmp_path / toy_files[1].name}"]
    stop = StopRequest()

    def recipe(*more):
        return toy_recipe(tmp_path / "run", "training.checkpoint_every=1", *settings, *more)

    with pytest.raises(TrainingStopped):
        dragoman.train(
            recipe(), stop=stop, on_event=lambda event: isinstance(event, CheckpointSaved) and stop.request()
        )
    return recipe


def refusal(recipe, **options):
    with pytest.raises(UserError) as refused:
        dragoman.train(recipe, **options)
    return str(refused.value)


def test_settings_that_have_changed_are_listed_and_no_others(begun, tmp_path):
    assert refusal(begun("model.dropout=0.3", "training.seed=2", "training.steps=99"), resume=True) == (
        f"{tmp_path / 'run'} cannot be resumed, because the following has changed since training started:\n"
        "  model.dropout: 0.1 before, 0.3 now\n"
        "  training.seed: 1 before, 2 now\n"
        "Undo the change, or train into another directory with --run."
    )


def test_a_longer_training_and_other_patience_are_no_obstacles(begun):
    changed = begun("training.steps=10", "training.patience=5", "training.keep=4", "training.average=1")
    run = dragoman.train(changed, resume=True)
    assert (run.checkpoints_dir / "000000010").exists()


def test_a_recipe_edited_in_the_run_directory_itself_does_not_go_unnoticed(begun, tmp_path):
    """`dragoman train RUN/recipe.toml --resume` compared the edited file with itself and found no difference."""
    file = tmp_path / "run" / "recipe.toml"
    file.write_text(file.read_text().replace("seed = 1", "seed = 2"))
    found = refusal(dragoman.Recipe.from_toml(file), resume=True)
    assert "training.seed: 1 before, 2 now" in found
    assert found.count("before") == 1


@pytest.mark.parametrize(("side", "name"), [(0, "toy.source"), (1, "toy.target")])
def test_one_changed_line_of_the_training_text_is_noticed_and_the_files_are_named(begun, tmp_path, side, name):
    lines = (tmp_path / name).read_text().split("\n")
    (tmp_path / name).write_text("\n".join([*lines[:40], lines[41], *lines[41:]]))
    assert refusal(begun(), resume=True) == (
        f"{tmp_path / 'run'} cannot be resumed, because the following has changed since training started:\n"
        f"  the training text ({tmp_path / 'toy.source'} and {tmp_path / 'toy.target'}): "
        "the contents differ\n"
        "Undo the change, or train into another directory with --run."
    )


def test_a_changed_validation_text_is_noticed(toy_recipe, toy_files, tmp_path):
    valid = tmp_path / "valid.tsv"
    valid.write_text("a b\tB A\nc d\tD C\n")
    recipe = toy_recipe(tmp_path / "run", f"data.valid_pairs={valid}", "training.steps=3")
    dragoman.train(recipe)
    valid.write_text("a b\tB A\nc e\tE C\n")
    found = refusal(recipe, resume=True)
    assert f"the validation text ({valid}): the contents differ" in found
    assert "training text" not in found


def test_a_changed_vocabulary_is_noticed_and_not_blamed_on_the_text(begun, tmp_path):
    file = tmp_path / "run" / "tokenizer.json"
    file.write_text(file.read_text().replace('"h"', '"x"'))
    found = refusal(begun(), resume=True)
    assert "the vocabulary (tokenizer.json): the contents differ" in found
    assert "text" not in found.split("started:")[1]


def test_a_directory_with_a_run_needs_to_be_told_what_to_do_with_it(begun, tmp_path):
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert refusal(begun()) == (
        f"{tmp_path / 'run'} already contains a run. Continue it with --resume, replace it with --overwrite, or choose "
        "another --run."
    )
    assert {path: path.read_bytes() for path in before} == before
    assert "--resume continues a run, --overwrite replaces it" in refusal(begun(), resume=True, overwrite=True)


def test_replacing_a_run_leaves_what_others_have_put_into_its_directory(begun, tmp_path):
    for name in ("notes.txt", "recipe.mine.toml", "checkpoints.txt"):
        (tmp_path / "run" / name).write_text("mine")
    (tmp_path / "run" / "corpus").mkdir()
    (tmp_path / "run" / "skipped.jsonl").write_text("{}\n")
    run = dragoman.train(begun("training.steps=2", "model.width=8"), overwrite=True)
    assert [path.name for path in sorted(run.checkpoints_dir.iterdir())] == ["000000001", "000000002"]
    assert [(run.folder / name).read_text() for name in ("notes.txt", "recipe.mine.toml", "checkpoints.txt")] == [
        "mine", "mine", "mine",
    ]  # fmt: skip
    assert (run.folder / "corpus").is_dir()
    assert not run.skipped_file.exists()


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
@pytest.mark.parametrize("name", ["recipe.toml", "README.md", "tokenizer.json", "model.safetensors"])
def test_a_file_that_no_training_wrote_is_never_replaced(toy_recipe, tmp_path, name, options):
    """A recipe.toml kept in the very directory to train into was replaced by the full one, and its comments lost."""
    file = tmp_path / "run" / name
    file.parent.mkdir()
    file.write_text("# my own\n")
    assert refusal(toy_recipe(tmp_path / "run"), **options) == (
        f"{tmp_path / 'run'} contains {name} but is not a run directory; training would overwrite these files. "
        "Move them elsewhere, or choose another --run."
    )
    assert [path.name for path in file.parent.iterdir()] == [name]
    assert file.read_text() == "# my own\n"


def test_a_run_with_nothing_to_resume_starts_at_the_first_step_and_says_so(begun, toy_recipe, tmp_path):
    """A training that was killed before its first checkpoint is started with the same command; a typo is noticed."""
    new, events = tmp_path / "runn", []
    dragoman.train(toy_recipe(new, "training.steps=1"), resume=True, on_event=events.append)
    hint = f'Did you mean "{tmp_path / "run"}"?'
    assert events[0].text == f"{new} has no checkpoint to resume: training starts at step 1. {hint}"


def test_a_training_that_ends_in_its_warm_up_says_so(toy_recipe, tmp_path):
    recipe = toy_recipe(tmp_path / "run", "training.steps=2", "training.warmup=30")
    events = []
    dragoman.train(recipe, on_event=events.append)
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert any("training.warmup is 30, but training ends at step 2." in text for text in notices)


def test_a_run_that_was_copied_without_its_hidden_files_is_still_a_run(begun, tmp_path):
    (tmp_path / "run" / ".lock").unlink()
    assert "already contains a run" in refusal(begun())
    assert dragoman.train(begun("training.steps=2"), resume=True).weights_file.exists()


def test_a_model_without_checkpoints_cannot_go_on(begun, tmp_path):
    run = dragoman.train(begun("training.steps=2"), resume=True)
    shutil.rmtree(run.checkpoints_dir)
    assert refusal(begun("training.steps=2"), resume=True) == (
        f"{run} has a model but no checkpoint to resume from. Use --overwrite to train from the beginning."
    )


def test_a_run_needs_a_directory(toy_recipe, tmp_path):
    (tmp_path / "run").write_text("a file")
    assert (
        refusal(toy_recipe(tmp_path / "run")) == f"{tmp_path / 'run'} is a file, not a directory. Choose another --run."
    )
    assert "choose another directory" in refusal(toy_recipe(tmp_path / "run" / "below"))


def test_a_device_that_is_not_there_is_refused_before_anything_is_touched(begun, tmp_path):
    checkpoints = sorted((tmp_path / "run" / "checkpoints").iterdir())
    found = refusal(begun("training.device=mps"), overwrite=True)
    assert 'Device "mps" is not available on this machine' in found
    assert sorted((tmp_path / "run" / "checkpoints").iterdir()) == checkpoints


def test_a_training_ends_when_its_minutes_are_over_and_more_minutes_go_on_with_it(toy_recipe, tmp_path):
    def trained(minutes, **options):
        run = dragoman.train(
            toy_recipe(tmp_path / "run", "training.steps=40", f"training.minutes={minutes}"), **options
        )
        events = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
        return [event["step"] for event in events if event["event"] == "train"], events[-1]["event"]

    assert trained(1e-9) == ([1], "validation")
    assert trained(60.0, resume=True) == (list(range(1, 41)), "validation")
