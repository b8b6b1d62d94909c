"""Table 1: what a layer costs, how much of it has to wait, and how far apart two places are, all of it measured."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dragoman.bench.measure import Measure, ratio
from dragoman.lab import path_lengths as paths
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.layer_costs import (
    FUSED,
    LAYERS,
    RESTRICTED,
    SELF_ATTENTION,
    WHOLE,
    WHOLE_RESTRICTED,
    WINDOW,
    exponent,
    fits_memory,
    peak_bytes,
    times,
    warm_up,
)
from dragoman.lab.layer_pictures import Times, draw_paths, draw_times
from dragoman.lab.repeats import digits
from dragoman.lab.report import Json, Report, Table
from dragoman.memory import keep_freed_memory

TITLE = "Table 1: cost per layer, sequential operations, path length"
QUESTION = "How do time and memory of a layer grow with the length and the width, and how far does a gradient travel?"
CLAIM = (
    "Section 4: self-attention costs O(n²·d) a layer and connects any two places by a constant number of operations; "
    "restricted to r neighbours it costs O(r·n·d), with paths of O(n/r). A recurrent layer costs O(n·d²), and O(n) of "
    "its operations wait for each other."
)

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
WIDTHS = (32, 64, 128, 256, 512)
COMPARED_AT = 8192  # the length at which full and restricted attention are compared
LENGTH_OF_WIDTHS = 1024  # the length at which the width is varied
FITTED_FROM = 1024  # the length from which on exponents are fitted
LEAST_POINTS = 3  # of a fit
MOST_ROUNDS = 7
DIRECTIONS = ("forward", "both")
SHARES = {"lengths": 0.7, "widths": 0.15}  # of the time; memory and paths need little


def run(lab: Laboratory) -> Report:
    """Measure every layer over n and over d, its memory, and the way of a gradient through it."""
    keep_freed_memory()  # as in training: otherwise the long sequences pay for their pages anew each time
    warm_up()
    width = layer_width(lab.budget_seconds)
    lengths = rounds(lab, "length", LENGTHS, lambda n: times(n, width), SHARES["lengths"] * lab.budget_seconds, width)
    n = min(LENGTH_OF_WIDTHS, max(lengths))
    widths = rounds(lab, "width", WIDTHS, lambda d: times(n, d), SHARES["widths"] * lab.budget_seconds, n)
    fits = {"n": fitted(lengths, FITTED_FROM), "d": fitted(widths, sorted(widths)[-LEAST_POINTS:][0])}
    compared_at = min(COMPARED_AT, max(lengths))
    memory = lab.kept("memory", lambda: measured_memory(compared_at, width), n=compared_at, d=width)
    travelled = lab.kept("paths", lambda: measured_paths(*path_sizes(lab.budget_seconds)))
    ratios = compare(lengths[compared_at])
    parts = (
        introduction(lengths, width, n), exponent_table(fits, lengths, widths),
        draw_times(lab.folder, lengths, widths, width), time_table(lengths, width),
        memory_table(memory, compared_at, width), path_table(travelled), draw_paths(lab.folder, travelled),
    )  # fmt: skip
    found = findings(fits, ratios, memory, travelled, compared_at)
    return Report(found, parts, as_results(lengths, widths, fits, ratios, memory, travelled, width))


def layer_width(budget_seconds: float) -> int:
    """Return the width at which the length is varied: wide enough that products outweigh calls, if there is time."""
    return 256 if budget_seconds >= 240 else 128 if budget_seconds >= 30 else 32


def path_sizes(budget_seconds: float) -> tuple[int, int]:
    """Return over how many places paths are counted, and over how many gradients are drawn."""
    return (32, 128) if budget_seconds >= 20 else (16, 32)


# Time


def rounds(
    lab: Laboratory, what: str, sizes: Sequence[int], measure: Callable[[int], Json], allowed_seconds: float, fixed: int
) -> Times:
    """Measure all sizes, and all of them again as long as there is time: what disturbs a machine disturbs one round.

    The other size is fixed.
    """
    found: Times = {}
    spent = 0.0
    for number in range(MOST_ROUNDS):
        took: list[float] = []
        for size in sizes if number == 0 else tuple(found):
            if number == 0 and not affordable(size, took, allowed_seconds):
                break
            name = f"{what}-{size}-round-{number + 1}"
            part = lab.kept(name, lambda size=size: with_duration(measure, size), fixed=fixed)  # type: ignore[misc]
            took.append(part["seconds"])
            gather(found, size, part["times"])
        spent += sum(took)
        if spent + sum(took) > allowed_seconds:
            break
    return found


def with_duration(measure: Callable[[int], Json], size: int) -> Json:
    """Measure one size, and how long that took."""
    began_at = time.monotonic()
    found = measure(size)
    return {"times": found, "seconds": time.monotonic() - began_at}


def affordable(size: int, took: Sequence[float], allowed_seconds: float) -> bool:
    """Say whether twice the last size fits into the time, if everything grows as fast as n², and into memory.

    The size of the comparison is worth all the time there is; a longer one has to leave time for a second round.
    """
    if len(took) < LEAST_POINTS:
        return True
    predicted = sum(took) + 4 * took[-1]
    return fits_memory(size) and predicted * (1 if size <= COMPARED_AT else 2) <= allowed_seconds


def gather(found: Times, size: int, more: dict[str, dict[str, float]]) -> None:
    """Add the times of one round."""
    for name, directions in more.items():
        for direction, seconds in directions.items():
            found.setdefault(size, {}).setdefault(name, {}).setdefault(direction, []).append(seconds)


def fitted(found: Times, first: int) -> dict[str, dict[str, Measure]]:
    """Fit the exponent of each layer and direction, once for each round, over the sizes from `first` on.

    With too few of them, over the largest ones.
    """
    sizes = [size for size in sorted(found) if size >= first]
    sizes = sizes if len(sizes) >= LEAST_POINTS else sorted(found)[-LEAST_POINTS:]
    fits: dict[str, dict[str, Measure]] = {}
    for name in LAYERS:
        for direction in DIRECTIONS:
            turns = zip(*(found[size][name][direction] for size in sizes), strict=False)  # the last may be unfinished
            slopes = [exponent(list(zip(sizes, turn, strict=True))) for turn in turns]
            fits.setdefault(name, {})[direction] = Measure.of(slopes)
    return fits


def compare(at: dict[str, dict[str, list[float]]]) -> dict[str, Measure]:
    """Return how many times longer full attention takes than restricted attention, in several ways."""
    pairs = {
        "attention, forward": (SELF_ATTENTION, RESTRICTED, "forward"),
        "attention, forward and backward": (SELF_ATTENTION, RESTRICTED, "both"),
        "fused kernel, forward": (FUSED, RESTRICTED, "forward"),
        "fused kernel, forward and backward": (FUSED, RESTRICTED, "both"),
        "whole layer, forward and backward": (WHOLE, WHOLE_RESTRICTED, "both"),
    }
    return {
        what: ratio(Measure.of(at[full][direction]), Measure.of(at[window][direction]))
        for what, (full, window, direction) in pairs.items()
    }


# Memory and paths


def measured_memory(n: int, d: int) -> dict[str, dict[str, int]]:
    """Return the bytes that full and restricted attention need at the worst moment, forward and in training."""
    found = {}
    for name in (SELF_ATTENTION, FUSED, RESTRICTED):
        work = LAYERS[name].make(n, d)
        found[name] = {"forward": peak_bytes(work.forward), "both": peak_bytes(work.both)}
    return found


def measured_paths(counted: int, drawn: int) -> Json:
    """Count what has to wait and how many layers a path needs, and follow gradients over the distance."""
    torch.manual_seed(0)
    return {
        kind: {
            "places": counted,
            "chain": [paths.chain(kind, counted // 2), paths.chain(kind, counted)],
            "layers": [paths.layers_needed(kind, counted // 2), paths.layers_needed(kind, counted)],
            "one layer": paths.profile(kind, 1, drawn),
            "deep": paths.profile(kind, paths.DEPTH, drawn),
        }
        for kind in paths.KINDS
    }


# What is shown


def introduction(lengths: Times, width: int, n: int) -> str:
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


def exponent_table(fits: dict[str, dict[str, dict[str, Measure]]], lengths: Times, widths: Times) -> Table:
    """Return the fitted exponents beside those of the paper."""
    header = (
        "layer", "cost", "n: table", "n: forward", "n: with backward", "d: table", "d: forward", "d: with backward",
    )  # fmt: skip
    two = digits(2)
    rows = []
    for name, layer in LAYERS.items():
        in_n, in_d = ([fits[axis][name][direction].written(two) for direction in DIRECTIONS] for axis in ("n", "d"))
        in_width = layer.in_width if "whole" not in name else "1–2"
        rows.append((name, f"O({layer.cost})", layer.in_length, *in_n, in_width, *in_d))
    note = (
        f"Slopes of the logarithms by least squares, over n ≥ {min(FITTED_FROM, max(lengths)):,} and the widest "
        f"{LEAST_POINTS} of d = {', '.join(map(str, sorted(widths)))}: the median of all rounds, and the lowest and "
        "highest. Reading and writing the n × n matrices does not depend on d, which table 1 leaves out."
    )
    return Table("Exponents: of the paper, and fitted", header, tuple(rows), note)


def time_table(lengths: Times, width: int) -> Table:
    """Return the times of forward and backward pass."""
    header = ("layer", *(f"n = {n:,}" for n in sorted(lengths)))
    rows = tuple(
        (name, *(milliseconds(lengths[n][name]["both"]) for n in sorted(lengths)))
        for name in LAYERS
    )  # fmt: skip
    return Table(f"Milliseconds forward and backward, d = {width}", header, rows, "Median, and lowest to highest.")


def milliseconds(seconds: Sequence[float]) -> str:
    """Write a duration with three digits."""
    return Measure.of([1000 * value for value in seconds]).written(lambda value: f"{float(f'{value:.3g}'):,g}")


def memory_table(memory: Json, n: int, width: int) -> Table:
    """Return the peaks of memory, and how many times the window's they are."""
    window = memory[RESTRICTED]
    rows = tuple(
        (name, *(cell for way in DIRECTIONS for cell in (peaks[way] / 2**20, peaks[way] / window[way])))
        for name, peaks in memory.items()
    )
    header = ("attention", "forward, MiB", "times the window’s", "with backward, MiB", "times the window’s")
    note = "What torch had allocated at the worst moment, beyond queries, keys and values."
    return Table(f"Memory at n = {n:,}, d = {width}", header, rows, note)


