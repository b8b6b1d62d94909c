"""A report as one picture: a bar a contender, with a line from the lowest to the highest value."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dragoman.bench.decoding import DecodingResult
from dragoman.bench.measure import Measure
from dragoman.bench.report import Report
from dragoman.bench.workers import OURS

COLOURS = {True: "#1f6f8b", False: "#c9ccd1"}  # ours, others
WIDTH, ROW, HEADING = 6.5, 0.28, 0.8  # inches: a panel, a bar, what a panel needs beside its bars
COLUMNS = 2
DOTS = 130  # an inch

Result = TypeVar("Result")


@dataclass(frozen=True)
class Panel:
    """Contenders that are compared with each other."""

    title: str
    unit: str
    bars: dict[str, Measure]


def picture(report: Report, path: Path) -> None:
    """Draw a report."""
    rows = rows_of(report)
    tallest = max(len(panel.bars) for row in rows for panel in row)
    figure = Figure(figsize=(COLUMNS * WIDTH, len(rows) * (HEADING + ROW * tallest)), layout="constrained")
    FigureCanvasAgg(figure)
    for places, row in zip(figure.subplots(len(rows), COLUMNS, squeeze=False), rows, strict=True):
        for axes, panel in zip_longest(places, row):
            if panel:
                draw(axes, panel)
            else:
                axes.set_axis_off()
    figure.savefig(path, dpi=DOTS)


def rows_of(report: Report) -> list[list[Panel]]:
    """Return what is drawn: two trainings side by side; then, for each beam, bulk beside one sentence at a time."""
    trainings = [
        Panel(f"Training, {size}", "target tokens/s", {each.contender: each.speed for each in same})
        for size, same in grouped(report.training, lambda each: each.size).items()
    ]
    rows = [trainings[first : first + COLUMNS] for first in range(0, len(trainings), COLUMNS)]
    for name, same in grouped(report.decoding, name_of_beam).items():
        speeds = {each.contender: each.speed for each in same}
        waiting = {each.contender: each.latency for each in same}
        bulk = Panel(f"Decoding in bulk, {name}", "sentences/s", speeds)
        rows.append([bulk, Panel(f"One sentence at a time, {name}", "ms, less is better", waiting)])
    return rows


def name_of_beam(result: DecodingResult) -> str:
    """Name what a decoding may be compared with."""
    return f"{result.model}, beam {result.beam}"


def grouped(results: list[Result], key: Callable[[Result], str]) -> dict[str, list[Result]]:
    """Put results with the same key together, in their order."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def draw(axes: Axes, panel: Panel) -> None:
    """Draw one panel, the first contender on top."""
    names, measures = list(panel.bars), list(panel.bars.values())
    medians = [measure.median for measure in measures]
    spread = [
        [measure.median - measure.lowest for measure in measures],
        [measure.highest - measure.median for measure in measures],
    ]
    colours = [COLOURS[name.startswith(OURS)] for name in names]
    axes.barh(names, medians, xerr=spread, color=colours, ecolor="0.3", capsize=3)
    axes.invert_yaxis()
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.unit, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
