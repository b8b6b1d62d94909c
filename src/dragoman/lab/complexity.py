"""Table 1: what a layer costs, how much of it has to wait, and how far apart two places are, all of it measured."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dragoman.bench.stats import SampleStats, paired_ratio
from dragoman.lab import path_lengths as paths
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.layer_costs import (
    FUSED,
    LAYERS,
    RESTRICTED,
    SELF_ATTENTION,
    WHOLE,
    WHOLE_RESTRICTED,
    WINDOW_SIZE,
    fit_exponent,
    fits_memory,
    peak_bytes,
    time_layers,
    warm_up,
)
from dragoman.lab.layer_pictures import LayerTimes, draw_paths, draw_times
from dragoman.lab.seeds import decimal_formatter
from dragoman.malloc import keep_freed_memory
from dragoman.report import ExperimentReport, Json, ReportTable

TITLE = "Table 1: cost per layer, sequential operations, path length"
QUESTION = "How do time and memory of a layer grow with the length and the width, and how far does a gradient travel?"
CLAIM = (
    "Section 4: self-attention costs O(n²·d) a layer and connects any two places by a constant number of operations; "
    "restricted to r neighbours it costs O(r·n·d), with paths of O(n/r). A recurrent layer costs O(n·d²), and O(n) of "
    "its operations wait for each other."
)

_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
_WIDTHS = (32, 64, 128, 256, 512)
_COMPARED_LENGTH = 8192  # the length at which full and restricted attention are compared
_LENGTH_FOR_WIDTHS = 1024  # the length at which the width is varied
_MIN_FITTED_LENGTH = 1024  # the length from which on exponents are fitted
_MIN_FIT_POINTS = 3  # of a fit
_MAX_ROUNDS = 7
_PASSES = ("forward", "both")
_TIME_SHARES = {"lengths": 0.7, "widths": 0.15}  # of the time; memory and paths need little


def run(lab: Laboratory) -> ExperimentReport:
    """Measure every layer over n and over d, its memory, and the way of a gradient through it."""
    keep_freed_memory()  # as in training: otherwise the long sequences pay for their pages anew each time
    warm_up()
    width = _layer_width(lab.budget_seconds)
    lengths = measure_rounds(
        lab, "length", _LENGTHS, lambda n: time_layers(n, width), _TIME_SHARES["lengths"] * lab.budget_seconds, width
    )
    n = min(_LENGTH_FOR_WIDTHS, max(lengths))
    widths = measure_rounds(
        lab, "width", _WIDTHS, lambda d: time_layers(n, d), _TIME_SHARES["widths"] * lab.budget_seconds, n
    )
    fits = {
        "n": _fit_exponents(lengths, _MIN_FITTED_LENGTH),
        "d": _fit_exponents(widths, sorted(widths)[-_MIN_FIT_POINTS:][0]),
    }
    compared_at = min(_COMPARED_LENGTH, max(lengths))
    memory = lab.measure_once("memory", lambda: _measure_memory(compared_at, width), n=compared_at, d=width)
    travelled = lab.measure_once("paths", lambda: _measure_paths(*_path_sizes(lab.budget_seconds)))
    ratios = _compare_full_with_window(lengths[compared_at])
    parts = (
        _introduction(lengths, width, n), _exponent_table(fits, lengths, widths),
        draw_times(lab.folder, lengths, widths, width), _time_table(lengths, width),
        _memory_table(memory, compared_at, width), _path_table(travelled), draw_paths(lab.folder, travelled),
    )  # fmt: skip
    found = _findings(fits, ratios, memory, travelled, compared_at)
    return ExperimentReport(found, parts, _results(lengths, widths, fits, ratios, memory, travelled, width))


def _layer_width(budget_seconds: float) -> int:
    """Return the width at which the length is varied: wide enough that products outweigh calls, if there is time."""
    return 256 if budget_seconds >= 240 else 128 if budget_seconds >= 30 else 32


def _path_sizes(budget_seconds: float) -> tuple[int, int]:
    """Return over how many places paths are counted, and over how many gradients are drawn."""
    return (32, 128) if budget_seconds >= 20 else (16, 32)


# Time


def measure_rounds(
    lab: Laboratory, what: str, sizes: Sequence[int], measure: Callable[[int], Json], allowed_seconds: float, fixed: int
) -> LayerTimes:
    """Measure all sizes, and all of them again as long as there is time: what disturbs a machine disturbs one round.

    The other size is fixed.
    """
    found: LayerTimes = {}
    spent = 0.0
    for number in range(_MAX_ROUNDS):
        took: list[float] = []
        for size in sizes if number == 0 else tuple(found):
            if number == 0 and not _is_affordable(size, took, allowed_seconds):
                break
            name = f"{what}-{size}-round-{number + 1}"
            part = lab.measure_once(name, lambda size=size: _measure_timed(measure, size), fixed=fixed)  # type: ignore[misc]
            took.append(part["seconds"])
            _add_round(found, size, part["times"])
        spent += sum(took)
        if spent + sum(took) > allowed_seconds:
            break
    return found


def _measure_timed(measure: Callable[[int], Json], size: int) -> Json:
    """Measure one size, and how long that took."""
    began_at = time.monotonic()
    found = measure(size)
    return {"times": found, "seconds": time.monotonic() - began_at}


def _is_affordable(size: int, took: Sequence[float], allowed_seconds: float) -> bool:
    """Say whether twice the last size fits into the time, if everything grows as fast as n², and into memory.

    The size of the comparison is worth all the time there is; a longer one has to leave time for a second round.
    """
    if len(took) < _MIN_FIT_POINTS:
        return True
    predicted = sum(took) + 4 * took[-1]
    return fits_memory(size) and predicted * (1 if size <= _COMPARED_LENGTH else 2) <= allowed_seconds


def _add_round(found: LayerTimes, size: int, more: dict[str, dict[str, float]]) -> None:
    """Add the times of one round."""
    for name, directions in more.items():
        for direction, seconds in directions.items():
            found.setdefault(size, {}).setdefault(name, {}).setdefault(direction, []).append(seconds)


def _fit_exponents(found: LayerTimes, first: int) -> dict[str, dict[str, SampleStats]]:
    """Fit the exponent of each layer and direction, once for each round, over the sizes from `first` on.

    With too few of them, over the largest ones.
    """
    sizes = [size for size in sorted(found) if size >= first]
    sizes = sizes if len(sizes) >= _MIN_FIT_POINTS else sorted(found)[-_MIN_FIT_POINTS:]
    fits: dict[str, dict[str, SampleStats]] = {}
    for name in LAYERS:
        for direction in _PASSES:
            turns = zip(*(found[size][name][direction] for size in sizes), strict=False)  # the last may be unfinished
            slopes = [fit_exponent(list(zip(sizes, turn, strict=True))) for turn in turns]
            fits.setdefault(name, {})[direction] = SampleStats.from_values(slopes)
    return fits


def _compare_full_with_window(at: dict[str, dict[str, list[float]]]) -> dict[str, SampleStats]:
    """Return how many times longer full attention takes than restricted attention, in several ways."""
    pairs = {
        "attention, forward": (SELF_ATTENTION, RESTRICTED, "forward"),
        "attention, forward and backward": (SELF_ATTENTION, RESTRICTED, "both"),
        "fused kernel, forward": (FUSED, RESTRICTED, "forward"),
        "fused kernel, forward and backward": (FUSED, RESTRICTED, "both"),
        "whole layer, forward and backward": (WHOLE, WHOLE_RESTRICTED, "both"),
    }
    return {
        what: paired_ratio(SampleStats.from_values(at[full][direction]), SampleStats.from_values(at[window][direction]))
        for what, (full, window, direction) in pairs.items()
    }


# Memory and paths


def _measure_memory(n: int, d: int) -> dict[str, dict[str, int]]:
    """Return the bytes that full and restricted attention need at the worst moment, forward and in training."""
    found = {}
    for name in (SELF_ATTENTION, FUSED, RESTRICTED):
        work = LAYERS[name].make(n, d)
        found[name] = {"forward": peak_bytes(work.forward), "both": peak_bytes(work.forward_backward)}
    return found


def _measure_paths(counted: int, drawn: int) -> Json:
    """Count what has to wait and how many layers a path needs, and follow gradients over the distance."""
    torch.manual_seed(0)
    return {
        kind: {
            "places": counted,
            "chain": [paths.sequential_operations(kind, counted // 2), paths.sequential_operations(kind, counted)],
            "layers": [paths.layers_needed(kind, counted // 2), paths.layers_needed(kind, counted)],
            "one layer": paths.gradient_profile(kind, 1, drawn),
            "deep": paths.gradient_profile(kind, paths.STACK_DEPTH, drawn),
        }
        for kind in paths.LAYER_KINDS
    }


# What is shown


def _introduction(lengths: LayerTimes, width: int, n: int) -> str:
    """Say what was measured, and how."""
    count = len(next(iter(lengths[min(lengths)].values()))["forward"])
    return (
        f"One sequence, one head; threads: {torch.get_num_threads()}. Lengths n from {min(lengths)} to "
        f"{max(lengths):,} at width d = {width}; widths at n = {n:,}. All sizes and layers were measured in turn, in "
        f"rounds ({count} of them); times are medians. “Self-attention” is equation 1 itself, softmax(QKᵀ/√d_k)V with "
        "its n × n matrices, as table 1 counts it; the four projections around it cost 4·n·d² multiplications more and "
        "are part of the whole layers. The two products of equation 1 take 2·n²·d of them, so that the projections are "
        "the larger part of a whole layer while n is below 2·d."
    )


def _exponent_table(
    fits: dict[str, dict[str, dict[str, SampleStats]]], lengths: LayerTimes, widths: LayerTimes
) -> ReportTable:
    """Return the fitted exponents beside those of the paper."""
    header = (
        "layer", "cost", "n: table", "n: forward", "n: with backward", "d: table", "d: forward", "d: with backward",
    )  # fmt: skip
    two = decimal_formatter(2)
    rows = []
    for name, layer in LAYERS.items():
        in_n, in_d = ([fits[axis][name][direction].format(two) for direction in _PASSES] for axis in ("n", "d"))
        in_width = layer.width_exponent if "whole" not in name else "1–2"
        rows.append((name, f"O({layer.cost})", layer.length_exponent, *in_n, in_width, *in_d))
    note = (
        f"Slopes of the logarithms by least squares, over n ≥ {min(_MIN_FITTED_LENGTH, max(lengths)):,} and the widest "
        f"{_MIN_FIT_POINTS} of d = {', '.join(map(str, sorted(widths)))}: the median of all rounds, and the lowest and "
        "highest. Reading and writing the n × n matrices does not depend on d, which table 1 leaves out."
    )
    return ReportTable("Exponents: of the paper, and fitted", header, tuple(rows), note)


def _time_table(lengths: LayerTimes, width: int) -> ReportTable:
    """Return the times of forward and backward pass."""
    header = ("layer", *(f"n = {n:,}" for n in sorted(lengths)))
    rows = tuple(
        (name, *(_format_milliseconds(lengths[n][name]["both"]) for n in sorted(lengths)))
        for name in LAYERS
    )  # fmt: skip
    return ReportTable(
        f"Milliseconds forward and backward, d = {width}", header, rows, "Median, and lowest to highest."
    )


def _format_milliseconds(seconds: Sequence[float]) -> str:
    """Write a duration with three digits."""
    return SampleStats.from_values([1000 * value for value in seconds]).format(
        lambda value: f"{float(f'{value:.3g}'):,g}"
    )


def _memory_table(memory: Json, n: int, width: int) -> ReportTable:
    """Return the peaks of memory, and how many times the window's they are."""
    window = memory[RESTRICTED]
    rows = tuple(
        (name, *(cell for way in _PASSES for cell in (peaks[way] / 2**20, peaks[way] / window[way])))
        for name, peaks in memory.items()
    )
    header = ("attention", "forward, MiB", "times the window’s", "with backward, MiB", "times the window’s")
    note = "What torch had allocated at the worst moment, beyond queries, keys and values."
    return ReportTable(f"Memory at n = {n:,}, d = {width}", header, rows, note)


