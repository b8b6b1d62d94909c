"""Processes that are killed at any moment (A1), and processes that want the same run (A11)."""

import os
import random
import signal
import time

import pytest
from traces import everything

import dragoman
from dragoman.checkpoints import OPTIMIZER_FILE, PROGRESS_FILE, WEIGHTS_FILE
from dragoman.run import MANIFEST_FILE

STAGES = ["made", WEIGHTS_FILE, OPTIMIZER_FILE, PROGRESS_FILE, MANIFEST_FILE, "renamed"]  # of saving, in their order
SETTINGS = ["training.checkpoint_every=1", "training.validate_every=5", "training.average=3"]
LONG_CYCLES = int(os.environ.get("KILL_CYCLES", "200"))  # 1,000 before a release: see docs/promises.md


@pytest.fixture
def train(nursery, toy_recipe, tmp_path):
    """Start a training in a process of its own, and return its number."""

    def started(*settings, err="err", **options):
        recipe = tmp_path / "recipe.toml"
        recipe.write_text(toy_recipe(tmp_path / "run", *settings).to_toml())
        return nursery.start("train", recipe, "--resume", err=tmp_path / err, **options)

    return started


def wait_for(path, seconds=120):
    """Wait until a file is there; return how long it took."""
    began_at = time.monotonic()
    while not path.exists():
        assert time.monotonic() - began_at < seconds, f"{path} has not come"
        time.sleep(0.005)
    return time.monotonic() - began_at


def killed_and_restarted(cycles, train, nursery, tmp_path):
    """Train, and kill it `cycles` times: in turn inside a save, and after a time that falls anywhere."""
    drawn = random.Random()
    longest = 1.0
    for cycle in range(cycles):
        number = train(err=f"err{cycle}", pause=[drawn.choice(STAGES), drawn.randint(0, 2)])
        if cycle % 2:
            time.sleep(drawn.uniform(0, longest))
        else:
            longest = wait_for(tmp_path / f"err{cycle}.paused")
        os.kill(number, signal.SIGKILL)
        assert nursery.wait(number) == -signal.SIGKILL
    messages = "".join(path.read_text() for path in tmp_path.glob("err*[0-9]"))
    assert "Traceback" not in messages
    assert "instead" not in messages, "a damaged checkpoint was met"


@pytest.mark.parametrize("cycles", [10, pytest.param(LONG_CYCLES, marks=pytest.mark.long)])
def test_a_training_killed_again_and_again_ends_as_one_never_killed(cycles, train, nursery, toy_recipe, tmp_path):
    settings = [f"training.steps={4 * cycles}", *SETTINGS]
    expected = dragoman.train(toy_recipe(tmp_path / "undisturbed", *settings)).folder
    killed_and_restarted(cycles, lambda **options: train(*settings, **options), nursery, tmp_path)
    assert nursery.wait(train(*settings)) == 0
    assert everything(tmp_path / "run") == everything(expected)
    left = [path.name for path in (tmp_path / "run" / "checkpoints").iterdir() if path.name.startswith(".")]
    assert left == []


def test_a_run_that_is_being_trained_is_refused_to_others_until_its_process_is_dead(train, nursery, command, tmp_path):
    first = train(pause=["made", 0])
    wait_for(tmp_path / "err.paused")
    recipe = tmp_path / "recipe.toml"
    for verb in (["train", recipe, "--resume"], ["train", recipe, "--overwrite"], ["average", tmp_path / "run"]):
        refused = command(*verb)
        assert refused.code == 2
        assert f"is already being trained by process {first} on {os.uname().nodename} since 20" in refused.err
    os.kill(first, signal.SIGKILL)
    nursery.wait(first)
    assert command("train", recipe, "--resume").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_the_code_for_what_can_be_resumed(number, train, nursery, tmp_path):
    process = train("training.steps=100000", "training.checkpoint_every=100000", "training.validate_every=3")
    wait_for(tmp_path / "run" / "checkpoints" / "000000003")  # the first validation is the best so far
    os.kill(process, number)
    assert nursery.wait(process) == 75
    said = (tmp_path / "err").read_text()
    assert "Stopping after this step, then saving; press Ctrl-C again to exit immediately." in said
    assert "everything is saved. Continue with --resume." in said
    assert "Traceback" not in said


def test_an_interrupted_preparation_leaves_without_a_traceback_and_the_next_start_works(nursery, toy_recipe, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(toy_recipe(tmp_path / "run").to_toml())
    process = nursery.start("train", recipe, err=tmp_path / "err", pause=["prepare", 0])
    wait_for(tmp_path / "err.paused")
    os.kill(process, signal.SIGINT)
    assert nursery.wait(process) == 130
    assert (tmp_path / "err").read_text().endswith("Interrupted. Nothing was saved yet.\n")
    assert nursery.run("train", recipe, err=tmp_path / "err") == 0
