"""Plot a report: one bar per engine, with error bars from the lowest to the highest value."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from dragoman.bench.decoding import DecodingResult
from dragoman.bench.report import BenchmarkReport
from dragoman.bench.stats import SampleStats
from dragoman.bench.workers import OWN_PREFIX
from dragoman.figures import Axes, default_style, new_figure

_BAR_COLOURS = {True: "#1f6f8b", False: "#c9ccd1"}  # Dragoman, others
_PANEL_WIDTH, _BAR_HEIGHT, _PANEL_MARGIN = 6.5, 0.28, 0.8  # in inches
_COLUMNS = 2
_DPI = 130

_BenchmarkResult = TypeVar("_BenchmarkResult")


@dataclass(frozen=True)
class _BarChart:
    """Engines that are compared with each other."""

    title: str
    unit: str
    bars: dict[str, SampleStats]


@default_style()
def plot_report(report: BenchmarkReport, path: Path) -> None:
    """Plot a report into an image file."""
    rows = chart_rows(report)
    tallest = max(len(panel.bars) for row in rows for panel in row)
    height = len(rows) * (_PANEL_MARGIN + _BAR_HEIGHT * tallest)
    figure = new_figure(_COLUMNS * _PANEL_WIDTH, height, layout="constrained")
    for axes_row, row in zip(figure.subplots(len(rows), _COLUMNS, squeeze=False), rows, strict=True):
        for axes, panel in zip_longest(axes_row, row):
            if panel:
                _draw_bar_chart(axes, panel)
            else:
                axes.set_axis_off()
    figure.savefig(path, dpi=_DPI)


def chart_rows(report: BenchmarkReport) -> list[list[_BarChart]]:
    """Return the charts: two trainings per row; then, per beam, bulk decoding beside single sentences."""
    trainings = [
        _BarChart(f"Training, {size}", "target tokens/s", {result.engine: result.speed for result in same})
        for size, same in _group_by(report.training, lambda result: result.size).items()
    ]
    rows = [trainings[first : first + _COLUMNS] for first in range(0, len(trainings), _COLUMNS)]
    for name, same in _group_by(report.decoding, _comparison_name).items():
        speeds = {result.engine: result.speed for result in same}
        latencies = {result.engine: result.latency for result in same}
        bulk = _BarChart(f"Decoding in bulk, {name}", "sentences/s", speeds)
        rows.append([bulk, _BarChart(f"One sentence at a time, {name}", "ms (lower is better)", latencies)])
    return rows


def _comparison_name(result: DecodingResult) -> str:
    return f"{result.model}, beam {result.beam}"


def _group_by(
    results: list[_BenchmarkResult], key: Callable[[_BenchmarkResult], str]
) -> dict[str, list[_BenchmarkResult]]:
    groups: dict[str, list[_BenchmarkResult]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def _draw_bar_chart(axes: Axes, chart: _BarChart) -> None:
    names, measures = list(chart.bars), list(chart.bars.values())
    medians = [measure.median for measure in measures]
    spread = [
        [measure.median - measure.lowest for measure in measures],
        [measure.highest - measure.median for measure in measures],
    ]
    colours = [_BAR_COLOURS[name.startswith(OWN_PREFIX)] for name in names]
    axes.barh(names, medians, xerr=spread, color=colours, ecolor="0.3", capsize=3)
    axes.invert_yaxis()
    axes.set_title(chart.title, fontsize=10)
    axes.set_xlabel(chart.unit, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