def path_table(travelled: Json) -> Table:
    """Return sequential operations and path lengths beside the paper's formulas."""
    rows = []
    for kind, found in travelled.items():
        sequential, path = paths.FORMULAS[kind]
        steps = path_steps(kind, found)
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
    return Table("Sequential operations and path length", header, tuple(rows), note)


def path_steps(kind: str, found: Json) -> tuple[int, int]:
    """Return the steps between the first and the last place, for both numbers of places."""
    few, many = found["layers"]
    return (found["places"] // 2 - 1, found["places"] - 1) if kind == paths.RECURRENT else (few, many)


# What was found


def findings(fits: Any, ratios: dict[str, Measure], memory: Json, travelled: Json, n: int) -> tuple[str, ...]:
    """Say what was found, in sentences."""
    two, one = digits(2), digits(1)
    full, window = fits["n"][SELF_ATTENTION], fits["n"][RESTRICTED]
    return (
        f"The time of self-attention grows with n to the power {full['forward'].written(two)} forward and "
        f"{full['both'].written(two)} with its gradient; table 1 says 2.",
        f"The time of restricted self-attention (r = {WINDOW}) grows with n to the power "
        f"{window['forward'].written(two)} forward and {window['both'].written(two)} with its gradient; table 1 "
        "says 1.",
        f"At n = {n:,} the window is {ratios['attention, forward'].written(one)} times faster than full attention "
        f"forward and {ratios['attention, forward and backward'].written(one)} times with the gradient; than torch’s "
        f"fused kernel, {ratios['fused kernel, forward'].written(one)} and "
        f"{ratios['fused kernel, forward and backward'].written(one)} times.",
        memory_finding(memory, n),
        path_finding(travelled),
        decay_finding(travelled),
    )


def memory_finding(memory: Json, n: int) -> str:
    """Say how much less memory the window needs."""
    times_less = {way: memory[SELF_ATTENTION][way] / memory[RESTRICTED][way] for way in DIRECTIONS}
    return (
        f"At n = {n:,} full attention needs {memory[SELF_ATTENTION]['both'] / 2**20:,.0f} MiB with its gradient, the "
        f"window {memory[RESTRICTED]['both'] / 2**20:,.1f} MiB: {times_less['both']:.1f} times less "
        f"({times_less['forward']:.1f} times forward); the fused kernel, which never holds the whole matrix either, "
        f"{memory[FUSED]['both'] / 2**20:,.1f} MiB."
    )


def path_finding(travelled: Json) -> str:
    """Say how many steps lie between the ends of a sequence."""
    steps = {kind: path_steps(kind, found)[1] for kind, found in travelled.items()}
    n = next(iter(travelled.values()))["places"]
    written = ", ".join(f"{kind} {count} ({paths.FORMULAS[kind][1]})" for kind, count in steps.items())
    return f"Steps that a gradient takes from the last of {n} places to the first, with table 1’s formula: {written}."


def decay_finding(travelled: Json) -> str:
    """Say how the gradient of one layer falls with the distance."""
    recurrent, attention = (travelled[kind]["one layer"] for kind in (paths.RECURRENT, paths.SELF_ATTENTION))
    half = paths.half_distance(recurrent)
    fall = f"falls to a half every {half:.1f} places" if half else "does not fall with the distance"
    return (
        f"In one random recurrent layer the gradient {fall}; in one of self-attention the gradient from the far end, "
        f"{len(attention) - 1} places away, is {attention[-1] / attention[1]:.2f} times that from the neighbour."
    )


def as_results(
    lengths: Times, widths: Times, fits: Any, ratios: dict[str, Measure], memory: Json, travelled: Json, width: int
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
