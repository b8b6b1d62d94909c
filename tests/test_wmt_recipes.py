"""The recipes for WMT at full size: no test runs them, but they are the paper's settings and say what they cost."""

import re
from pathlib import Path

import pytest
import torch

from dragoman.bench.flops import training_flops
from dragoman.models.architectures import build_model
from dragoman.presets import PRESETS
from dragoman.recipe import Recipe

ROOT = Path(__file__).parents[1]
NAMES = ("en-de-base", "en-de-big", "en-fr-big")
PAPER = {"en-de-base": 65e6, "en-de-big": 213e6, "en-fr-big": 213e6}  # table 3


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def recipe(name):
    return Recipe.from_toml(ROOT / "recipes" / f"wmt14-{name}.toml")


def parameters(recipe):
    with torch.device("meta"):
        model = build_model(recipe.model, recipe.tokenizer.size, recipe.tokenizer.size)
    return sum(each.numel() for each in model.parameters())


def test_a_step_sees_25000_tokens_of_either_language(recipe):
    assert recipe.training.batch_tokens * recipe.training.accumulate == 25_000


def test_training_and_search_are_those_of_sections_5_and_6(name, recipe):
    big = name.endswith("big")
    training, decoding = recipe.training, recipe.decoding
    assert training.steps == (300_000 if big else 100_000)
    assert (training.warmup, training.schedule, training.rate) == (4000, "noam", None)
    assert (training.betas, training.epsilon, training.label_smoothing) == ((0.9, 0.98), 1e-9, 0.1)
    assert training.average == training.keep == (20 if big else 5)
    assert (decoding.beam, decoding.length_penalty, decoding.extra_length) == (4, 0.6, 50)


def test_the_model_is_the_papers_and_only_french_has_less_dropout(name, recipe):
    expected = PRESETS["big" if name.endswith("big") else "base"]["model"] | ({"dropout": 0.1} if "fr" in name else {})
    assert {key: getattr(recipe.model, key) for key in expected} == expected
    assert (recipe.model.norm, recipe.model.activation, recipe.model.positions) == ("post", "relu", "sinusoidal")
    assert recipe.model.share_embeddings and recipe.model.share_output


def test_the_vocabulary_is_the_one_of_section_5_1(name, recipe):
    expected = ("wordpiece", 32_000) if "fr" in name else ("bpe", 37_000)
    assert (recipe.tokenizer.kind, recipe.tokenizer.size, recipe.tokenizer.joint) == (*expected, True)


def test_it_has_as_many_parameters_as_the_paper_says_give_or_take_its_vocabulary(name, recipe):
    """Decision 8 explains the 3 % of base; the French vocabulary is smaller than the one that table 3 counts."""
    assert parameters(recipe) == pytest.approx(PAPER[name], rel=0.031)


def test_the_cost_on_the_page_is_what_the_formulas_give(name, recipe):
    page = (ROOT / "docs" / "paper.md").read_text()
    (row,) = re.findall(rf"^\| \[`wmt14-{name}`\].*$", page, re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    token = training_flops(recipe.model, recipe.tokenizer.size, [(30, 30)])
    total = token * 25_000 * recipe.training.steps
    assert cells[2:9] == [
        f"{parameters(recipe) / 1e6:.1f} million",
        f"{recipe.training.steps:,}",
        f"{token / 1e9:.3f} G",
        f"{token * 25_000 / 1e12:.1f} T",
        f"{total:.1e}".replace("e+", "e"),
        f"{total / 1e11 / 3600:,.0f}",
        f"{total / (8 * 9.5e12) / 3600:.1f}",
    ]
