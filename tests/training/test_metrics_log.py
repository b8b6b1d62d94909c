"""What is drawn from the log of a training, and that no failure of a log, picture or card ends the training."""

import io
import sys

import pytest

import dragoman
from dragoman.run import read_metrics
from dragoman.tasks.events import Notice
from dragoman.training.metrics_log import running_mean


def test_few_points_are_drawn_as_they_are():
    assert running_mean([3.0, 1.0, 2.0]) == pytest.approx([3.0, 1.0, 2.0])


def test_many_points_are_smoothed_over_their_neighbours_and_keep_their_level():
    noisy = [5.0 + (-1) ** place for place in range(1000)]
    smooth = running_mean(noisy)
    assert len(smooth) == 1000
    assert max(abs(value - 5.0) for value in smooth) < 0.2


@pytest.fixture
def notices():
    """The notices of a training about files that could not be written."""
    return []


def train(recipe, notices):
    def listen(event):
        if isinstance(event, Notice) and "could not be written" in event.text:
            notices.append(event.text)

    return dragoman.train(recipe, on_event=listen)


def fail(*_arguments, **_options):
    raise RuntimeError("latex could not be found")


def test_curves_that_cannot_be_drawn_are_reported_once_and_do_not_end_the_training(
    toy_recipe, tmp_path, notices, monkeypatch
):
    monkeypatch.setattr("dragoman.training.trainer._DRAW_EVERY_SECONDS", 0.0)
    monkeypatch.setattr("dragoman.training.trainer.draw_curves", fail)
    run = train(toy_recipe(tmp_path / "run", "training.validate_every=2"), notices)
    assert run.weights_file.exists() and run.card_file.exists()
    reason = "RuntimeError: latex could not be found"
    assert notices == [f"{tmp_path}/run/curves.png could not be written ({reason}); everything else goes on."]


@pytest.mark.parametrize("module", ["tensorboardX.event_file_writer", "tensorboardX.summary"])
def test_event_files_that_cannot_be_written_are_reported_once(toy_recipe, tmp_path, notices, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    run = train(toy_recipe(tmp_path / "run"), notices)
    assert run.weights_file.exists()
    assert len(notices) == 1
    assert notices[0].startswith(f"{tmp_path}/run/events could not be written (ModuleNotFoundError: ")
    assert len(list(read_metrics(run.metrics_file))) > 8


def test_a_card_that_cannot_be_written_does_not_end_the_training(toy_recipe, tmp_path, notices, monkeypatch):
    monkeypatch.setattr("dragoman.training.trainer.model_card", fail)
    run = train(toy_recipe(tmp_path / "run"), notices)
    assert run.weights_file.exists() and not run.card_file.exists()
    assert [text.split(" (")[0] for text in notices] == [f"{tmp_path}/run/README.md could not be written"]


def test_a_log_that_cannot_be_written_does_not_end_the_training(toy_recipe, tmp_path, notices, monkeypatch):
    """A full disk, from the first step to the last."""
    monkeypatch.setattr("dragoman.training.metrics_log.open_for_appending", lambda _path: io.FileIO("/dev/full", "a"))
    run = train(toy_recipe(tmp_path / "run"), notices)
    assert run.weights_file.exists()
    assert notices == [
        f"{tmp_path}/run/metrics.jsonl could not be written (No space left on device); everything else goes on."
    ]
