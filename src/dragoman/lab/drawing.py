"""How the pictures of the laboratory look: letters, colours that everybody can tell apart, labelled axes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c5f66", "#b3a100")  # Okabe and Ito
MARKERS = "osD^vP*X"
DOTS = 120  # an inch


def panels(columns: int = 1, rows: int = 1, *, width: float = 7.0, height: float = 4.4) -> tuple[Figure, list[Axes]]:
    """Return an empty picture of some panels, row by row; the sizes are those of one panel in inches."""
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def draw_lines(
    axes: Axes,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    title: str = "",
    across: str,
    up: str,
    markers: bool = True,
) -> None:
    """Draw named lines, each given as what goes across and what goes up."""
    for number, (name, (x, y)) in enumerate(lines.items()):
        marker = MARKERS[number % len(MARKERS)] if markers else ""
        style = "-" if number < len(COLOURS) else "--"
        axes.plot(x, y, style, color=COLOURS[number % len(COLOURS)], marker=marker, markersize=4, label=name)
    label(axes, title=title, across=across, up=up)
    if len(lines) > 1:
        axes.legend(fontsize=8)


def label(axes: Axes, *, title: str = "", across: str, up: str) -> None:
    """Write what the axes mean."""
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel(up, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)


def save(figure: Figure, path: Path) -> str:
    """Write a picture and return the name of its file."""
    figure.savefig(path, dpi=DOTS)
    return path.name
