"""A training that meets damage or a loss that is not a number, from the outside (A4, A8)."""

import json
from types import SimpleNamespace

import pytest
from safetensors.numpy import load_file

import dragoman
from dragoman import checkpoints
from dragoman.errors import TrainingStopped
from dragoman.run import Run
from dragoman.tasks.events import Notice
from dragoman.training.events import StopRequest
from dragoman.training.loop import TrainingStep
from dragoman.training.trainer import Trainer

# Adam divides by the root of a mean that forgets at once, and by nothing else: it takes steps of any length.
WILD = ["training.rate=10", "training.warmup=1", "training.betas=[0.99, 0.0]", "training.epsilon=1e-30"]


def notices(heard):
    return [event.text for event in heard if isinstance(event, Notice)]


def test_a_damaged_checkpoint_is_named_with_what_is_used_instead(toy_recipe, tmp_path):
    recipe = toy_recipe(tmp_path / "run")
    dragoman.train(recipe)
    folder = tmp_path / "run" / "checkpoints"
    (folder / "000000008" / "optimizer.safetensors").write_bytes(b"torn")
    (folder / "000000006" / "manifest.json").unlink()
    heard = []
    dragoman.train(recipe, resume=True, on_event=heard.append)
    size = json.loads((folder / "000000008" / "manifest.json").read_text())["files"]["optimizer.safetensors"]["bytes"]
    assert f"{folder}/000000008: optimizer.safetensors has 4 bytes instead of {size}; using {folder}/000000003 instead." in notices(heard)  # noqa: E501  # fmt: skip
    assert f"{folder}/000000006: manifest.json is missing; using {folder}/000000003 instead." in notices(heard)
    assert checkpoints.newest_checkpoint(folder) == (folder / "000000008", [])


def test_if_no_checkpoint_is_whole_training_says_that_it_starts_again(toy_recipe, tmp_path):
    recipe = toy_recipe(tmp_path / "run", "training.steps=3")
    dragoman.train(recipe)
    (tmp_path / "run" / "checkpoints" / "000000003" / "state.json").write_bytes(b"{}")
    heard = []
    dragoman.train(recipe, resume=True, on_event=heard.append)
    assert any(text.endswith("; starting from the beginning.") for text in notices(heard))


def test_a_loss_that_explodes_ends_the_program_with_code_3_and_all_that_was_saved_is_finite(
    command, toy_recipe, tmp_path
):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(toy_recipe(tmp_path / "run", "training.steps=500", "training.keep=9", *WILD).to_toml())
    left = command("train", recipe)
    assert left.code == 3
    assert "not finite in 10 steps in a row" in left.err
    assert "Saved checkpoints are intact. Try a lower training.rate (now 10)" in left.err
    places = checkpoints.checkpoint_dirs(tmp_path / "run" / "checkpoints")
    assert places
    for place in places:
        assert checkpoints.find_damage(place) is None
        assert all(abs(tensor).max() < 1e38 for tensor in load_file(place / "model.safetensors").values())


def test_the_lines_of_a_skipped_step_are_noted_once_even_if_the_step_is_repeated(toy_recipe, tmp_path):
    recipe = toy_recipe(tmp_path / "run", "training.steps=500", "training.checkpoint_every=100", *WILD)
    stop, heard = StopRequest(), []

    def stop_at_the_first_that_is_skipped(event):
        heard.append(event)
        if isinstance(event, Notice) and "was skipped" in event.text:
            stop.request()

    with pytest.raises(TrainingStopped):
        dragoman.train(recipe, on_event=stop_at_the_first_that_is_skipped, stop=stop)
    file = tmp_path / "run" / "skipped.jsonl"
    noted = file.read_text()
    entry = json.loads(noted)
    assert notices(heard)[-1].startswith(f"Step {entry['step']} was skipped: its loss is {entry['loss']}")
    assert f"The line numbers of its {len(entry['pairs'])} pairs are in {file}." in notices(heard)[-1]
    assert set(entry["pairs"]) <= set(range(1, 81))
    newest = checkpoints.newest_checkpoint(tmp_path / "run" / "checkpoints")[0]
    newest.rename(newest.with_name(".tmp-lost"))
    stop.requested = False
    with pytest.raises(TrainingStopped):
        dragoman.train(recipe, resume=True, on_event=stop_at_the_first_that_is_skipped, stop=stop)
    assert file.read_text() == noted


def test_the_notice_of_a_skipped_step_counts_in_the_unit_of_the_task(tmp_path):
    trainer = SimpleNamespace(metrics_log=None, task=SimpleNamespace(unit="tree"), run=Run(tmp_path))
    step = TrainingStep(3, float("nan"), 1.0, 9, 0.1, float("nan"), skipped=1, line_numbers=(7, 9))
    assert "The line numbers of its 2 trees are in" in Trainer._log_skipped_step(trainer, step).text
