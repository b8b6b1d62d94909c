"""A record as one picture for a paper or a slide: every head of every layer, for all kinds of attention there are."""

import math
import warnings
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names
from matplotlib.image import AxesImage

from dragoman.errors import UserError
from dragoman.viewer.record import AttentionRecord, Kind, Weights

NAMES: dict[Kind, str] = {
    "encoder": "Encoder self-attention: a source piece (row) looks at the source (columns)",
    "decoder": "Decoder self-attention: the step that wrote a piece (row) looks at what it had read (columns)",
    "cross": "Cross-attention: the step that wrote a piece (row) looks at the source (columns)",
}
FORMATS = (".png", ".svg", ".pdf")
CELL = 0.15  # inches: a row of pieces in the font below
FONT = 7  # points
LETTER = 0.075  # inches: what a letter of that font takes at most
LONGEST = 14  # letters of a piece that are written
HEADING = 0.55  # inches above the matrices, for the names
NARROWEST = 7.0  # inches: what the names of the kinds take
SCALE = 0.8  # inches at the right, for the layers' names and the scale of colours
GAP = 1  # cells between matrices
DOTS = 150  # an inch
MOST_PIXELS = 25_000_000  # a PNG above this, or this long, is drawn coarser rather than not at all
LONGEST_SIDE = 60_000

# The first has Latin, Greek and Cyrillic letters; the others are taken where they are installed.
FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK JP",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Arial Unicode MS",
)


