"""Runs made by released versions still load, answer as they did then, and resume where they stopped.

`0.1.0/` holds one small run per task and architecture, trained by version 0.1.0 on the toy data in `0.1.0/data`, each
with the answers of that version in `expected.json`. `0.1.0/stopped` is a training that was stopped after step 7 of 12,
with the weights that version 0.1.0 ended with when it was not stopped.
"""

import json
import shutil
from pathlib import Path

import pytest

import dragoman
from dragoman.model_files import read_tensors
from dragoman.recipe import Recipe

RELEASED = Path(__file__).parent / "0.1.0"
EXPECTED = {file.parent.name: json.loads(file.read_text()) for file in sorted(RELEASED.glob("*/expected.json"))}
TRANSLATORS = [name for name, expected in EXPECTED.items() if "greedy" in expected and name != "generate"]
OTHERS = {"pronounce": "pronounce", "inflect": "inflect", "parse": "parse", "parse-without-guide": "parse"}


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_released_translator_gives_the_same_translations(name):
    model, expected = dragoman.load(RELEASED / name), EXPECTED[name]
    assert model.translate(expected["input"], beam=1) == expected["greedy"]
    assert model.translate(expected["input"], beam=3) == expected["beam"]
    assert model.translate(["a b c"], beam=3, n_best=3) == expected["n_best"]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_released_translator_gives_the_same_probabilities(name):
    model, expected = dragoman.load(RELEASED / name), EXPECTED[name]
    scored = model.score([text for text in expected["input"] if text], expected["reference"])
    assert [one.log_probability for one in scored] == pytest.approx(expected["reference_log_probability"], rel=1e-4)
    assert sum(parameter.numel() for parameter in model.model.parameters()) == expected["parameters"]


@pytest.mark.parametrize(("name", "verb"), OTHERS.items())
def test_a_released_model_of_another_task_gives_the_same_answers(name, verb):
    answer, expected = getattr(dragoman.load(RELEASED / name), verb), EXPECTED[name]
    assert answer(expected["input"]) == expected["output"]
    assert answer(expected["input"], n_best=2) == expected["n_best"]


def test_a_released_language_model_continues_a_text_in_the_same_way():
    model, expected = dragoman.load(RELEASED / "generate"), EXPECTED["generate"]
    assert model.generate(expected["prompt"], length=40, seed=3) == expected["sampled"]


def test_a_training_that_an_older_version_stopped_ends_with_the_weights_it_would_have_had(tmp_path, monkeypatch):
    shutil.copytree(RELEASED / "data", tmp_path / "data")
    shutil.copytree(RELEASED / "stopped", tmp_path / "stopped")
    monkeypatch.chdir(tmp_path)
    dragoman.train(Recipe.from_toml(tmp_path / "stopped" / "recipe.toml"), resume=True)
    ended, expected = (read_tensors(Path("stopped", name))[0] for name in ("model.safetensors", "expected.safetensors"))
    assert ended.keys() == expected.keys()
    for name, tensor in expected.items():
        assert ended[name].numpy() == pytest.approx(tensor.numpy(), abs=1e-4), name
