"""How the pictures of the laboratory look: letters, colours that everybody can tell apart, labelled axes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c5f66", "#b3a100")  # Okabe and Ito
_MARKERS = "osD^vP*X"
DPI = 120  # an inch
_FIGURE_WIDTH = 8.4  # inches: shown 800 pixels wide, the smallest letters are ten pixels high


def subplots(
    columns: int = 1, rows: int = 1, *, width: float = _FIGURE_WIDTH, height: float = 4.4
) -> tuple[Figure, list[Axes]]:
    """Return an empty picture of some panels, row by row: the width of all together, the height of each, in inches."""
    figure = Figure(figsize=(width, rows * height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def draw_lines(
    axes: Axes,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    title: str = "",
    x_label: str,
    y_label: str,
    markers: bool = True,
    legend: bool = True,
) -> None:
    """Draw named lines, each given as what goes across and what goes up."""
    for number, (name, (x, y)) in enumerate(lines.items()):
        marker = _MARKERS[number % len(_MARKERS)] if markers else ""
        style = "-" if number < len(COLOURS) else "--"
        axes.plot(x, y, style, color=COLOURS[number % len(COLOURS)], marker=marker, markersize=4, label=name)
    label_axes(axes, title=title, x_label=x_label, y_label=y_label)
    if legend and len(lines) > 1:
        axes.legend(fontsize=8)


def add_shared_legend(figure: Figure, axes: Axes, *, columns: int) -> None:
    """Name the lines of all panels once, below them; one panel stands for all."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, fontsize=8)


def label_axes(axes: Axes, *, title: str = "", x_label: str, y_label: str) -> None:
    """Write what the axes mean."""
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)


def write_cell_values(axes: Axes, grid: Sequence[Sequence[float]], maximum: float) -> None:
    """Write every number into its cell, in a colour that is seen there."""
    for row, values in enumerate(grid):
        for column, value in enumerate(values):
            colour = "white" if value < 0.6 * maximum else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)


def add_colorbar(figure: Figure, image: object, axes: Sequence[Axes], label: str) -> None:
    """Add the scale of colours."""
    beside = figure.colorbar(image, ax=list(axes), shrink=0.8)  # type: ignore[arg-type]
    beside.set_label(label, fontsize=8)
    beside.ax.tick_params(labelsize=7)


def save_figure(figure: Figure, path: Path) -> str:
    """Write a picture and return the name of its file."""
    figure.savefig(path, dpi=DPI)
    return path.name
