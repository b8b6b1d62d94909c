"""Section 3.1: budgets, comparisons over seeds, gradients of layers, and the whole experiment."""

import math

import pytest
import torch
from small_lab import check_report, shrink
from toy_lab import toy_lab

from dragoman.lab import normalisation
from dragoman.lab.seeds import (
    TRAINING_OVERHEAD_SECONDS,
    SeedPlan,
    compare_variants,
    comparison_phrase,
    plan_seeds,
    seed_statistics,
)
from dragoman.model_config import TransformerConfig
from dragoman.models.architectures import build_model

THREE = ["layer, post (the paper)", "layer, pre", "batch, post"]


@pytest.mark.parametrize("budget", [36, 120, 360, 3600])
def test_all_trainings_together_fit_into_the_budget(budget):
    depths, seeds, seconds = normalisation.plan_depths(budget)
    trainings = [seconds[depth] for depth in depths for _ in range(seeds) for _ in normalisation.NORMALISATIONS]
    assert sum(trainings) <= budget
    assert min(trainings) > 0
    assert seconds[max(depths)] > seconds[min(depths)]


@pytest.mark.parametrize(("budget", "seeds"), [(10, 1), (60, 1), (200, 2), (1000, 3)])
def test_a_larger_budget_gives_more_seeds_then_longer_trainings(budget, seeds):
    plan = plan_seeds(budget, 4, first_seed=5)
    assert plan.seeds == tuple(range(5, 5 + seeds))
    assert 4 * seeds * plan.seconds <= budget
    assert budget < 60 or 4 * seeds * (plan.seconds + TRAINING_OVERHEAD_SECONDS) == pytest.approx(budget, rel=0.01)


def test_a_difference_within_the_range_over_seeds_is_not_reported():
    near, far = seed_statistics([1.0, 2.0]), seed_statistics([1.5, 2.5])
    assert "no clear difference" in compare_variants("Loss", {"a": near, "b": far})
    once = {"a": seed_statistics([1.0]), "b": seed_statistics([9.0])}
    assert "with one training per variant" in compare_variants("Loss", once)


def test_the_variant_that_is_better_with_every_seed_is_reported():
    low, high = seed_statistics([1.0, 2.0]), seed_statistics([3.0, 3.1])
    message = compare_variants("Loss", {"with": low, "without": high})
    values = "1.500 (1.000–2.000) with, 3.050 (3.000–3.100) without"
    assert message == f"Loss: {values}; better for all 2 seeds: with."
    assert comparison_phrase(low, high) == comparison_phrase(high, low, less_is_better=False) == "better than"
    assert comparison_phrase(low, high, less_is_better=False) == "worse than"
    assert comparison_phrase(low, seed_statistics([1.5, 1.6])) == "not clearly better or worse than"
    assert comparison_phrase(low, seed_statistics([9.0])).startswith("not comparable")


def test_diverged_trainings_are_left_out_and_counted():
    some, all_there = seed_statistics([5.0, 6.0, math.inf]), seed_statistics([1.0, 2.0, 3.0])
    message = compare_variants("Loss", {"a": some, "b": all_there})
    assert "(excluding 1 that diverged); better for all 2 seeds: b." in message


@pytest.mark.parametrize(
    ("count", "message"), [(1, "on all cores."), (2, "one of 3 comparisons."), (3, "one of 10 comparisons.")]
)
def test_the_probability_of_a_chance_result_is_reported(count, message):
    """Of all ways to deal 2n ranks to two kinds, two give one of them all the best."""
    assert str(SeedPlan(tuple(range(count)), 12.0)).endswith(message)


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
    monkeypatch.setattr(normalisation, "plan_depths", lambda _seconds: ((2,), 1, {2: 30.0}))
    lab = toy_lab(tmp_path, corpus, seconds=3)
    report = normalisation.run(lab)
    check_report(report, lab, tables=2, pictures=2)
    assert [row["kind"] for row in report.results["trainings"]] == THREE
    assert "Each kind was trained once" in report.findings[0]


def test_kinds_are_compared_with_the_papers_over_seeds():
    result = {kind: seed_statistics([5.0, 6.0]) for kind in normalisation.NORMALISATIONS} | {
        "layer, pre": seed_statistics([2.0, 3.0])
    }
    message = normalisation.depth_finding(6, 100, result)
    assert "with 6 layers at step 100: layer, post (the paper) 5.50 (5.00–6.00); layer, pre 2.50 (2.00–3.00)" in message
    assert (
        "Layer, pre is better than the paper’s; batch, post is not clearly better or worse than the paper’s" in message
    )
