"""Matplotlib helpers of the laboratory: font sizes, colours that everybody can tell apart, labelled axes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dragoman.figures import Axes, Figure, new_figure
from dragoman.report import ReportPicture

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c5f66", "#b3a100")  # Okabe and Ito
DPI = 120
_MARKERS = "osD^vP*X"
_FIGURE_WIDTH = 8.4  # inches; at 800 pixels the smallest letters are ten pixels high

Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # x and y values by name


def subplots(
    columns: int = 1, rows: int = 1, *, width: float = _FIGURE_WIDTH, height: float = 4.4
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure and its axes, row by row; `width` is that of the figure, `height` that of one row."""
    figure = new_figure(width, rows * height, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save_picture(figure: Figure, path: Path, caption: str, *, tight: bool = False) -> ReportPicture:
    """Write a figure into a file of the report's folder; `tight` fits its size to what is drawn."""
    figure.savefig(path, dpi=DPI, bbox_inches="tight" if tight else None)
    return ReportPicture(path.name, caption)


def line_picture(
    path: Path, caption: str, panels: Mapping[str, Lines], *, x_label: str, y_label: str, height: float,
    markers: bool = True, bottom: float | None = None,
) -> ReportPicture:  # fmt: skip
    """Draw lines in panels side by side, each under its title, and save the picture."""
    figure, axes = subplots(len(panels), height=height)
    for panel, (title, lines) in zip(axes, panels.items(), strict=True):
        draw_lines(panel, lines, title=title, x_label=x_label, y_label=y_label, markers=markers)
        panel.set_ylim(bottom=bottom)
    return save_picture(figure, path, caption)


def draw_lines(
    axes: Axes, lines: Lines, *, title: str = "", x_label: str, y_label: str, markers: bool = True, legend: bool = True
) -> None:
    """Draw named lines, with a legend if there are several."""
    for number, (name, (x, y)) in enumerate(lines.items()):
        marker = _MARKERS[number % len(_MARKERS)] if markers else ""
        style = "-" if number < len(COLOURS) else "--"
        axes.plot(x, y, style, color=COLOURS[number % len(COLOURS)], marker=marker, markersize=4, label=name)
    label_axes(axes, title=title, x_label=x_label, y_label=y_label)
    if legend and len(lines) > 1:
        axes.legend(fontsize=8)


def add_shared_legend(figure: Figure, axes: Axes) -> None:
    """Add the legend of one panel below the figure, for all panels."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)


def label_axes(axes: Axes, *, title: str = "", x_label: str = "", y_label: str = "") -> None:
    """Set title, labels and grid."""
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)


def draw_heat_map(
    axes: Axes, grid: Sequence[Sequence[float]], maximum: float, *, title: str = "", columns: Sequence[str],
    rows: Sequence[str], x_label: str = "", y_label: str = "",
) -> object:  # fmt: skip
    """Draw a grid of numbers from 0 to `maximum` with the value in each cell; return the image for `add_colorbar`."""
    image = axes.imshow(grid, vmin=0, vmax=maximum or 1, cmap="viridis", aspect="auto")
    for row, values in enumerate(grid):
        for column, value in enumerate(values):
            colour = "white" if value < 0.6 * maximum else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    label_axes(axes, title=title, x_label=x_label, y_label=y_label)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.grid(visible=False)
    return image


def add_colorbar(figure: Figure, image: object, axes: Sequence[Axes], label: str) -> None:
    """Add a labelled colour bar."""
    colorbar = figure.colorbar(image, ax=list(axes), shrink=0.8)  # type: ignore[arg-type]
    colorbar.set_label(label, fontsize=8)
    colorbar.ax.tick_params(labelsize=7)