def _path_table(travelled: Json) -> ReportTable:
    """Return sequential operations and path lengths beside the paper's formulas."""
    rows = []
    for kind, found in travelled.items():
        sequential, path = paths.PATH_FORMULAS[kind]
        steps = _path_steps(kind, found)
        rows.append((kind, sequential, *found["chain"], path, *found["layers"], *steps))
    n = found["places"]
    few, many = f"n = {n // 2}", f"n = {n}"
    header = (
        "layer", "sequential: table", few, many, "path: table", f"layers, {few}", f"layers, {many}",
        f"steps, {few}", f"steps, {many}",
    )  # fmt: skip
    note = (
        "Sequential: the longest chain of operations in one layer that wait for each other, counted in the graph of "
        "the computation; over 2·r places or fewer, restricted attention is computed by a mask, in a shorter one. "
        "Path: how many layers it takes until the last output has a gradient with respect to the first input, tried "
        "out; and the steps on the way, of which one recurrent layer takes one for each place."
    )
    return ReportTable("Sequential operations and path length", header, tuple(rows), note)


def _path_steps(kind: str, found: Json) -> tuple[int, int]:
    """Return the steps between the first and the last place, for both numbers of places."""
    few, many = found["layers"]
    return (found["places"] // 2 - 1, found["places"] - 1) if kind == paths.RECURRENT else (few, many)


# What was found


def _findings(fits: Any, ratios: dict[str, SampleStats], memory: Json, travelled: Json, n: int) -> tuple[str, ...]:
    """Say what was found, in sentences."""
    two, one = decimal_formatter(2), decimal_formatter(1)
    full, window = fits["n"][SELF_ATTENTION], fits["n"][RESTRICTED]
    return (
        f"The time of self-attention grows with n to the power {full['forward'].format(two)} forward and "
        f"{full['both'].format(two)} with its gradient; table 1 says 2.",
        f"The time of restricted self-attention (r = {WINDOW_SIZE}) grows with n to the power "
        f"{window['forward'].format(two)} forward and {window['both'].format(two)} with its gradient; table 1 "
        "says 1.",
        f"At n = {n:,} the window is {ratios['attention, forward'].format(one)} times faster than full attention "
        f"forward and {ratios['attention, forward and backward'].format(one)} times with the gradient; than torch’s "
        f"fused kernel, {ratios['fused kernel, forward'].format(one)} and "
        f"{ratios['fused kernel, forward and backward'].format(one)} times.",
        _memory_finding(memory, n),
        _path_finding(travelled),
        _decay_finding(travelled),
    )


def _memory_finding(memory: Json, n: int) -> str:
    """Say how much less memory the window needs."""
    times_less = {way: memory[SELF_ATTENTION][way] / memory[RESTRICTED][way] for way in _PASSES}
    return (
        f"At n = {n:,} full attention needs {memory[SELF_ATTENTION]['both'] / 2**20:,.0f} MiB with its gradient, the "
        f"window {memory[RESTRICTED]['both'] / 2**20:,.1f} MiB: {times_less['both']:.1f} times less "
        f"({times_less['forward']:.1f} times forward); the fused kernel, which never holds the whole matrix either, "
        f"{memory[FUSED]['both'] / 2**20:,.1f} MiB."
    )


def _path_finding(travelled: Json) -> str:
    """Say how many steps lie between the ends of a sequence."""
    steps = {kind: _path_steps(kind, found)[1] for kind, found in travelled.items()}
    n = next(iter(travelled.values()))["places"]
    written = ", ".join(f"{kind} {count} ({paths.PATH_FORMULAS[kind][1]})" for kind, count in steps.items())
    return f"Steps that a gradient takes from the last of {n} places to the first, with table 1’s formula: {written}."


def _decay_finding(travelled: Json) -> str:
    """Say how the gradient of one layer falls with the distance."""
    recurrent, attention = (travelled[kind]["one layer"] for kind in (paths.RECURRENT, paths.SELF_ATTENTION))
    half = paths.gradient_half_distance(recurrent)
    fall = f"falls to a half every {half:.1f} places" if half else "does not fall with the distance"
    return (
        f"In one random recurrent layer the gradient {fall}; in one of self-attention the gradient from the far end, "
        f"{len(attention) - 1} places away, is {attention[-1] / attention[1]:.2f} times that from the neighbour."
    )


def _results(
    lengths: LayerTimes,
    widths: LayerTimes,
    fits: Any,
    ratios: dict[str, SampleStats],
    memory: Json,
    travelled: Json,
    width: int,
) -> dict[str, Json]:
    """Return all numbers for a program to read."""
    return {
        "width": width,
        "threads": torch.get_num_threads(),
        "seconds_by_length": {str(size): found for size, found in lengths.items()},
        "seconds_by_width": {str(size): found for size, found in widths.items()},
        "exponents": {
            axis: {name: {way: one.to_json() for way, one in ways.items()} for name, ways in found.items()}
            for axis, found in fits.items()
        },
        "full_over_window": {what: found.to_json() for what, found in ratios.items()},
        "memory_bytes": memory,
        "paths": travelled,
    }
