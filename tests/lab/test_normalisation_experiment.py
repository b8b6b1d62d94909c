"""Section 3.1: budgets, comparisons over seeds, gradients of layers, and the whole experiment."""

import math

import pytest
import torch
from small_lab import check_report, shrink
from toy_lab import toy_lab

from dragoman.lab import normalisation
from dragoman.lab.seeds import chance_sentence, compare_variants, comparison_phrase, seed_statistics
from dragoman.model_config import TransformerConfig
from dragoman.models.architectures import build_model

THREE = ["layer, post (the paper)", "layer, pre", "batch, post"]


def test_a_difference_within_the_range_over_seeds_is_not_reported():
    near, far = seed_statistics([1.0, 2.0]), seed_statistics([1.5, 2.5])
    assert "no clear difference" in compare_variants("Loss", {"a": near, "b": far})
    once = {"a": seed_statistics([1.0]), "b": seed_statistics([9.0])}
    assert "with one training per variant" in compare_variants("Loss", once)


def test_the_variant_that_is_better_with_every_seed_is_reported():
    low, high = seed_statistics([1.0, 2.0]), seed_statistics([3.0, 3.1])
    message = compare_variants("Loss", {"with": low, "without": high})
    values = "1.500 (1.000–2.000) with, 3.050 (3.000–3.100) without"
    assert message == f"Loss: {values}; every training “with” is better than every training “without”."
    assert comparison_phrase(low, high) == comparison_phrase(high, low, less_is_better=False) == "better than"
    assert comparison_phrase(low, high, less_is_better=False) == "worse than"
    assert comparison_phrase(low, seed_statistics([1.5, 1.6])) == "not clearly better or worse than"
    assert comparison_phrase(low, seed_statistics([9.0])).startswith("not comparable")


def test_diverged_trainings_are_left_out_and_counted():
    some, all_there = seed_statistics([5.0, 6.0, math.inf]), seed_statistics([1.0, 2.0, 3.0])
    message = compare_variants("Loss", {"a": some, "b": all_there})
    assert "(excluding 1 that diverged); every training “b” is better than every training “a”." in message


@pytest.mark.parametrize(
    ("count", "message"), [(1, "may be due to chance."), (2, "one of 3 comparisons."), (3, "one of 10 comparisons.")]
)
def test_the_probability_of_a_chance_result_is_reported(count, message):
    """Of all ways to deal 2n ranks to two kinds, two give one of them all the best."""
    assert chance_sentence(count).endswith(message)


def test_the_gradient_norm_of_a_layer_is_that_of_all_its_parameters():
    torch.manual_seed(1)
    model = build_model(TransformerConfig(layers=3, width=16, inner_width=16, heads=2), 20, 20)
    source = torch.randint(4, 20, (4, 5))
    lengths = normalisation.layer_gradients(model, (source, source, source))
    flat = torch.cat([parameter.grad.flatten() for parameter in model.decoder[1].parameters()])
    assert len(lengths["encoder"]) == len(lengths["decoder"]) == 3
    assert lengths["decoder"][1] == pytest.approx(float(flat.norm()), rel=1e-5)


def test_the_experiment_writes_a_report(tmp_path, corpus, monkeypatch):
    shrink(monkeypatch)
    monkeypatch.setattr(
        normalisation, "NARROW_SETTINGS", {**normalisation.NARROW_SETTINGS, "model.width": 16, "model.inner_width": 16}
    )
    monkeypatch.setattr(normalisation, "NORMALISATIONS", {name: normalisation.NORMALISATIONS[name] for name in THREE})
    lab = toy_lab(tmp_path, corpus, seconds=48)
    report = normalisation.run(lab)
    check_report(report, lab, tables=2, pictures=2)
    assert [row["variant"] for row in report.results["trainings"]] == [f"2 layers, {kind}" for kind in THREE]
    assert "Each kind was trained once" in report.findings[0]


def test_kinds_are_compared_with_the_papers_over_seeds():
    result = {kind: seed_statistics([5.0, 6.0]) for kind in normalisation.NORMALISATIONS} | {
        "layer, pre": seed_statistics([2.0, 3.0])
    }
    message = normalisation.depth_finding(6, 100, result)
    assert (
        "with 6 layers after 100 steps: layer, post (the paper) 5.50 (5.00–6.00); layer, pre 2.50 (2.00–3.00)"
        in message
    )
    assert (
        "Layer, pre is better than the paper’s; batch, post is not clearly better or worse than the paper’s" in message
    )
