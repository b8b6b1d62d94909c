"""Section 3.2.1: statistics of the softmax, and the whole experiment."""

import math

import pytest
import torch
from small_lab import check_report, shrink
from toy_lab import toy_lab

from dragoman.lab import scaling


@pytest.mark.parametrize("key_width", [4, 64, 512])
def test_dot_products_of_unit_variance_vectors_have_variance_d_k(key_width):
    row = scaling.random_softmax_statistics(key_width, seed=3)
    assert row["variance"] == pytest.approx(key_width, rel=0.1)
    assert row["variance, scaled"] == pytest.approx(1, rel=0.1)


def test_the_norm_of_the_softmax_jacobian_is_that_of_autograd():
    torch.manual_seed(1)
    scores = 3 * torch.randn(5, 7, dtype=torch.float64)
    built = [torch.autograd.functional.jacobian(lambda row: row.softmax(-1), row).norm() for row in scores]
    assert scaling.jacobian_norm(scores.softmax(-1)) == pytest.approx(torch.stack(built), rel=1e-9)


def test_equal_scores_have_the_entropy_of_a_uniform_choice():
    result = scaling.softmax_statistics(torch.zeros(2, 64, dtype=torch.float64))
    assert result["entropy"] == pytest.approx(math.log(64))
    assert result["largest weight"] == pytest.approx(1 / 64)


def test_the_experiment_writes_a_report(tmp_path, corpus, monkeypatch):
    shrink(monkeypatch)
    monkeypatch.setattr(scaling, "TRAINED_KEY_WIDTHS", (4, 16))
    lab = toy_lab(tmp_path, corpus, seconds=60)
    report = scaling.run(lab)
    check_report(report, lab, tables=2, pictures=2)
    assert [(row["variant"], row["steps"]) for row in report.results["training"]] == [
        ("d_k = 16, scaled", [15]),
        ("d_k = 16, not scaled", [15]),
    ]  # narrow keys are left out, because time is short
    assert scaling.run(lab) == report  # nothing is trained again
