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

from dragoman.lab.plots import COLOURS, DPI, add_colorbar, label_axes, save_figure, subplots, write_cell_values
from dragoman.viewer.line_picture import draw_attention_lines, draw_words
from dragoman.viewer.record import END_PIECE, START_PIECE, AttentionKind, AttentionWeights
from dragoman.viewer.words import WordSpan

_WORD_WIDTH, _LETTER_WIDTH, _LINES_HEIGHT = 0.34, 0.085, 1.5  # inches


@dataclass(frozen=True)
class HeadLinesPanel:
    """One drawing of lines: some heads over one sentence, for all words that look or a few of them."""

    title: str
    query_words: tuple[str, ...]
    key_words: tuple[str, ...]
    head_weights: Mapping[str, AttentionWeights]  # by name: R C, the last column for START or END
    kind: AttentionKind
    selected_queries: frozenset[int] = frozenset()  # none: all of them


def draw_line_figure(line_panels: Sequence[HeadLinesPanel], path: Path) -> str:
    """Draw panels under one another and return the name of the file."""
    width = max(_WORD_WIDTH * (1 + max(len(each.query_words), len(each.key_words))) + 0.6 for each in line_panels)
    letters = [
        _LETTER_WIDTH * max(len(word) for word in (*each.query_words, *each.key_words, END_PIECE))
        for each in line_panels
    ]
    heights = [_LINES_HEIGHT + 2 * height + 0.8 for height in letters]
    figure, axes = subplots(rows=len(line_panels), width=max(width, 5.0), height=sum(heights) / len(heights))
    for each, place, height in zip(line_panels, axes, letters, strict=True):
        _draw_panel(place, each)
        place.set_title(each.title, fontsize=9, pad=72 * height + 8)
    figure.savefig(path, dpi=DPI, bbox_inches="tight")
    return path.name


def _draw_panel(axes: Axes, panel: HeadLinesPanel) -> None:
    """Draw the lines of one panel, its words, and which colour is which head."""
    special = START_PIECE if panel.kind == "decoder" else END_PIECE
    below = [
        *(WordSpan(name, i, i + 1) for i, name in enumerate(panel.key_words)),
        WordSpan(special, 0, 1, special=True),
    ]
    turn = 1 if panel.kind == "decoder" else 0  # START is read first
    below = below[-1:] + below[:-1] if turn else below
    looking = sorted(panel.selected_queries) or list(range(len(panel.query_words)))
    for number, weights in enumerate(panel.head_weights.values()):
        draw_attention_lines(axes, np.roll(weights, turn, axis=-1), looking, to_rgba(COLOURS[number % len(COLOURS)]))
    axes.set_axis_off()
    axes.set_xlim(-0.7, max(len(panel.query_words), len(below)) - 0.3)
    axes.set_ylim(0, 1)
    draw_words(axes, [WordSpan(name, 0, 1) for name in panel.query_words], 1.03, "bottom", set(panel.selected_queries))
    draw_words(axes, below, -0.03, "top", set())
    handles = [Line2D([], [], color=COLOURS[i % len(COLOURS)], label=name) for i, name in enumerate(panel.head_weights)]
    axes.legend(handles=handles, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


_KIND_COLOURS: dict[AttentionKind, str] = {"encoder": COLOURS[0], "decoder": COLOURS[1], "cross": COLOURS[2]}


def draw_ablation_losses(costs: Mapping[str, float], noise: float, path: Path) -> str:
    """Draw the BLEU that each head is worth, the most first; names begin with the kind."""
    figure, (axes,) = subplots(height=max(2.4, 0.24 * len(costs) + 1.0))
    names = list(costs)
    colours = [next(colour for kind, colour in _KIND_COLOURS.items() if name.startswith(kind)) for name in names]
    axes.barh(range(len(names)), [costs[name] for name in names], color=colours)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvspan(-noise, noise, color="0.5", alpha=0.15, linewidth=0, zorder=0)
    label_axes(axes, title="What the model loses without a head", x_label="BLEU lost without the head", y_label="")
    shown = [Patch(color=colour, label=kind) for kind, colour in _KIND_COLOURS.items()]
    grey = Patch(color="0.5", alpha=0.15, label="no more than chance")
    axes.legend(handles=[*shown, *([grey] if noise else [])], fontsize=8, loc="lower right")
    return save_figure(figure, path)


def draw_head_grids(
    grids: Mapping[str, Sequence[Sequence[float]]], path: Path, *, colorbar_label: str, title: str = ""
) -> str:
    """Draw a number of every head as maps of layers and heads side by side, and return the name of the file."""
    columns = min(3, len(grids))
    figure, axes = subplots(columns, -(-len(grids) // columns), height=0.5 + 0.45 * _max_layers(grids) + 0.9)
    most = max(value for grid in grids.values() for row in grid for value in row)
    for place, (name, grid) in zip(axes, grids.items(), strict=False):
        image = place.imshow(grid, vmin=0, vmax=most or 1, cmap="viridis", aspect="auto")
        write_cell_values(place, grid, most)
        label_axes(place, title=name, x_label="head", y_label="layer")
        place.set_xticks(range(len(grid[0])), [str(head + 1) for head in range(len(grid[0]))])
        place.set_yticks(range(len(grid)), [str(layer + 1) for layer in range(len(grid))])
        place.grid(visible=False)
    for place in axes[len(grids) :]:
        place.set_axis_off()
    add_colorbar(figure, image, axes, colorbar_label)
    figure.suptitle(title, fontsize=11)
    return save_figure(figure, path)


def _max_layers(grids: Mapping[str, Sequence[Sequence[float]]]) -> int:
    """Return the rows of the largest map."""
    return max(len(grid) for grid in grids.values())
