"""A training that plans itself: what is recorded before its first step, repeating it, and an end that is moved."""

import itertools
from types import SimpleNamespace

import pytest

import dragoman
from dragoman import checkpoints
from dragoman.errors import TrainingStopped
from dragoman.recipe import Recipe
from dragoman.training.events import EndReplanned, RecipePlanned, StopRequest, TrainingPlan, ValidationResult
from dragoman.training.loop import TrainingStep
from dragoman.training.trainer import Trainer

SMALL = {
    "tokenizer": {"kind": "words"},
    "data": {"held_out": 8},
    "model": {"layers": 1, "width": 16},
    "training": {"threads": 1, "validation_sample": 2},
}


@pytest.fixture
def open_recipe(toy_files):
    """Return a recipe that leaves the training open, and most of the model."""
    files = {"source": str(toy_files[0]), "target": str(toy_files[1])}

    def recipe(run, *overrides):
        return Recipe.from_table({"run": str(run), "data": files}, overrides, defaults=SMALL)

    return recipe


def train(recipe, **options):
    events = []
    run = dragoman.train(recipe, on_event=events.append, **options)
    return run, events


def test_the_plan_is_recorded_before_the_first_step_and_repeats_the_training(open_recipe, tmp_path):
    recorded = []

    def on_event(event):
        if isinstance(event, TrainingPlan):
            recorded.append((tmp_path / "first" / "recipe.toml").read_text())

    # The time is more than enough: the data limits the steps, to a few of such large batches.
    recipe = open_recipe(tmp_path / "first", "training.minutes=60", "training.batch_tokens=16384")
    first = dragoman.train(recipe, on_event=on_event)
    planned = first.read_recipe()
    assert recorded == [first.recipe_file.read_text()]
    assert planned.training.minutes == 0 and planned.training.schedule == "linear"

    again = dragoman.train(Recipe.from_toml(first.recipe_file, [f"run={tmp_path / 'again'}"]))
    assert again.weights_file.read_bytes() == first.weights_file.read_bytes()


def test_steps_alone_decide_everything_and_plan_agrees_with_train(open_recipe, tmp_path, monkeypatch):
    def refuse(_trainer):
        raise AssertionError("nothing has to be measured")

    monkeypatch.setattr(Trainer, "tokens_per_second", refuse)
    recipe = open_recipe(tmp_path / "run", "training.steps=12")
    planned = dragoman.plan(recipe)
    run, events = train(recipe)
    assert run.read_recipe() == planned
    assert (planned.training.steps, planned.training.warmup) == (12, 1)
    assert [type(event) for event in events].count(RecipePlanned) == 1
    rates = [event.learning_rate for event in events if isinstance(event, TrainingStep)]
    assert rates[-1] < rates[0] / 5


def test_a_resumed_training_keeps_the_plan_of_its_run(open_recipe, tmp_path):
    stop = StopRequest()

    def stop_at_step_5(event):
        if isinstance(event, TrainingStep) and event.number == 5:
            stop.request()

    with pytest.raises(TrainingStopped):
        dragoman.train(open_recipe(tmp_path / "run", "training.steps=12"), on_event=stop_at_step_5, stop=stop)
    run, events = train(open_recipe(tmp_path / "run"), resume=True)
    assert not any(isinstance(event, RecipePlanned) for event in events)
    assert [event.number for event in events if isinstance(event, TrainingStep)] == list(range(6, 13))
    assert run.read_recipe().training.steps == 12


@pytest.fixture
def slow_machine(monkeypatch):
    """Let every step take a second, and scoring nothing."""
    seconds = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(seconds)), monotonic=lambda: 0.0)
    monkeypatch.setattr("dragoman.training.trainer.time", clock)
    monkeypatch.setattr(Trainer, "_elapsed", lambda trainer: trainer.progress.step + 1.0)
    monkeypatch.setattr(Trainer, "seconds_per_step", lambda _trainer: 0.1)
    monkeypatch.setattr("dragoman.training.trainer.finishing_seconds", lambda *_: 0.0)


