"""The pictures of table 1: time over length and width, and gradients over the distance."""

from pathlib import Path

from matplotlib.axes import Axes

from dragoman.bench.stats import SampleStats
from dragoman.lab import path_lengths as paths
from dragoman.lab.layer_costs import LAYERS
from dragoman.lab.plots import COLOURS, add_shared_legend, draw_lines, label_axes, save_figure, subplots
from dragoman.report import Json, ReportPicture

LayerTimes = dict[int, dict[str, dict[str, list[float]]]]  # by size, layer and direction: a value a round


def draw_times(folder: Path, lengths: LayerTimes, widths: LayerTimes, width: int) -> ReportPicture:
    """Draw the time of every layer over n and over d."""
    figure, axes = subplots(2, height=4.8)
    for panel, found, across in ((axes[0], lengths, "length n"), (axes[1], widths, "width d")):
        _draw_scaling(panel, found, across)
    add_shared_legend(figure, axes[0], columns=3)
    file = save_figure(figure, folder / "times.png")
    return ReportPicture(
        file,
        f"Time of one layer, forward and backward, over the length (left, d = {width}) and the width (right), both "
        "axes logarithmic: a slope is an exponent. Dotted: slopes 1 and 2.",
    )


def _draw_scaling(axes: Axes, found: LayerTimes, across: str) -> None:
    """Draw one line a layer on logarithmic axes, and the slopes 1 and 2 for comparison."""
    sizes = sorted(found)
    lines = {
        name: (
            [float(size) for size in sizes],
            [1000 * SampleStats.from_values(found[size][name]["both"]).median for size in sizes],
        )
        for name in LAYERS
    }
    draw_lines(axes, lines, x_label=across, y_label="milliseconds, forward and backward", legend=False)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes[::2], [f"{size:,}" for size in sizes[::2]])
    axes.set_yscale("log")
    lowest = min(min(up) for _, up in lines.values())
    for slope in (1, 2):
        axes.plot(sizes, [lowest * (size / sizes[0]) ** slope for size in sizes], ":", color="0.6", linewidth=1)


def draw_paths(folder: Path, travelled: Json) -> ReportPicture:
    """Draw the size of the gradient over the distance it has travelled."""
    figure, axes = subplots(2, height=4.2)
    for panel, depth, title in ((axes[0], "one layer", "one layer"), (axes[1], "deep", f"{paths.STACK_DEPTH} layers")):
        for (kind, found), colour in zip(travelled.items(), COLOURS, strict=False):
            lengths = [value / max(found[depth]) for value in found[depth]]
            reached = [(distance, value) for distance, value in enumerate(lengths) if value > 0]
            panel.plot(*zip(*reached, strict=True), color=colour, label=kind, linewidth=1.4)
        panel.set_yscale("log")
        panel.set_ylim(1e-12, 3)
        label_axes(
            panel, title=title, x_label="distance between output and input, places", y_label="gradient, largest = 1"
        )
    add_shared_legend(figure, axes[0], columns=3)
    file = save_figure(figure, folder / "gradients.png")
    return ReportPicture(
        file,
        "How strongly an output depends on an input so many places away: the length of the gradient in random layers, "
        f"one by itself (left) and {paths.STACK_DEPTH} with residual connections (right). Beyond the end of a "
        "line there is "
        "no path.",
    )