def picture(record: AttentionRecord, path: Path | str) -> None:
    """Draw `record` into `path`, as PNG, SVG or PDF by its ending."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"{path} does not say which picture it should be; let it end in {', '.join(FORMATS)}.")
    figure = draw(record)
    width, height = figure.get_size_inches()
    dots = min(DOTS, math.sqrt(MOST_PIXELS / (width * height)), LONGEST_SIDE / max(width, height))
    with warnings.catch_warnings():
        # A character that no installed font has is drawn as a box, which says enough.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        figure.savefig(path, dpi=dots)


def refuse_nothing(record: AttentionRecord) -> None:
    """Object to a model that attends to nothing."""
    if not record.kinds:
        raise UserError(f"{record.title or 'This model'} is of an architecture without attention: nothing to draw.")


def draw(record: AttentionRecord) -> Figure:
    """Return a figure with the kinds under one another."""
    refuse_nothing(record)
    sizes = [block_size(record.weights(kind)) for kind in record.kinds]
    margin = 0.2 + LETTER * min(
        LONGEST, max(map(len, record.source_pieces + record.prefix_pieces + record.target_pieces))
    )
    width = max(margin + max(width for width, _ in sizes) + SCALE, NARROWEST)
    height = HEADING + sum(HEADING + height + margin for _, height in sizes)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    title = plain(record.title, most=80)
    figure.text(margin / width, 1 - 0.3 / height, title, fontsize=FONT + 4, family=fonts(), parse_math=False)
    top = height - HEADING
    for kind, (wide, high) in zip(record.kinds, sizes, strict=True):
        bottom = top - HEADING - high
        axes = figure.add_axes((margin / width, bottom / height, wide / width, high / height))
        image = draw_kind(axes, record, kind)
        top = bottom - margin
    beside = figure.add_axes((1 - 0.45 / width, 1 - (2 * HEADING + 1.5) / height, 0.1 / width, 1.5 / height))
    draw_scale(figure, beside, image)
    return figure


def block_size(weights: Weights) -> tuple[float, float]:
    """Return the width and height, in inches, of all matrices of one kind side by side and under one another."""
    layers, heads, rows, columns = weights.shape
    return (heads * (columns + GAP) - GAP) * CELL, (layers * (rows + GAP) - GAP) * CELL


def draw_kind(axes: Axes, record: AttentionRecord, kind: Kind) -> AxesImage:
    """Draw the matrices of one kind, a row of heads a layer, with the pieces at the left and below."""
    weights = record.weights(kind)
    layers, heads, rows, columns = weights.shape
    image = axes.imshow(mosaic(weights), cmap="Blues", norm=PowerNorm(0.5, 0, 1), aspect="auto", interpolation="none")
    axes.set_axis_off()
    label(axes, "below", positions(heads, columns), record.columns(kind) * heads)
    label(axes, "left", positions(layers, rows), record.rows(kind) * layers)
    for layer in range(layers):
        for head in range(heads):
            frame(axes, head * (columns + GAP), layer * (rows + GAP), columns, rows)
    name_sides(axes, kind, weights)
    return image


def mosaic(weights: Weights) -> Weights:
    """Lay all matrices out on one sheet, with gaps that are not a number and so stay white."""
    layers, heads, rows, columns = weights.shape
    padded = np.pad(weights, ((0, 0), (0, 0), (0, GAP), (0, GAP)), constant_values=np.nan)
    sheet = padded.transpose(0, 2, 1, 3).reshape(layers * (rows + GAP), heads * (columns + GAP))
    return sheet[: -GAP or None, : -GAP or None]


def positions(matrices: int, pieces: int) -> list[int]:
    """Return where the pieces of each matrix stand on the sheet."""
    return [matrix * (pieces + GAP) + piece for matrix in range(matrices) for piece in range(pieces)]


def label(axes: Axes, side: Literal["left", "below"], places: list[int], pieces: tuple[str, ...]) -> None:
    """Write the pieces along one side."""
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    for place, piece in zip(places, pieces, strict=True):
        # Plain texts are drawn much faster than the labels of ticks. Without parse_math=False a piece like
        # "$x$" would be read as a formula.
        x, y = (left - 0.3, place) if side == "left" else (place, bottom + 0.3)
        turned = {"ha": "right", "va": "center"} if side == "left" else {"ha": "center", "va": "top", "rotation": 90}
        axes.text(x, y, plain(piece.replace(" ", "▁")), fontsize=FONT, family=fonts(), parse_math=False, **turned)


def plain(text: str, most: int = LONGEST) -> str:
    """Return `text` fit for drawing: nothing unprintable, nothing too long."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def frame(axes: Axes, left: int, top: int, columns: int, rows: int) -> None:
    """Draw a thin line around one matrix."""
    corners_x = [left - 0.5, left + columns - 0.5, left + columns - 0.5, left - 0.5, left - 0.5]
    corners_y = [top - 0.5, top - 0.5, top + rows - 0.5, top + rows - 0.5, top - 0.5]
    axes.plot(corners_x, corners_y, color="0.75", linewidth=0.6, clip_on=False)


def name_sides(axes: Axes, kind: Kind, weights: Weights) -> None:
    """Write the kind and the heads above the matrices, and the layers at their right."""
    layers, heads, rows, columns = weights.shape
    axes.text(-0.5, -2.3, NAMES[kind], fontsize=FONT + 2, va="bottom")
    for head in range(heads):
        middle = head * (columns + GAP) + (columns - 1) / 2
        axes.text(middle, -1, f"head {head + 1}", fontsize=FONT, color="0.35", ha="center", va="bottom")
    for layer in range(layers):
        middle = layer * (rows + GAP) + (rows - 1) / 2
        right = heads * (columns + GAP) - GAP
        axes.text(right, middle, f"layer {layer + 1}", fontsize=FONT, color="0.35", rotation=270, va="center")


def draw_scale(figure: Figure, axes: Axes, image: AxesImage) -> None:
    """Draw the scale of colours: the root of the weight, which keeps small weights visible."""
    bar = figure.colorbar(image, cax=axes, ticks=[0, 0.1, 0.25, 0.5, 1])
    bar.ax.set_yticklabels(["0", "0.1", "0.25", "0.5", "1"], fontsize=FONT)
    bar.outline.set_visible(False)


@cache
def fonts() -> list[str]:
    """Return the fonts to try for every character, in turn."""
    installed = set(get_font_names())
    return [font for font in FONTS if font in installed]
