"""The pictures of the memory experiment: how many answers are right, and what the hops look at."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from dragoman.lab.plots import save_figure, subplots
from dragoman.report import Json

_HOP_COLOURS = ("#a6cee3", "#1f78b4", "#08306b")  # hops: the more, the darker, so that grey paper will do
_BASELINE_STYLES = {"usual": ("most frequent answer", "--"), "last mention": ("last mention", ":")}
_BAR_WIDTH, _GROUP_WIDTH = 0.25, 0.8  # of the distance between groups
_LABEL_BOX = {"facecolor": "w", "edgecolor": "none", "pad": 0.5, "alpha": 0.85}  # behind a number that a line may cross
_ROW_HEIGHT = 0.3  # inches: a sentence
_FACT_COLOUR = "#b2182b"  # beside the sentences that are facts, which are also marked by a dot


def draw_accuracy(file: Path, floors: dict[int, Json], best: dict[tuple[int, int], Any]) -> None:
    """Draw a group of bars for each number of facts, a bar a number of hops, and a line for what needs no learning."""
    figure, (axes,) = subplots(height=4.2)
    hops = sorted({hops for _, hops in best})
    for hop, colour in zip(hops, _HOP_COLOURS, strict=False):
        heights = [100 * best[facts, hop]["test"] for facts in floors]
        places = [facts + (hop - (len(hops) + 1) / 2) * _BAR_WIDTH for facts in floors]
        bars = axes.bar(places, heights, 0.92 * _BAR_WIDTH, color=colour, label=f"{hop} hop{'s' * (hop > 1)}")
        axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2, bbox=_LABEL_BOX, zorder=3)
    for name, (label, style) in _BASELINE_STYLES.items():
        for facts, floor in floors.items():
            ends = facts - _GROUP_WIDTH / 2, facts + _GROUP_WIDTH / 2
            axes.hlines(100 * floor[name], *ends, color="0.25", linestyle=style, label=label if facts == 1 else "")
    axes.set_xticks(list(floors), [f"{facts} fact{'s' * (facts > 1)}" for facts in floors])
    axes.set_ylim(0, 108)
    axes.set_ylabel("right answers on the test split (%)", fontsize=9)
    axes.set_xlabel("sentences that a question takes", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=5, fontsize=8, frameon=False)
    save_figure(figure, file)


def draw_hop_weights(file: Path, story: Json, weights: Sequence[Sequence[float]], caption: str) -> None:
    """Draw the sentences as rows and the hops as columns, the facts marked, with the weight in every cell."""
    sentences = story["sentences"]
    figure, (axes,) = subplots(height=1.2 + _ROW_HEIGHT * len(sentences))
    grid = [list(column) for column in zip(*weights, strict=True)]  # sentences, hops
    image = axes.imshow(grid, cmap="Blues", norm=PowerNorm(0.5, 0, 1), aspect="auto", interpolation="none")
    for row, line in enumerate(grid):
        for column, weight in enumerate(line):
            axes.text(
                column, row, f"{weight:.2f}", ha="center", va="center", fontsize=8, color="w" if weight > 0.4 else "k"
            )
    _label_sentences(axes, sentences, story["facts"])
    axes.set_xticks(range(len(weights)), [f"hop {hop}" for hop in range(1, len(weights) + 1)])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=9)
    axes.set_xlabel("\n".join(wrap(caption, 80)) + "\n● a sentence that the answer takes", fontsize=9, loc="right")
    bar = figure.colorbar(image, ax=axes, ticks=[0, 0.1, 0.25, 0.5, 1], label="weight", aspect=30)
    bar.ax.set_yticklabels(["0", "0.1", "0.25", "0.5", "1"], fontsize=8)
    bar.outline.set_visible(False)
    save_figure(figure, file)


def _label_sentences(axes: Axes, sentences: Sequence[str], facts: Sequence[int]) -> None:
    """Write the sentences at the left, the facts among them with a dot and in another colour."""
    marked = [f"{sentence} {'●' if row in facts else '  '}" for row, sentence in enumerate(sentences)]
    axes.set_yticks(range(len(sentences)), marked)
    for row, label in enumerate(axes.get_yticklabels()):
        if row in facts:
            label.set_color(_FACT_COLOUR)
            label.set_fontweight("bold")
    axes.spines[:].set_visible(False)
