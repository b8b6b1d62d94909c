"""Early stopping: a training goes on while its validation loss or its score improves."""

from itertools import count, repeat

import pytest
from traces import journal

import dragoman
from dragoman.tasks.translate import TranslationTask

DIVERGING = ["training.steps=9", "training.validate_every=1", "training.patience=2", "training.rate=5"]


@pytest.fixture
def validated_steps(toy_recipe, tmp_path, monkeypatch):
    def train(scores):
        values = iter(scores)
        monkeypatch.setattr(TranslationTask, "validation_score", lambda *_: float(next(values)))
        run = dragoman.train(toy_recipe(tmp_path / "run", *DIVERGING)).folder
        return [entry["step"] for entry in journal(run) if entry["event"] == "validation"]

    return train


def test_a_score_that_improves_keeps_a_training_going_whose_loss_does_not(validated_steps):
    assert validated_steps(count()) == list(range(1, 10))


def test_a_training_whose_loss_and_score_do_not_improve_ends_early(validated_steps):
    assert validated_steps(repeat(0)) == [1, 2, 3]


def test_a_score_that_is_not_a_number_is_no_improvement(validated_steps):
    assert validated_steps(repeat(float("nan"))) == [1, 2, 3]
