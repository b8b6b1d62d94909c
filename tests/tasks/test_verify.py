"""`dragoman verify` (E2): every file of a model has its size and digest in a manifest; what differs is refused."""

import json
import os
import shutil
from pathlib import Path

import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.manifest import file_digest, read_model_manifest
from dragoman.run import RUN_FILES, Run

RELEASED = Path(__file__).parent.parent / "released" / "0.1.0"
CHECKPOINT = "checkpoints/000000008"
MODEL_FILES = ["recipe.toml", "tokenizer.json", "model.safetensors"]


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a trained run, to be changed."""
    return shutil.copytree(trained, tmp_path / "run")


def change_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


TAMPERING = {"one bit changed": change_a_byte, "a byte less": cut, "missing": Path.unlink}


def test_a_finished_run_is_complete_and_every_file_of_its_model_is_listed(command, trained):
    verified = command("verify", trained)
    assert verified.code == 0
    assert verified.err == f"{trained} is complete and can be opened.\n"
    checkpoints = [f"checkpoints/{path.name}" for path in sorted((trained / "checkpoints").iterdir())]
    assert [line.split()[0] for line in verified.out.splitlines()] == [*MODEL_FILES, *checkpoints]
    assert all(line.endswith("  unchanged") for line in verified.out.splitlines())
    assert read_model_manifest(Run(trained)) == {name: file_digest(trained / name) for name in MODEL_FILES}


@pytest.mark.parametrize("tamper", TAMPERING.values(), ids=TAMPERING.keys())
@pytest.mark.parametrize(
    "name", [*MODEL_FILES, *(f"{CHECKPOINT}/{name}.safetensors" for name in ("model", "optimizer")),
             f"{CHECKPOINT}/state.json"],
)  # fmt: skip
def test_a_file_that_was_changed_after_it_was_written_is_named(command, run, name, tamper):
    tamper(run / name)
    refused = command("verify", run)
    assert refused.code == 2
    assert Path(name).name in refused.err
    assert "Traceback" not in refused.err


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"files": {}}\n', b'{"format": "dragoman-1", "files": 1}\n'])
def test_a_damaged_manifest_is_an_error(command, run, content):
    (run / "manifest.json").write_bytes(content)
    refused = command("verify", run)
    assert (refused.code, "manifest.json is damaged, or was written by another version" in refused.err) == (2, True)


@pytest.mark.parametrize("name", ["notes.txt", "model.pt", "extra/code.py", f"{CHECKPOINT}/extra.safetensors"])
def test_unknown_files_are_named_and_refused(command, run, name):
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text("foreign")
    refused = command("verify", run)
    assert (refused.code, name.split("/")[-1] in refused.err or "extra" in refused.err) == (2, True)
    assert command("translate", run, "a b").code == 0  # which does not open them


def test_a_file_of_the_model_that_its_manifest_does_not_list_is_refused(command, run):
    (run / "shortlist.safetensors").write_bytes((run / "model.safetensors").read_bytes())
    refused = command("verify", run)
    assert (refused.code, "shortlist.safetensors: manifest.json does not list it" in refused.err) == (2, True)


def test_a_manifest_cannot_name_files_elsewhere(command, run, tmp_path):
    (tmp_path / "outside").write_text("outside")
    manifest = json.loads((run / "manifest.json").read_bytes())
    manifest["files"]["../outside"] = file_digest(tmp_path / "outside")
    (run / "manifest.json").write_text(json.dumps(manifest) + "\n")
    refused = command("verify", run)
    assert (refused.code, "../outside: manifest.json lists it, but it is not a file of a model" in refused.err) == (
        2,
        True,
    )


def test_a_run_that_no_command_opens_is_not_verified(command, run):
    os.mkfifo(run / "skipped.jsonl")
    refused = command("verify", run, "--json")
    assert (refused.code, "skipped.jsonl is a FIFO" in refused.err) == (2, True)
    assert json.loads(refused.out)["verified"] is False


def test_the_result_is_available_as_json(command, run):
    (run / "notes.txt").write_text("mine")
    result = json.loads(command("verify", run, "--json").out)
    assert (result["verified"], result["has_manifest"], len(result["problems"])) == (False, True, 1)
    weights = next(file for file in result["files"] if file["path"] == "model.safetensors")
    assert weights == {
        "path": "model.safetensors", "bytes": (run / "model.safetensors").stat().st_size, "has_digest": True,
        "problem": None,
    }  # fmt: skip


def test_commands_that_replace_files_of_the_model_keep_the_manifest_right(command, run):
    assert command("average", run, "--last", "1").code == 0
    assert command("shortlist", run).code == 0
    assert read_model_manifest(Run(run)).keys() == {*MODEL_FILES, "shortlist.safetensors"}
    assert command("verify", run).code == 0
    assert command("train", run / "recipe.toml", "--run", run, "--resume").code == 0
    assert command("verify", run).code == 0


def test_a_command_that_replaces_one_file_does_not_hide_a_change_of_another(command, run):
    change_a_byte(run / "model.safetensors")
    assert command("shortlist", run).code == 0
    refused = command("verify", run)
    assert (refused.code, "model.safetensors was changed after it was written" in refused.err) == (2, True)


def test_a_kill_between_the_weights_and_their_manifest_leaves_no_wrong_manifest(command, run, monkeypatch):
    monkeypatch.setattr("dragoman.manifest.write_atomically", lambda _path, _content: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command("average", run, "--last", "1")
    monkeypatch.undo()
    assert not (run / "manifest.json").exists()
    assert command("verify", run).code == 0


@pytest.mark.parametrize("name", ["averaged", "pronounce", "stopped"])
def test_a_run_of_an_older_version_is_checked_as_far_as_it_can_be(command, tmp_path, name):
    known = {file.top for file in RUN_FILES}
    run = shutil.copytree(RELEASED / name, tmp_path / "run")
    for foreign in {path.name for path in run.iterdir()} - known:  # what was expected of it
        (run / foreign).unlink()
    verified = command("verify", run)
    assert verified.code == 0
    assert "has no manifest.json, so changes of its model cannot be seen" in verified.err


def test_a_training_that_starts_anew_removes_the_manifest_of_the_old_model(run, toy_recipe):
    class Stop(Exception):
        """Ends the training after its first event."""

    def stop(_event):
        raise Stop

    with pytest.raises(Stop):
        dragoman.train(toy_recipe(run), overwrite=True, on_event=stop)
    assert not (run / "manifest.json").exists()


def test_a_file_that_no_command_would_open_is_not_read(command, run):
    size = next(file.max_bytes for file in RUN_FILES if file.path == "model.safetensors") + 1
    os.truncate(run / "model.safetensors", size)
    refused = command("verify", run)
    assert (refused.code, f"model.safetensors has {size:,} bytes, more than the maximum" in refused.err) == (2, True)


def test_a_manifest_that_is_too_large_is_refused_unread(run):
    os.truncate(run / "manifest.json", 1 << 40)
    with pytest.raises(UserError, match=r"manifest.json has 1,099,511,627,776 bytes"):
        read_model_manifest(Run(run))
