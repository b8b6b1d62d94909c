"""The model card."""

import pytest

from dragoman.checkpoints import TrainingProgress
from dragoman.run import Run
from dragoman.training.card import model_card
from dragoman.training.events import ComparedWeights, TrainingFinished, TrainingPlan


@pytest.mark.parametrize(
    ("best_loss", "line"),
    [(2.5, "- Best validation loss 2.500 at step 8"), (None, "- The validation loss was never finite")],
)
def test_the_card_has_the_best_validation_loss_if_one_was_finite(best_loss, line, toy_recipe, tmp_path):
    run = Run(tmp_path / "run")
    plan = TrainingPlan(
        run, pairs=80, valid_pairs=8, unit="pair", vocabulary_sizes=(5, 5), parameters=100, steps=8, steps_done=8,
        steps_per_epoch=4, seconds_per_step=0.0, seconds_left=60.0, device="cpu", threads=1,
    )  # fmt: skip
    progress = TrainingProgress(step=8, best_step=8, best_loss=best_loss)
    finished = TrainingFinished(run, progress, (ComparedWeights((8,)),), ())
    assert line in model_card(toy_recipe(run.folder), plan, finished).splitlines()
