"""Section 5.3: the curves of equation 3, outcomes of trainings, and the whole experiment."""

import math

import pytest
from small_lab import check_report, shrink
from toy_lab import toy_lab

from dragoman.lab import schedule
from dragoman.lab.laboratory import TrainedModel
from dragoman.run import Run
from dragoman.storage import to_json


def test_the_curves_are_those_of_equation_3():
    for width, warmup in schedule.PAPER_SETTINGS.values():
        for step, rate in zip(*schedule.learning_rates(width, warmup), strict=True):
            assert rate == pytest.approx(width**-0.5 * min(step**-0.5, step * warmup**-1.5))


def noted(folder, losses, first=1):
    """Return a training that noted these validation losses, from a step on."""
    folder.mkdir()
    run = Run(folder)
    events = [{"event": "validation", "step": step, "loss": loss} for step, loss in enumerate(losses, first)]
    run.metrics_file.write_bytes(b"".join(map(to_json, events)))
    return TrainedModel(run)


@pytest.mark.parametrize(
    ("losses", "word"),
    [
        ([6.0, 2.0, 1.0], "learned"),
        ([6.0, 5.5], "stuck"),
        ([6.0, 4.5], "hardly better"),
        ([6.0, 2.0, 2.9], "ended more than 0.5"),
    ],
)
def test_the_outcome_of_a_training_follows_from_its_validation_losses(tmp_path, losses, word):
    assert schedule.training_outcome(noted(tmp_path / "run", losses), unigram_loss=5.0).startswith(word)


def test_a_training_that_was_aborted_has_diverged(tmp_path):
    given_up = TrainedModel(noted(tmp_path / "run", [6.0]).run, diverged=True)
    assert schedule.training_outcome(given_up, unigram_loss=5.0).startswith("diverged")


def test_the_experiment_writes_a_report(tmp_path, corpus, monkeypatch):
    shrink(monkeypatch)
    monkeypatch.setattr(schedule, "COMMON_SETTINGS", {"model.norm": "post", "training.clip": 0.0})
    lab = toy_lab(tmp_path, corpus, seconds=60)
    report = schedule.run(lab)
    check_report(report, lab, tables=2, pictures=2)
    # Eight letters and an end, after sentences of two to seven: between the entropies of few and of many choices.
    assert 1.5 < report.results["comparison"]["unigram_loss"] < math.log(12)
    assert report.parts[0] == schedule.EQUATION
