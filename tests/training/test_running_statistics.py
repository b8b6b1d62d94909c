"""Batch normalisation counts while it is trained: what it counted is saved, resumed, averaged and never disturbed."""

import math
import shutil
from dataclasses import asdict, replace

import pytest
import torch
from traces import everything

import dragoman
from dragoman import checkpoints
from dragoman.checkpoints import average_checkpoints
from dragoman.errors import TrainingStopped, UserError
from dragoman.manifest import file_digest
from dragoman.model_config import TransformerConfig
from dragoman.model_files import read_tensors, write_weights
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.models.weights import clone_tensors, named_weights, running_statistics
from dragoman.recipe import TrainingConfig
from dragoman.run import FORMAT_VERSION
from dragoman.storage import to_json
from dragoman.tasks.info import run_info
from dragoman.tokens import END, PAD, START
from dragoman.training.events import StopRequest, TrainingPlan
from dragoman.training.loop import TensorBatch, TrainingStep, build_adam, measure_seconds_per_step, train
from dragoman.training.loss import cross_entropy_objective
from dragoman.training.schedule import schedule
from dragoman.training.trainer import Trainer

BATCH = ["model.normalisation=batch", "model.dropout=0.1", "training.steps=7"]


def tiny() -> Transformer:
    torch.manual_seed(1)
    config = TransformerConfig(
        layers=1, width=8, inner_width=8, heads=2, dropout=0.0, normalisation="batch", norm="pre"
    )
    return Transformer(config, 10, 10)


def batch(number: int) -> list[TensorBatch]:
    target = torch.tensor([[5, 6 + number % 3, 7, END], [9, END, PAD, PAD]])
    prefix = torch.tensor([[START, 5, 6 + number % 3, 7], [START, 9, PAD, PAD]])
    return [TensorBatch(Source.from_ids(target), prefix, target, 6, [0, 1])]


@pytest.fixture(scope="module")
def counting(toy_recipe, tmp_path_factory):
    """A run with batch normalisation, to be read and not to be changed."""
    return dragoman.train(toy_recipe(tmp_path_factory.mktemp("counting") / "run", *BATCH)).folder


def test_a_training_stopped_and_resumed_counts_as_one_never_stopped(counting, toy_recipe, tmp_path):
    for stop_at in (1, 4):
        stop = StopRequest()

        def listen(event, stop=stop, stop_at=stop_at):
            if isinstance(event, TrainingStep) and event.number == stop_at:
                stop.request()

        with pytest.raises(TrainingStopped):
            dragoman.train(toy_recipe(tmp_path / "two", *BATCH), resume=True, on_event=listen, stop=stop)
    resumed = dragoman.train(toy_recipe(tmp_path / "two", *BATCH), resume=True).folder
    assert everything(resumed) == everything(counting)


def test_what_was_counted_lies_beside_the_parameters_and_is_loaded_again(counting):
    held, _ = read_tensors(counting / "model.safetensors")
    loaded = named_weights(dragoman.load(counting).model)
    assert loaded.keys() == held.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in held.items())
    counted = [name for name in held if "running" in name]
    assert len(counted) == 2 * 5  # two around the encoder's sub-layers, three around the decoder's
    assert not torch.equal(held[counted[0]], torch.zeros(16))
    assert run_info(counting)["parameters"] == sum(
        tensor.numel() for name, tensor in held.items() if name not in counted
    )


def test_the_mean_of_checkpoints_is_the_mean_of_what_they_counted_too(counting):
    places = list(checkpoints.intact_checkpoints(counting / "checkpoints"))[:2]
    name = "encoder.0.attention_residual.norm.running_variance"
    each = [read_tensors(place / checkpoints.WEIGHTS_FILE)[0][name].double() for place in places]
    assert torch.equal(average_checkpoints(places)[name], ((each[0] + each[1]) / 2).float())


def test_weights_without_what_was_counted_do_not_fit(counting, tmp_path):
    run = shutil.copytree(counting, tmp_path / "run")
    held, facts = read_tensors(run / "model.safetensors")
    write_weights(run / "model.safetensors", {name: t for name, t in held.items() if "running" not in name}, facts)
    with pytest.raises(UserError, match="10 tensors are missing"):
        dragoman.load(run)


def test_a_model_that_counts_is_trained_by_one_thread_at_a_time(toy_recipe, tmp_path, monkeypatch):
    sizes = {}

    def note(trainer):
        sizes[trainer.recipe.model.normalisation] = trainer.pool.size
        return iter(())

    monkeypatch.setattr(Trainer, "fit", note)
    dragoman.train(toy_recipe(tmp_path / "batch", *BATCH, "training.threads=2"))
    dragoman.train(toy_recipe(tmp_path / "layer", "training.threads=2"))
    assert sizes == {"batch": 1, "layer": 2}


def test_a_skipped_step_counts_for_nothing():
    model, plan = tiny(), TrainingConfig(steps=2, precision="float32", warmup=1)
    with torch.no_grad():
        model.encoder[0].feed_forward.inner.weight[0, 0] = math.nan
    before = clone_tensors(running_statistics(model).values())
    steps = train(model, build_adam(model, plan), cross_entropy_objective(0.1), batch, plan, schedule(plan, 8))
    assert next(steps).skipped == 1
    assert all(torch.equal(one, other) for one, other in zip(before, running_statistics(model).values(), strict=True))


def test_measuring_the_speed_of_a_step_counts_for_nothing():
    model = tiny()
    before = clone_tensors(running_statistics(model).values())
    measure_seconds_per_step(model, cross_entropy_objective(0.1), batch, TrainingConfig(precision="float32"))
    assert all(torch.equal(one, other) for one, other in zip(before, running_statistics(model).values(), strict=True))


def test_a_run_of_before_these_settings_is_loaded_used_and_resumed(trained, toy_recipe, tmp_path):
    """A run directory of the first version knows nothing of architectures: its recipe lacks all those settings."""
    old = tmp_path / "old"
    shutil.copytree(trained, old)
    new = ("architecture", "score", "pattern", "window", "cell", "kernel", "normalisation", "minutes")

    def aged(text):
        return "".join(line for line in text.splitlines(keepends=True) if line.split(" = ")[0] not in new)

    recipe = old / "recipe.toml"
    recipe.write_text(aged(recipe.read_text()))
    for place in checkpoints.checkpoint_dirs(old / "checkpoints"):
        progress = checkpoints.read_progress(place)
        origin = {**progress.origin, "recipe": aged(progress.origin["recipe"])}
        reseal(place, replace(progress, origin=origin))
    assert "architecture" not in recipe.read_text()
    assert dragoman.load(old).translate("a b c") == dragoman.load(trained).translate("a b c")
    heard = []
    settings = ["training.validate_every=4", "training.steps=9"]
    dragoman.train(toy_recipe(old, *settings), resume=True, on_event=heard.append)
    assert next(event for event in heard if isinstance(event, TrainingPlan)).steps_done == 8


def reseal(place, progress):
    """Write another progress into a checkpoint, as the version that wrote it would have."""
    (place / checkpoints.PROGRESS_FILE).write_bytes(to_json(asdict(progress)))
    names = (checkpoints.WEIGHTS_FILE, checkpoints.OPTIMIZER_FILE, checkpoints.PROGRESS_FILE)
    files = {name: file_digest(place / name) for name in names}
    (place / checkpoints.MANIFEST_FILE).write_bytes(
        to_json({"format": FORMAT_VERSION, "step": progress.step, "files": files})
    )
