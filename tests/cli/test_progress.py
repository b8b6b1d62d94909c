"""How progress is written."""

import pytest

from dragoman.cli.display import TerminalDisplay, join_fitting
from dragoman.errors import format_duration
from dragoman.run import Run
from dragoman.training.events import EndReplanned, TrainingPlan
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


def make_plan(folder, **steps):
    sizes = {"pairs": 1, "valid_pairs": 1, "vocabulary_sizes": (5, 5), "parameters": 1, "threads": 1}
    times = {"seconds_per_step": 0.0, "seconds_left": 60.0}
    return TrainingPlan(run=Run(folder), unit="pair", device="cpu", **sizes, **(times | steps))


@pytest.mark.parametrize(
    ("steps_done", "line"), [(0, "1,000 steps, 10 epochs;"), (250, "750 of 1,000 steps left, 7.5 epochs;")]
)
def test_the_epochs_of_a_plan_are_those_of_the_steps_that_are_left(steps_done, line, tmp_path, capsys):
    TerminalDisplay()(make_plan(tmp_path, steps=1000, steps_done=steps_done, steps_per_epoch=100))
    assert line in " ".join(capsys.readouterr().err.split())


def test_the_training_loss_on_the_terminal_is_without_label_smoothing_like_the_validation_loss(tmp_path):
    display = TerminalDisplay()
    display(make_plan(tmp_path, steps=2, steps_done=0, steps_per_epoch=1))
    display(TrainingStep(1, loss=5.0, nll=1.0, tokens=10, learning_rate=0.1, gradient_norm=1.0))
    assert "training loss 1.000  perplexity 2.72" in display.bar.tasks[0].fields["facts"]


def test_the_training_loss_is_not_biased_towards_that_of_the_first_step(tmp_path):
    display = TerminalDisplay()
    display(make_plan(tmp_path, steps=40, steps_done=0, steps_per_epoch=1))
    for number in range(1, 41):
        nll = 9.0 if number == 1 else 1.0
        display(TrainingStep(number, loss=5.0, nll=nll, tokens=10, learning_rate=0.1, gradient_norm=1.0))
    assert "training loss 1.06" in display.bar.tasks[0].fields["facts"]


def test_the_bar_counts_the_time_of_a_training_that_ends_by_time(tmp_path):
    display = TerminalDisplay()
    display(make_plan(tmp_path, steps=10_000, steps_done=0, steps_per_epoch=1, seconds_left=3600.0, ends_by_time=True))
    display(TrainingStep(124, loss=5.0, nll=1.0, tokens=10, learning_rate=0.1, gradient_norm=1.0))
    (bar,) = display.bar.tasks
    assert bar.total == 3600
    assert bar.description.endswith(" of 60 min, step 124")


def test_the_bar_counts_up_to_an_end_that_was_planned_again(tmp_path, capsys):
    display = TerminalDisplay()
    display(make_plan(tmp_path, steps=100, steps_done=0, steps_per_epoch=1))
    display(EndReplanned(30, 80))
    display(TrainingStep(31, loss=5.0, nll=1.0, tokens=10, learning_rate=0.1, gradient_norm=1.0))
    assert display.bar.tasks[0].description == "step 31/80"
    assert "it ends at step 80 instead of 100" in " ".join(capsys.readouterr().err.split())
