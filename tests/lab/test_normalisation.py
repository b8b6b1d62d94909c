"""The experiment of section 3.1: time is shared as it should be, gradients are those of the layers, and it reports."""

import pytest
import torch
from small_lab import checked, shrink
from toy_lab import toy_lab

from dragoman.lab import normalisation
from dragoman.lab.repeats import OVERHEAD_SECONDS, apart, compared, digits, over_seeds, repeats
from dragoman.model.architectures import build
from dragoman.recipe import Model


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
    assert "no difference beyond the spread" in compared("Loss", {"a": near, "b": far}, digits(1))
    assert "do not overlap" in compared("Loss", {"a": near, "b": over_seeds([3.0, 3.1])}, digits(1))
    assert "one training each" in compared("Loss", {"a": over_seeds([1.0]), "b": over_seeds([9.0])}, digits(1))


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
    lab = toy_lab(tmp_path, material, seconds=3)
    report = normalisation.run(lab)
    checked(report, lab, tables=2, pictures=2)
    assert len(report.results["trainings"]) == 2 * len(normalisation.KINDS)
