"""The experiment of section 3.1: time is shared as it should be, gradients are those of the layers, and it reports."""

import math

import pytest
import torch
from small_lab import checked, shrink
from toy_lab import toy_lab

from dragoman.lab import normalisation
from dragoman.lab.repeats import OVERHEAD_SECONDS, apart, by_chance, compared, digits, over_seeds, repeats, verdict
from dragoman.model.architectures import build
from dragoman.recipe import Model

THREE = ["layer, post (the paper)", "layer, pre", "batch, post"]


@pytest.mark.parametrize("budget", [36, 120, 360, 3600])
def test_all_trainings_together_fit_into_the_budget(budget):
    depths, seeds, seconds = normalisation.plan(budget)
    trainings = [seconds[depth] for depth in depths for _ in range(seeds) for _ in normalisation.KINDS]
    assert sum(trainings) <= budget
    assert min(trainings) > 0
    assert seconds[max(depths)] > seconds[min(depths)]


@pytest.mark.parametrize(("budget", "seeds"), [(10, 1), (60, 1), (200, 2), (1000, 3)])
def test_more_time_is_spent_on_seeds_first_and_then_on_longer_trainings(budget, seeds):
    plan = repeats(budget, 4, first_seed=5)
    assert plan.seeds == tuple(range(5, 5 + seeds))
    assert 4 * seeds * plan.seconds <= budget
    assert budget < 60 or 4 * seeds * (plan.seconds + OVERHEAD_SECONDS) == pytest.approx(budget, rel=0.01)


def test_a_difference_smaller_than_the_spread_over_seeds_is_called_none():
    near, far = over_seeds([1.0, 2.0]), over_seeds([1.5, 2.5])
    assert not apart(near, far)
    assert "no clear difference" in compared("Loss", {"a": near, "b": far}, digits(1))
    assert "with one training of each" in compared("Loss", {"a": over_seeds([1.0]), "b": over_seeds([9.0])}, digits(1))


def test_what_is_better_with_every_seed_is_named():
    low, high = over_seeds([1.0, 2.0]), over_seeds([3.0, 3.1])
    said = compared("Loss", {"with": low, "without": high}, digits(1))
    assert said == "Loss: 1.5 (1.0–2.0) with, 3.0 (3.0–3.1) without; better with (every one of 2 seeds)."
    assert verdict(low, high) == verdict(high, low, less_is_better=False) == "better than"
    assert verdict(low, high, less_is_better=False) == "worse than"
    assert verdict(low, over_seeds([1.5, 1.6])) == "not clearly better or worse than"
    assert verdict(low, over_seeds([9.0])).startswith("not repeated often enough")


def test_trainings_that_diverged_are_said_to_be_left_out():
    some, all_there = over_seeds([5.0, 6.0, math.inf]), over_seeds([1.0, 2.0, 3.0])
    assert "(without 1 that diverged); better b (every one of 2" in compared(
        "Loss", {"a": some, "b": all_there}, digits(0)
    )


@pytest.mark.parametrize(("count", "said"), [(1, ""), (2, "one time in 3."), (3, "one time in 10.")])
def test_how_often_chance_would_say_the_same_is_counted(count, said):
    """Of all ways to deal 2n ranks to two kinds, two give one of them all the best."""
    assert by_chance(count).endswith(said)


def test_the_gradient_of_a_layer_is_the_length_of_all_its_parameters_gradients():
    torch.manual_seed(1)
    model = build(Model(layers=3, width=16, inner_width=16, heads=2), 20, 20)
    source = torch.randint(4, 20, (4, 5))
    lengths = normalisation.layer_gradients(model, (source, source, source))
    flat = torch.cat([parameter.grad.flatten() for parameter in model.decoder[1].parameters()])
    assert len(lengths["encoder"]) == len(lengths["decoder"]) == 3
    assert lengths["decoder"][1] == pytest.approx(float(flat.norm()), rel=1e-5)


def test_the_experiment_reports_what_it_found(tmp_path, material, monkeypatch):
    shrink(monkeypatch)
    monkeypatch.setattr(normalisation, "NARROW", {**normalisation.NARROW, "model.width": 16, "model.inner_width": 16})
    monkeypatch.setattr(normalisation, "KINDS", {name: normalisation.KINDS[name] for name in THREE})
    monkeypatch.setattr(normalisation, "plan", lambda _seconds: ((2,), 1, {2: 0.2}))
    lab = toy_lab(tmp_path, material, seconds=3)
    report = normalisation.run(lab)
    checked(report, lab, tables=2, pictures=2)
    assert [row["kind"] for row in report.results["trainings"]] == THREE
    assert "One training of each" in report.findings[0]


def test_kinds_are_compared_with_the_papers_seed_by_seed():
    found = {kind: over_seeds([5.0, 6.0]) for kind in normalisation.KINDS} | {"layer, pre": over_seeds([2.0, 3.0])}
    said = normalisation.finding(6, 100, found)
    assert "with 6 layers by step 100: layer, post (the paper) 5.50 (5.00–6.00); layer, pre 2.50 (2.00–3.00)" in said
    assert "Layer, pre is better than the paper’s; batch, post is not clearly better or worse than the paper’s" in said
