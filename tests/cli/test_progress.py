"""How progress is written."""

import pytest

from dragoman.cli.display import TerminalDisplay, join_fitting
from dragoman.cli.progress import format_duration
from dragoman.run import Run
from dragoman.training.events import TrainingPlan
from dragoman.training.loop import TrainingStep


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.4, "0 s"), (89, "89 s"), (90, "1 min 30 s"), (132.6, "2 min 13 s"), (599.7, "10 min"), (5400, "1 h 30 min")],
)
def test_a_time_is_written_as_a_person_would(seconds, written):
    assert format_duration(seconds) == written


@pytest.mark.parametrize(("width", "line"), [(80, "one  two  three"), (14, "one  two"), (2, "one")])
def test_a_narrow_terminal_shows_what_is_wanted_most(width, line):
    assert join_fitting(["one", "two", "three"], width) == line


def test_the_training_loss_on_the_terminal_is_without_label_smoothing_like_the_validation_loss(tmp_path):
    display = TerminalDisplay()
    sizes = {"pairs": 1, "valid_pairs": 1, "vocabulary_sizes": (5, 5), "parameters": 1, "threads": 1}
    steps = {"steps": 2, "steps_done": 0, "steps_per_epoch": 1, "seconds_per_step": 0.0, "seconds_left": 60.0}
    display(TrainingPlan(run=Run(tmp_path), unit="pair", device="cpu", **sizes, **steps))
    display(TrainingStep(1, loss=5.0, nll=1.0, tokens=10, learning_rate=0.1, gradient_norm=1.0))
    assert "training loss 1.000  perplexity 2.72" in display.bar.tasks[0].fields["facts"]