def test_a_training_that_is_too_slow_gets_an_earlier_end_once(slow_machine, open_recipe, tmp_path):
    recipe = open_recipe(tmp_path / "run", "training.steps=100", "training.minutes=1")
    run, events = train(recipe)
    (moved,) = [event for event in events if isinstance(event, EndReplanned)]
    steps = [event for event in events if isinstance(event, TrainingStep)]
    assert moved.step < moved.last_step == steps[-1].number <= 60
    assert steps[-1].learning_rate < 0.1 * steps[moved.step - 1].learning_rate
    assert run.read_recipe().training.steps == 100
    newest, _ = checkpoints.newest_checkpoint(run.checkpoints_dir)
    progress = checkpoints.read_progress(newest)
    assert (progress.step, progress.replanned_at, progress.last_step) == (moved.last_step, moved.step, moved.last_step)


def test_a_training_whose_end_was_moved_is_resumed_exactly(slow_machine, open_recipe, tmp_path):
    settings = ("training.steps=100", "training.minutes=1")
    once, events = train(open_recipe(tmp_path / "once", *settings))
    (moved,) = [event for event in events if isinstance(event, EndReplanned)]
    stop = StopRequest()

    def stop_after_the_move(event):
        if isinstance(event, TrainingStep) and event.number == moved.step + 3:
            stop.request()

    with pytest.raises(TrainingStopped):
        dragoman.train(open_recipe(tmp_path / "twice", *settings), on_event=stop_after_the_move, stop=stop)
    twice, events = train(open_recipe(tmp_path / "twice", *settings), resume=True)
    assert not any(isinstance(event, EndReplanned) for event in events)
    assert twice.weights_file.read_bytes() == once.weights_file.read_bytes()


def test_a_finished_training_whose_end_was_moved_is_not_continued(slow_machine, open_recipe, tmp_path):
    recipe = open_recipe(tmp_path / "run", "training.steps=100", "training.minutes=1")
    run, _ = train(recipe)
    weights = run.weights_file.read_bytes()
    _, events = train(recipe, resume=True)
    assert not any(isinstance(event, TrainingStep) for event in events)
    assert run.weights_file.read_bytes() == weights
    assert "Training was slower than planned: at step" in run.card_file.read_text()


def test_a_schedule_without_an_end_stops_when_the_time_is_over(slow_machine, open_recipe, tmp_path):
    recipe = open_recipe(tmp_path / "run", "training.steps=100", "training.minutes=0.5", "training.schedule=constant")
    _, events = train(recipe)
    assert not any(isinstance(event, EndReplanned) for event in events)
    assert [event.number for event in events if isinstance(event, TrainingStep)][-1] == 30
    (announced,) = [event for event in events if isinstance(event, TrainingPlan)]
    assert not announced.ends_by_time  # by the speed that was measured, all steps fit


def test_minutes_count_from_the_start_of_the_command(open_recipe, tmp_path, monkeypatch):
    budgets = []

    def record(recipe, data, measure_speed, seconds_left, on_event, *, processes):
        budgets.append(seconds_left())

    monkeypatch.setattr("dragoman.training.planning._plan_recipe", record)
    monkeypatch.setattr("dragoman.training.planning.time.monotonic", lambda: 1130.0)
    dragoman.train(open_recipe(tmp_path / "run", "training.steps=1", "training.minutes=3"), started_at=1000.0)
    assert budgets == [50.0]


def test_the_time_of_the_steps_alone_can_be_limited(open_recipe, tmp_path, monkeypatch):
    """The laboratory compares models that were trained for the same time, whatever validation and scoring take."""
    monkeypatch.setattr(Trainer, "_elapsed", lambda _trainer: 1e6)
    recipe = open_recipe(tmp_path / "run", "training.steps=9", "training.minutes=60", "training.schedule=constant")
    _, events = train(recipe, limit_steps_only=True)
    assert [event.number for event in events if isinstance(event, TrainingStep)][-1] == 9
    _, events = train(recipe, overwrite=True)
    assert [event.number for event in events if isinstance(event, TrainingStep)][-1] == 1


def test_outputs_of_a_validation_are_no_longer_than_the_data_suggests(open_recipe, tmp_path):
    """A model that has not learned to end its outputs would take most of a short training for its validations."""
    run, events = train(open_recipe(tmp_path / "run", "training.steps=1", "training.seed=3"))
    (validated,) = [event for event in events if isinstance(event, ValidationResult)]
    assert run.read_recipe().decoding.extra_length == 50
    for sample in validated.samples:
        assert len(sample.translation.split()) <= len(sample.source.split()) + 1 + 5
