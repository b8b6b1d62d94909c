"""A training that was stopped and resumed ends as one that was never stopped, bit for bit (A2, A3), and nothing that
watches a training changes it (B16)."""

import os
import signal

import pytest
from traces import everything, journal, steps_saved, weights

import dragoman
from dragoman import checkpoints
from dragoman.cli.signals import stop_on_signals
from dragoman.errors import TrainingStopped
from dragoman.training.events import StopRequest, TrainingPlan
from dragoman.training.loop import TrainingStep
from dragoman.training.trainer import Trainer

VARIANTS = {
    "as usual": ["model.dropout=0.1"],
    "with accumulation and validations": ["training.accumulate=2", "training.validate_every=4", "model.dropout=0.3"],
    "with the best averaged": ["training.validate_every=2", "training.average_of=best", "training.checkpoint_every=5"],
    "with patience": ["training.validate_every=1", "training.patience=1", "training.rate=5"],
}


class StopAfter:
    """Listens to a training and wishes it to stop after a step."""

    def __init__(self, step):
        self.step, self.stop = step, StopRequest()

    def __call__(self, event):
        if isinstance(event, TrainingStep) and event.number == self.step:
            self.stop.request()


def train_stopping_after(recipe, steps):
    for step in steps:
        listener = StopAfter(step)
        with pytest.raises(TrainingStopped, match=f"Stopped after step {step}; everything is saved"):
            dragoman.train(recipe, resume=True, on_event=listener, stop=listener.stop)
    return dragoman.train(recipe, resume=True).folder


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS.keys())
def undisturbed(request, toy_recipe, tmp_path_factory):
    """A run that was never stopped, with the settings that make it special."""
    settings = ["training.steps=17", *request.param]
    run = dragoman.train(toy_recipe(tmp_path_factory.mktemp("undisturbed") / "run", *settings)).folder
    return run, settings


def test_a_training_stopped_in_many_places_ends_as_one_never_stopped(undisturbed, toy_recipe, tmp_path):
    expected, settings = undisturbed
    last = max(entry["step"] for entry in journal(expected))
    stops = [step for step in (1, 4, 5, 9, 12, 13) if step < last]
    assert everything(train_stopping_after(toy_recipe(tmp_path / "run", *settings), stops)) == everything(expected)


def test_a_training_stopped_after_its_last_step_only_has_to_be_scored(undisturbed, toy_recipe, tmp_path):
    expected, settings = undisturbed
    last = max(entry["step"] for entry in journal(expected))
    assert everything(train_stopping_after(toy_recipe(tmp_path / "run", *settings), [last])) == everything(expected)


class StopInValidation(StopRequest):
    """A wish to stop that comes when a validation looks for one for the `number`th time."""

    def __init__(self, number):
        super().__init__()
        self.left = number

    def raise_if_requested(self):
        self.left -= 1
        if self.left == 0:
            self.request()
        super().raise_if_requested()


@pytest.mark.parametrize("number", [1, 2, 3], ids=["at its start", "before translating", "while translating"])
def test_a_validation_that_was_interrupted_is_made_up_for(toy_recipe, tmp_path, number):
    settings = ["training.validate_every=4", "training.average_of=best", "training.checkpoint_every=100"]
    expected = dragoman.train(toy_recipe(tmp_path / "undisturbed", *settings)).folder
    recipe = toy_recipe(tmp_path / "run", *settings)
    for _ in range(2):  # and that it is made up for can be interrupted too
        with pytest.raises(TrainingStopped, match="Stopped after step 4"):
            dragoman.train(recipe, resume=True, stop=StopInValidation(number))
    assert everything(dragoman.train(recipe, resume=True).folder) == everything(expected)


def test_a_signal_in_the_middle_of_saving_lets_the_checkpoint_be_finished(toy_recipe, tmp_path, monkeypatch):
    expected = dragoman.train(toy_recipe(tmp_path / "undisturbed")).folder
    recipe = toy_recipe(tmp_path / "run")
    with (
        monkeypatch.context() as patch,
        stop_on_signals() as stop,
        pytest.raises(TrainingStopped, match="after step 3"),
    ):
        patch.setattr(
            checkpoints, "save_hook", lambda stage: stage == "renamed" and os.kill(os.getpid(), signal.SIGTERM)
        )
        dragoman.train(recipe, stop=stop)
    assert steps_saved(tmp_path / "run") == [3]
    assert everything(dragoman.train(recipe, resume=True).folder) == everything(expected)


