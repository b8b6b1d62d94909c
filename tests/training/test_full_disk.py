"""A disk without room (A5, A6): said, survived, and never called a success."""

import shutil
import subprocess
from collections import namedtuple

import pytest
from traces import steps_saved, weights

import dragoman
from dragoman import checkpoints
from dragoman.errors import UserError
from dragoman.tasks.events import Notice
from dragoman.training.events import CheckpointSaved
from dragoman.training.loop import TrainingStep


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no small disk can be made here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


class Filler:
    """Fills a disk to the last byte after one step of a training, makes room again after another, and listens."""

    def __init__(self, disk, full_from, full_until):
        self.ballast, self.full_from, self.full_until, self.heard = disk / "ballast", full_from, full_until, []

    def __call__(self, event):
        self.heard.append(event)
        if isinstance(event, TrainingStep) and event.number == self.full_from:
            fill(self.ballast)
        if isinstance(event, TrainingStep) and event.number == self.full_until:
            self.ballast.unlink()

    def of_kind(self, kind):
        return [event for event in self.heard if isinstance(event, kind)]


def fill(path):
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


def test_on_a_full_disk_training_goes_on_and_saves_when_there_is_room_again(small_disk, toy_recipe, tmp_path):
    settings = ["training.steps=12", "training.checkpoint_every=2", "training.validate_every=5"]
    filler = Filler(small_disk, full_from=4, full_until=8)
    run = dragoman.train(toy_recipe(small_disk / "run", *settings), on_event=filler).folder
    assert [event.step for event in filler.of_kind(CheckpointSaved)] == [2, 8, 10, 12]
    failures = [notice.text for notice in filler.of_kind(Notice) if "could not be saved" in notice.text]
    assert [text.split(" (")[0] for text in failures] == [
        f"The checkpoint at step {step} could not be saved" for step in (4, 5, 6)
    ]
    assert all("the checkpoint at step 2 is kept. Retrying at the next checkpoint." in text for text in failures)
    assert not list((run / "checkpoints").glob(".*"))
    undisturbed = dragoman.train(toy_recipe(tmp_path / "undisturbed", *settings)).folder
    assert weights(run) == weights(undisturbed)


def test_a_training_that_cannot_save_its_end_fails_and_can_go_on_once_there_is_room(small_disk, toy_recipe):
    recipe = toy_recipe(small_disk / "run")
    with pytest.raises(UserError, match=r"step 8 could not be saved .*the checkpoint at step 6 is kept. Free some"):
        dragoman.train(recipe, on_event=Filler(small_disk, full_from=7, full_until=99))
    assert steps_saved(small_disk / "run") == [3, 6]
    assert not (small_disk / "run" / "model.safetensors").exists()
    (small_disk / "ballast").unlink()
    assert dragoman.train(recipe, resume=True).weights_file.exists()


def test_a_limit_on_the_size_of_files_ends_the_program_with_code_2_and_leaves_no_litter(nursery, toy_recipe, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(toy_recipe(tmp_path / "run", "training.validate_every=4").to_toml())
    assert nursery.run("train", recipe, err=tmp_path / "err", file_limit=16_000) == 2
    said = (tmp_path / "err").read_text()
    assert "The checkpoint at step 3 could not be saved" in said
    assert "no earlier checkpoint exists. Retrying at the next checkpoint." in said
    assert "The checkpoint at step 8 could not be saved" in said
    assert "Fix the cause and continue with --resume." in said
    assert "Traceback" not in said
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert nursery.run("train", recipe, err=tmp_path / "err") == 0


def test_a_checkpoint_that_does_not_read_back_is_not_called_saved(toy_recipe, tmp_path, monkeypatch):
    def lose_a_byte(stage):
        for path in (tmp_path / "run" / "checkpoints").glob("*0006*/model.safetensors"):
            path.write_bytes(path.read_bytes()[:-1])

    monkeypatch.setattr(checkpoints, "save_hook", lose_a_byte)
    listener = Filler(tmp_path, full_from=99, full_until=99)
    dragoman.train(toy_recipe(tmp_path / "run"), on_event=listener)
    assert [event.step for event in listener.of_kind(CheckpointSaved)] == [3, 8]
    assert "damaged after writing: model.safetensors has" in str(listener.of_kind(Notice))


def test_too_small_a_disk_is_refused_before_training_with_the_numbers(command, toy_recipe, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 10, 10))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(toy_recipe(tmp_path / "run", "model.width=64", "model.inner_width=4096").to_toml())
    refused = command("train", recipe)
    assert refused.code == 2
    assert "the checkpoints of this run need 53 MB (13 MB each), but only 0 MB are free." in refused.err
    assert "Free some space, or lower training.keep." in refused.err
