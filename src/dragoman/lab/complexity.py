"""Table 1: time and memory of a layer, its sequential operations and the path length between positions, measured."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import torch

from dragoman.bench.stats import SampleStats, paired_ratio
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.layer_costs import (
    FUSED,
    LAYER_KINDS,
    LAYERS,
    PATH_FORMULAS,
    RECURRENT,
    RESTRICTED,
    SELF_ATTENTION,
    STACK_DEPTH,
    WHOLE,
    WHOLE_RESTRICTED,
    WINDOW_SIZE,
    fit_exponent,
    fits_memory,
    gradient_half_distance,
    gradient_profile,
    layers_needed,
    peak_bytes,
    sequential_operations,
    time_layers,
    warm_up,
)
from dragoman.lab.plots import COLOURS, add_shared_legend, draw_lines, label_axes, save_picture, subplots
from dragoman.malloc import keep_freed_memory
from dragoman.report import ExperimentReport, Json, ReportPicture, ReportTable
from dragoman.tasks.events import Notice

TITLE = "Table 1: cost per layer, sequential operations, path length"
QUESTION = "How do the time and memory of a layer grow with length and width, and how long are gradient paths?"
CLAIM = (
    "section 4: self-attention costs O(n²·d) per layer and connects any two positions by a constant number of "
    "operations; restricted to r neighbours it costs O(r·n·d), with paths of O(n/r). A recurrent layer costs O(n·d²) "
    "and has O(n) sequential operations."
)

_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
_WIDTHS = (32, 64, 128, 256, 512)
_COMPARED_LENGTH = 8192  # at which full and restricted attention are compared
_LENGTH_FOR_WIDTHS = 1024  # at which the width is varied
_MIN_FITTED_LENGTH = 1024  # from which on exponents are fitted
_MIN_FIT_POINTS = 3
_MAX_ROUNDS = 7
_PASSES = ("forward", "both")
_TIME_SHARES = {"lengths": 0.7, "widths": 0.15}  # of the budget; memory and paths need little

_LayerTimes = dict[int, dict[str, dict[str, list[float]]]]  # by size, layer and pass: seconds of each round
_Fits = Mapping[
    str, Mapping[str, Mapping[str, SampleStats]]
]  # by axis (n or d), layer and pass: exponent of each round


def run(lab: Laboratory) -> ExperimentReport:
    """Measure time over n and d, memory, sequential operations and gradients of every layer."""
    keep_freed_memory()  # as in training; otherwise every call pays for the page faults of long sequences
    warm_up()
    budget = lab.budget_seconds
    lab.on_event(Notice(f"{lab.name}: layers are timed for about {budget:.0f} s; no model is trained."))
    width = 256 if budget >= 240 else 128 if budget >= 30 else 32  # wide enough that products dominate, if time allows
    lengths = measure_rounds(
        lab, "length", _LENGTHS, lambda n: time_layers(n, width), _TIME_SHARES["lengths"] * budget, width
    )
    n = min(_LENGTH_FOR_WIDTHS, max(lengths))
    widths = measure_rounds(lab, "width", _WIDTHS, lambda d: time_layers(n, d), _TIME_SHARES["widths"] * budget, n)
    fits = {
        "n": _fit_exponents(lengths, _MIN_FITTED_LENGTH),
        "d": _fit_exponents(widths, sorted(widths)[-_MIN_FIT_POINTS:][0]),
    }
    compared = min(_COMPARED_LENGTH, max(lengths))
    memory = lab.measure_once("memory", lambda: _measure_memory(compared, width), n=compared, d=width)
    counted, plotted = (32, 128) if budget >= 20 else (16, 32)
    gradients = lab.measure_once("paths", lambda: _measure_paths(counted, plotted))
    ratios = _compare_full_with_window(lengths[compared])
    parts = (
        _introduction(lengths, width, n), _exponent_table(fits, lengths, widths),
        _draw_times(lab.folder, lengths, widths, width), _time_table(lengths, width),
        _memory_table(memory, compared, width), _path_table(gradients), _draw_gradients(lab.folder, gradients),
    )  # fmt: skip
    results = {
        "width": width,
        "threads": torch.get_num_threads(),
        "seconds_by_length": {str(size): times for size, times in lengths.items()},
        "seconds_by_width": {str(size): times for size, times in widths.items()},
        "exponents": {
            axis: {name: {key: fit.to_json() for key, fit in passes.items()} for name, passes in layers.items()}
            for axis, layers in fits.items()
        },
        "full_over_window": {name: ratio.to_json() for name, ratio in ratios.items()},
        "memory_bytes": memory,
        "paths": gradients,
    }
    return ExperimentReport(_findings(fits, ratios, memory, gradients, compared), parts, results)


# Time


def measure_rounds(
    lab: Laboratory, axis: str, sizes: Sequence[int], measure: Callable[[int], Json], seconds: float, fixed: int
) -> _LayerTimes:
    """Measure all sizes in rounds while time remains, with the other size fixed; a disturbance affects one round."""
    times: _LayerTimes = {}
    spent = 0.0
    for number in range(_MAX_ROUNDS):
        durations: list[float] = []
        for size in sizes if number == 0 else tuple(times):
            if number == 0 and not _is_affordable(size, durations, seconds):
                break
            name = f"{axis}-{size}-round-{number + 1}"
            part = lab.measure_once(name, partial(_measure_timed, measure, size), fixed=fixed)
            durations.append(part["seconds"])
            for layer, passes in part["times"].items():
                for key, value in passes.items():
                    times.setdefault(size, {}).setdefault(layer, {}).setdefault(key, []).append(value)
        spent += sum(durations)
        if spent + sum(durations) > seconds:
            break
    return times


def _measure_timed(measure: Callable[[int], Json], size: int) -> Json:
    started_at = time.monotonic()
    times = measure(size)
    return {"times": times, "seconds": time.monotonic() - started_at}


def _is_affordable(size: int, durations: Sequence[float], seconds: float) -> bool:
    """Return whether the next size fits into the time, if durations grow with n², and into memory.

    Sizes up to the compared one may use all the time; longer ones have to leave time for a second round.
    """
    if len(durations) < _MIN_FIT_POINTS:
        return True
    predicted = sum(durations) + 4 * durations[-1]
    return fits_memory(size) and predicted * (1 if size <= _COMPARED_LENGTH else 2) <= seconds


def _fit_exponents(times: _LayerTimes, first: int) -> dict[str, dict[str, SampleStats]]:
    """Fit the exponent of each layer and pass in each round, over the sizes from `first` on or the largest ones."""
    sizes = [size for size in sorted(times) if size >= first]
    sizes = sizes if len(sizes) >= _MIN_FIT_POINTS else sorted(times)[-_MIN_FIT_POINTS:]

    def fit(name: str, key: str) -> SampleStats:
        rounds = zip(*(times[size][name][key] for size in sizes), strict=False)  # the last round may be incomplete
        return SampleStats.from_values([fit_exponent(list(zip(sizes, seconds, strict=True))) for seconds in rounds])

    return {name: {key: fit(name, key) for key in _PASSES} for name in LAYERS}


def _compare_full_with_window(times: dict[str, dict[str, list[float]]]) -> dict[str, SampleStats]:
    """Return the ratios of the times of full and of restricted attention."""
    pairs = {
        "attention, forward": (SELF_ATTENTION, RESTRICTED, "forward"),
        "attention, forward and backward": (SELF_ATTENTION, RESTRICTED, "both"),
        "fused kernel, forward": (FUSED, RESTRICTED, "forward"),
        "fused kernel, forward and backward": (FUSED, RESTRICTED, "both"),
        "whole layer, forward and backward": (WHOLE, WHOLE_RESTRICTED, "both"),
    }
    return {
        name: paired_ratio(SampleStats.from_values(times[full][key]), SampleStats.from_values(times[window][key]))
        for name, (full, window, key) in pairs.items()
    }


# Memory and paths


def _measure_memory(n: int, d: int) -> dict[str, dict[str, int]]:
    """Return the peak memory of full and restricted attention in bytes, forward and with backward."""
    workloads = {name: LAYERS[name].make(n, d) for name in (SELF_ATTENTION, FUSED, RESTRICTED)}
    return {
        name: {"forward": peak_bytes(work.forward), "both": peak_bytes(work.forward_backward)}
        for name, work in workloads.items()
    }


def _measure_paths(counted: int, drawn: int) -> Json:
    """Count sequential operations and layers per path over `counted` positions; measure gradients over `drawn`."""
    torch.manual_seed(0)
    return {
        kind: {
            "places": counted,
            "chain": [sequential_operations(kind, counted // 2), sequential_operations(kind, counted)],
            "layers": [layers_needed(kind, counted // 2), layers_needed(kind, counted)],
            "one layer": gradient_profile(kind, 1, drawn),
            "deep": gradient_profile(kind, STACK_DEPTH, drawn),
        }
        for kind in LAYER_KINDS
    }


# Tables


def _introduction(lengths: _LayerTimes, width: int, n: int) -> str:
    rounds = len(next(iter(lengths[min(lengths)].values()))["forward"])
    return (
        f"One sequence, one head; threads: {torch.get_num_threads()}. Lengths n from {min(lengths)} to "
        f"{max(lengths):,} at width d = {width}; widths at n = {n:,}. All sizes and layers were measured in turn "
        f"(rounds: {rounds}); times are medians. “Self-attention” is equation 1 itself, softmax(QKᵀ/√d_k)V with its "
        "n × n matrices, as table 1 counts it; the four projections around it cost 4·n·d² more multiplications and are "
        "part of the whole layers. The two products of equation 1 cost 2·n²·d, so the projections dominate a whole "
        "layer while n is below 2·d."
    )


def _exponent_table(fits: _Fits, lengths: _LayerTimes, widths: _LayerTimes) -> ReportTable:
    header = (
        "layer", "cost", "n: table", "n: forward", "n: with backward", "d: table", "d: forward", "d: with backward",
    )  # fmt: skip
    rows = []
    for name, layer in LAYERS.items():
        in_n, in_d = ([f"{fits[axis][name][key]:,.2f}" for key in _PASSES] for axis in ("n", "d"))
        width_exponent = "1–2" if "whole" in name else layer.width_exponent
        rows.append((name, f"O({layer.cost})", layer.length_exponent, *in_n, width_exponent, *in_d))
    note = (
        f"Slopes of the logarithms by least squares, over n ≥ {min(_MIN_FITTED_LENGTH, max(lengths)):,} and the "
        f"{_MIN_FIT_POINTS} largest of d = {', '.join(map(str, sorted(widths)))}: median, lowest and highest of all "
        "rounds. Reading and writing the n × n matrices does not depend on d; table 1 does not count it."
    )
    return ReportTable("Exponents: table 1 and measured", header, rows, note)


def _time_table(lengths: _LayerTimes, width: int) -> ReportTable:
    def format_times(seconds: Sequence[float]) -> str:
        sample = SampleStats.from_values([1000 * value for value in seconds])
        return sample.format(lambda value: f"{float(f'{value:.3g}'):,g}")

    header = ("layer", *(f"n = {n:,}" for n in sorted(lengths)))
    rows = [(name, *(format_times(lengths[n][name]["both"]) for n in sorted(lengths))) for name in LAYERS]
    title = f"Milliseconds forward and backward, d = {width}"
    return ReportTable(title, header, rows, "Median, lowest and highest.")


def _memory_table(memory: Json, n: int, width: int) -> ReportTable:
    window = memory[RESTRICTED]
    rows = tuple(
        (name, *(cell for key in _PASSES for cell in (peaks[key] / 2**20, peaks[key] / window[key])))
        for name, peaks in memory.items()
    )
    header = ("attention", "forward, MiB", "ratio to restricted", "with backward, MiB", "ratio to restricted")
    note = "Peak memory allocated by torch, in addition to queries, keys and values."
    return ReportTable(f"Memory at n = {n:,}, d = {width}", header, rows, note)


def _path_table(gradients: Json) -> ReportTable:
    rows = []
    for kind, row in gradients.items():
        sequential, path = PATH_FORMULAS[kind]
        rows.append((kind, sequential, *row["chain"], path, *row["layers"], *_path_steps(kind, row)))
    n = next(iter(gradients.values()))["places"]
    half, full = f"n = {n // 2}", f"n = {n}"
    header = (
        "layer", "sequential: table", half, full, "path: table", f"layers, {half}", f"layers, {full}",
        f"steps, {half}", f"steps, {full}",
    )  # fmt: skip
    note = (
        "Sequential: the longest chain of dependent operations in the autograd graph of one layer. For at most 2·r "
        "positions, restricted attention is computed with a mask, and the chain is shorter. Layers: how many layers "
        "are needed until the last output has a gradient with respect to the first input. Steps: the operations on "
        "that path; a recurrent layer makes one step per position, all other layers one step each."
    )
    return ReportTable("Sequential operations and path length", header, rows, note)


def _path_steps(kind: str, row: Json) -> tuple[int, int]:
    """Return the steps between the first and the last position, for both numbers of positions."""
    few, many = row["layers"]
    return (row["places"] // 2 - 1, row["places"] - 1) if kind == RECURRENT else (few, many)


# Pictures


def _draw_times(folder: Path, lengths: _LayerTimes, widths: _LayerTimes, width: int) -> ReportPicture:
    figure, panels = subplots(2, height=4.8)
    for axes, times, x_label in zip(panels, (lengths, widths), ("length n", "width d"), strict=True):
        sizes = sorted(times)
        lines = {name: (sizes, [1000 * median(times[size][name]["both"]) for size in sizes]) for name in LAYERS}
        draw_lines(axes, lines, x_label=x_label, y_label="milliseconds, forward and backward", legend=False)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes[::2], [f"{size:,}" for size in sizes[::2]])
        axes.set_yscale("log")
        lowest = min(min(values) for _, values in lines.values())
        for slope in (1, 2):
            axes.plot(sizes, [lowest * (size / sizes[0]) ** slope for size in sizes], ":", color="0.6", linewidth=1)
    add_shared_legend(figure, panels[0])
    caption = (
        f"Time of one layer, forward and backward, by length (left, d = {width}) and width (right); with logarithmic "
        "axes, a slope is an exponent. Dotted: slopes 1 and 2."
    )
    return save_picture(figure, folder / "times.png", caption)


def _draw_gradients(folder: Path, gradients: Json) -> ReportPicture:
    figure, axes = subplots(2, height=4.2)
    titles = {"one layer": "one layer", "deep": f"{STACK_DEPTH} layers"}
    for panel, (depth, title) in zip(axes, titles.items(), strict=True):
        for (kind, row), colour in zip(gradients.items(), COLOURS, strict=False):
            norms = [value / max(row[depth]) for value in row[depth]]
            points = [(distance, value) for distance, value in enumerate(norms) if value > 0]
            panel.plot(*zip(*points, strict=True), color=colour, label=kind, linewidth=1.4)
        panel.set_yscale("log")
        panel.set_ylim(1e-12, 3)
        label_axes(panel, title=title, x_label="distance in positions", y_label="gradient norm, largest = 1")
    add_shared_legend(figure, axes[0])
    caption = (
        "Norm of the gradient of an output with respect to an input at a distance, in random layers: one layer (left) "
        f"and {STACK_DEPTH} with residual connections (right). A line ends where there is no path."
    )
    return save_picture(figure, folder / "gradients.png", caption)


# Findings


def _findings(fits: _Fits, ratios: Mapping[str, SampleStats], memory: Json, gradients: Json, n: int) -> tuple[str, ...]:
    full, window = fits["n"][SELF_ATTENTION], fits["n"][RESTRICTED]
    mebibytes = {name: peaks["both"] / 2**20 for name, peaks in memory.items()}
    forward, both = (memory[SELF_ATTENTION][key] / memory[RESTRICTED][key] for key in _PASSES)
    steps = ", ".join(
        f"{kind} {_path_steps(kind, row)[1]} ({PATH_FORMULAS[kind][1]})" for kind, row in gradients.items()
    )
    recurrent, attention = (gradients[kind]["one layer"] for kind in (RECURRENT, SELF_ATTENTION))
    half = gradient_half_distance(recurrent)
    decay = f"halves every {half:.1f} positions" if half else "does not decrease with the distance"
    return (
        f"The time of self-attention grows with n to the power {full['forward']:,.2f} forward and {full['both']:,.2f} "
        "with backward; table 1 gives 2.",
        f"The time of restricted self-attention (r = {WINDOW_SIZE}) grows with n to the power "
        f"{window['forward']:,.2f} forward and {window['both']:,.2f} with backward; table 1 gives 1.",
        f"At n = {n:,} restricted attention is {ratios['attention, forward']:,.1f} times as fast as full attention "
        f"forward and {ratios['attention, forward and backward']:,.1f} times with backward; compared with torch’s "
        f"fused kernel, {ratios['fused kernel, forward']:,.1f} and {ratios['fused kernel, forward and backward']:,.1f} "
        "times.",
        f"At n = {n:,} full attention needs {mebibytes[SELF_ATTENTION]:,.0f} MiB with backward and restricted "
        f"attention {mebibytes[RESTRICTED]:,.1f} MiB, a ratio of {both:.1f} ({forward:.1f} forward); the fused "
        f"kernel, which does not store the whole matrix either, needs {mebibytes[FUSED]:,.1f} MiB.",
        f"Gradient path length from the last of {gradients[RECURRENT]['places']} positions to the first, with the "
        f"formula of table 1: {steps}.",
        f"In one random recurrent layer, the gradient {decay}; in one self-attention layer, the gradient from "
        f"{len(attention) - 1} positions away is {attention[-1] / attention[1]:.2f} times the gradient from the "
        "neighbour.",
    )
