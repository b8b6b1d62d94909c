"""Pictures of heads: the paper's figures 3 to 5 with sentences of one's own, and what the model loses without a head.

Figures 3 to 5 of the paper stand here as there: the words that look above, those that are looked at below, a line as
strong as the weight, a colour a head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dragoman.lab.drawing import COLOURS, DOTS, bar, label, panels, save, write_numbers
from dragoman.viewer.line_picture import draw_lines, write_words
from dragoman.viewer.record import END_PIECE, START_PIECE, Kind, Weights
from dragoman.viewer.words import Word

WORD, LETTER, BETWEEN = 0.34, 0.085, 1.5  # inches


@dataclass(frozen=True)
class Panel:
    """One drawing of lines: some heads over one sentence, for all words that look or a few of them."""

    title: str
    above: tuple[str, ...]
    below: tuple[str, ...]
    heads: Mapping[str, Weights]  # by name: R C, the last column for START or END
    kind: Kind
    looking: frozenset[int] = frozenset()  # none: all of them


def line_figure(found: Sequence[Panel], path: Path) -> str:
    """Draw panels under one another and return the name of the file."""
    width = max(WORD * (1 + max(len(each.above), len(each.below))) + 0.6 for each in found)
    letters = [LETTER * max(len(word) for word in (*each.above, *each.below, END_PIECE)) for each in found]
    heights = [BETWEEN + 2 * height + 0.8 for height in letters]
    figure, axes = panels(rows=len(found), width=max(width, 5.0), height=sum(heights) / len(heights))
    for each, place, height in zip(found, axes, letters, strict=True):
        draw_panel(place, each)
        place.set_title(each.title, fontsize=9, pad=72 * height + 8)
    figure.savefig(path, dpi=DOTS, bbox_inches="tight")
    return path.name


def draw_panel(axes: Axes, panel: Panel) -> None:
    """Draw the lines of one panel, its words, and which colour is which head."""
    special = START_PIECE if panel.kind == "decoder" else END_PIECE
    below = [*(Word(name, i, i + 1) for i, name in enumerate(panel.below)), Word(special, 0, 1, special=True)]
    turn = 1 if panel.kind == "decoder" else 0  # START is read first
    below = below[-1:] + below[:-1] if turn else below
    looking = sorted(panel.looking) or list(range(len(panel.above)))
    for number, weights in enumerate(panel.heads.values()):
        draw_lines(axes, np.roll(weights, turn, axis=-1), looking, to_rgba(COLOURS[number % len(COLOURS)]))
    axes.set_axis_off()
    axes.set_xlim(-0.7, max(len(panel.above), len(below)) - 0.3)
    axes.set_ylim(0, 1)
    write_words(axes, [Word(name, 0, 1) for name in panel.above], 1.03, "bottom", set(panel.looking))
    write_words(axes, below, -0.03, "top", set())
    handles = [Line2D([], [], color=COLOURS[i % len(COLOURS)], label=name) for i, name in enumerate(panel.heads)]
    axes.legend(handles=handles, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


KIND_COLOURS: dict[Kind, str] = {"encoder": COLOURS[0], "decoder": COLOURS[1], "cross": COLOURS[2]}


def cost_picture(costs: Mapping[str, float], noise: float, path: Path) -> str:
    """Draw the BLEU that each head is worth, the most first; names begin with the kind."""
    figure, (axes,) = panels(height=max(2.4, 0.24 * len(costs) + 1.0))
    names = list(costs)
    colours = [next(colour for kind, colour in KIND_COLOURS.items() if name.startswith(kind)) for name in names]
    axes.barh(range(len(names)), [costs[name] for name in names], color=colours)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvspan(-noise, noise, color="0.5", alpha=0.15, linewidth=0, zorder=0)
    label(axes, title="What the model loses without a head", across="BLEU lost without the head", up="")
    shown = [Patch(color=colour, label=kind) for kind, colour in KIND_COLOURS.items()]
    grey = Patch(color="0.5", alpha=0.15, label="no more than chance")
    axes.legend(handles=[*shown, *([grey] if noise else [])], fontsize=8, loc="lower right")
    return save(figure, path)


def grid_picture(grids: Mapping[str, Sequence[Sequence[float]]], path: Path, *, scale: str, title: str = "") -> str:
    """Draw a number of every head as maps of layers and heads side by side, and return the name of the file."""
    columns = min(3, len(grids))
    figure, axes = panels(columns, -(-len(grids) // columns), height=0.5 + 0.45 * most_layers(grids) + 0.9)
    most = max(value for grid in grids.values() for row in grid for value in row)
    for place, (name, grid) in zip(axes, grids.items(), strict=False):
        image = place.imshow(grid, vmin=0, vmax=most or 1, cmap="viridis", aspect="auto")
        write_numbers(place, grid, most)
        label(place, title=name, across="head", up="layer")
        place.set_xticks(range(len(grid[0])), [str(head + 1) for head in range(len(grid[0]))])
        place.set_yticks(range(len(grid)), [str(layer + 1) for layer in range(len(grid))])
        place.grid(visible=False)
    for place in axes[len(grids) :]:
        place.set_axis_off()
    bar(figure, image, axes, scale)
    figure.suptitle(title, fontsize=11)
    return save(figure, path)


def most_layers(grids: Mapping[str, Sequence[Sequence[float]]]) -> int:
    """Return the rows of the largest map."""
    return max(len(grid) for grid in grids.values())
