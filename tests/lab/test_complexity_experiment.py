"""Table 1: exponents, operations and paths are right where the answer is known."""

import math

import pytest
import torch
from toy_lab import toy_lab

from dragoman.lab import complexity, layer_costs
from dragoman.lab.layer_costs import LAYERS, RESTRICTED, SELF_ATTENTION, fit_exponent, peak_bytes
from dragoman.report import ReportPicture, ReportTable


def test_the_exponent_of_an_exact_power_law_is_found():
    points = [(n, 3.7e-6 * n**1.75) for n in (64, 200, 1024, 8192)]
    assert fit_exponent(points) == pytest.approx(1.75, abs=1e-9)


def test_the_exponent_of_noisy_times_is_that_of_the_line_through_their_logarithms():
    points = [(2.0, 5.0), (4.0, 9.0), (16.0, 200.0)]
    across = torch.tensor([[math.log(x), 1.0] for x, _ in points], dtype=torch.float64)
    up = torch.tensor([[math.log(y)] for _, y in points], dtype=torch.float64)
    assert fit_exponent(points) == pytest.approx(float(torch.linalg.lstsq(across, up).solution[0]), abs=1e-9)


def test_peak_memory_is_that_of_the_tensors_alive_at_the_same_time():
    def work():
        first = torch.ones(1000, 1000)
        del first
        second = torch.ones(500, 1000)
        return second + 1

    assert peak_bytes(work) == pytest.approx(4_000_000, rel=0.01)


def test_every_layer_returns_as_many_vectors_as_it_reads_and_a_gradient():
    for layer in LAYERS.values():
        work = layer.make(40, 8)
        assert work.compute(*work.inputs).numel() == 40 * 8
        work.forward_backward()


def test_restricted_attention_needs_less_memory_than_full_attention():
    full, window = (LAYERS[name].make(2048, 8) for name in (SELF_ATTENTION, RESTRICTED))
    assert peak_bytes(full.forward_backward) > 4 * peak_bytes(window.forward_backward)


def test_only_the_sequential_operations_of_a_recurrent_layer_grow_with_the_length():
    chains = {
        kind: [layer_costs.sequential_operations(kind, n) for n in (4, 8, 16)] for kind in layer_costs.LAYER_KINDS
    }
    recurrent = chains.pop(layer_costs.RECURRENT)
    assert recurrent[2] - recurrent[1] == 2 * (recurrent[1] - recurrent[0]) > 0
    short = layer_costs.PATH_RESTRICTED  # over few places it is computed in another way
    assert all(len(set(counts)) == 1 for kind, counts in chains.items() if kind != short)


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        (layer_costs.SELF_ATTENTION, 1),
        (layer_costs.PATH_RESTRICTED, math.ceil(26 / (layer_costs.PATH_WINDOW - 1))),
        (layer_costs.RECURRENT, 1),
        (layer_costs.CONVOLUTIONAL, 13),
        (layer_costs.DILATED, 3),
    ],
)
def test_a_gradient_crosses_27_positions_in_as_many_layers_as_their_reach_requires(kind, layers):
    torch.manual_seed(1)
    assert layer_costs.layers_needed(kind, 27) == layers


def test_the_distance_over_which_a_gradient_is_halved_is_found():
    assert layer_costs.gradient_half_distance([2.0 ** (-distance / 3) for distance in range(20)]) == pytest.approx(3.0)
    assert layer_costs.gradient_half_distance([1.0] * 20) is None


def test_the_experiment_reports_tables_and_pictures(tmp_path, corpus):
    lab = toy_lab(tmp_path, corpus, seconds=1)
    report = complexity.run(lab)
    assert len([part for part in report.parts if isinstance(part, ReportTable)]) == 4
    assert all((lab.folder / part.file).exists() for part in report.parts if isinstance(part, ReportPicture))
    assert all(math.isfinite(fit["both"]["median"]) for fit in report.results["exponents"]["n"].values())
    assert any("table 1 gives 2" in finding for finding in report.findings)


def test_finished_measurements_are_not_repeated_after_an_interruption(tmp_path, corpus):
    lab = toy_lab(tmp_path, corpus, seconds=4)
    first = complexity.measure_rounds(lab, "length", (8, 16, 32), lambda n: {"a": {"both": float(n)}}, 0.0, 8)
    again = complexity.measure_rounds(lab, "length", (8, 16, 32), lambda n: pytest.fail("measured twice"), 0.0, 8)
    assert first == again