def test_the_second_signal_leaves_at_once_and_nothing_saved_is_lost(toy_recipe, tmp_path, monkeypatch):
    expected = dragoman.train(toy_recipe(tmp_path / "undisturbed")).folder
    recipe = toy_recipe(tmp_path / "run")

    def twice(stage):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch, stop_on_signals() as stop, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoints, "save_hook", twice)
        dragoman.train(recipe, stop=stop)
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert everything(dragoman.train(recipe, resume=True).folder) == everything(expected)


def test_a_signal_while_the_data_is_prepared_leaves_at_once_and_the_next_start_needs_no_flag(toy_recipe, tmp_path):
    recipe = toy_recipe(tmp_path / "run")
    with stop_on_signals() as stop, pytest.raises(KeyboardInterrupt):
        dragoman.train(recipe, stop=stop, on_event=lambda _: os.kill(os.getpid(), signal.SIGINT))
    assert dragoman.train(recipe).weights_file.exists()


def test_a_signal_while_the_model_is_scored_leaves_something_to_resume(toy_recipe, tmp_path):
    recipe = toy_recipe(tmp_path / "run")

    def interrupt_the_scoring(event):
        if getattr(event, "description", "") == "Translating the validation text":
            os.kill(os.getpid(), signal.SIGTERM)

    with (
        stop_on_signals() as stop,
        pytest.raises(TrainingStopped, match="before the model was scored; everything is saved"),
    ):
        dragoman.train(recipe, stop=stop, on_event=interrupt_the_scoring)
    assert dragoman.train(recipe, resume=True).card_file.exists()


class Recorder:
    """Notes which pairs each step was made of, once the plan is known."""

    def __init__(self, monkeypatch):
        self.seen, self.begun = [], False
        own = Trainer.batches_of_step

        def noted(trainer, number):
            batches = own(trainer, number)
            if self.begun:
                self.seen += [(number, list(batch.line_numbers)) for batch in batches]
            return batches

        monkeypatch.setattr(Trainer, "batches_of_step", noted)

    def train(self, recipe, stop_after=None):
        listener = StopAfter(stop_after)

        def listen(event):
            self.begun = self.begun or isinstance(event, TrainingPlan)
            listener(event)

        self.begun = False
        dragoman.train(recipe, resume=True, on_event=listen, stop=listener.stop)


def test_a_resumed_training_sees_the_same_pairs_in_the_same_order(toy_recipe, tmp_path, monkeypatch):
    recorder = Recorder(monkeypatch)
    settings = ["training.steps=9", "training.accumulate=3"]
    recorder.train(toy_recipe(tmp_path / "undisturbed", *settings))
    expected, recorder.seen = recorder.seen, []
    for step in (2, 4, 5):
        with pytest.raises(TrainingStopped):
            recorder.train(toy_recipe(tmp_path / "run", *settings), stop_after=step)
    recorder.train(toy_recipe(tmp_path / "run", *settings))
    assert recorder.seen == expected
    first_epoch = sorted(pair for number, pairs in expected if number <= 3 for pair in pairs)
    assert len(first_epoch) == len(set(first_epoch)) == 72


def test_how_often_one_validates_or_samples_does_not_change_the_training(toy_recipe, tmp_path):
    often = dragoman.train(
        toy_recipe(tmp_path / "often", "training.validate_every=2", "training.validation_sample=8"),
        on_event=lambda event: None,
    ).folder
    never = dragoman.train(toy_recipe(tmp_path / "never", "training.validation_sample=0")).folder
    assert newest_weights(often) == newest_weights(never)
    assert [entry for entry in journal(often) if entry["event"] == "train"] == [
        entry for entry in journal(never) if entry["event"] == "train"
    ]


def newest_weights(run):
    return {name: tensor for name, tensor in weights(run).items() if name.startswith("optimizer")}


def test_a_line_of_the_log_that_was_cut_off_by_a_kill_is_passed_over(toy_recipe, tmp_path):
    expected = dragoman.train(toy_recipe(tmp_path / "undisturbed")).folder
    recipe = toy_recipe(tmp_path / "run")
    listener = StopAfter(5)
    with pytest.raises(TrainingStopped):
        dragoman.train(recipe, on_event=listener, stop=listener.stop)
    with (tmp_path / "run" / "metrics.jsonl").open("ab") as log:
        log.write(b'{"event": "train", "step": 6, "loss": 1.0}\n{"step": 4}\n{"event": "train", "st')
    assert everything(dragoman.train(recipe, resume=True).folder) == everything(expected)
