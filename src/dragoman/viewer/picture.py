"""Draw a record as one picture: every head of every layer, for all kinds of attention."""

import math
import warnings
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from dragoman.errors import UserError
from dragoman.figures import Axes, AxesImage, Figure, PowerNorm, default_style, font_names, new_figure
from dragoman.model_config import AttentionKind
from dragoman.viewer.record import AttentionRecord, AttentionWeights

_KIND_TITLES: dict[AttentionKind, str] = {
    "encoder": "Encoder self-attention: source tokens (rows) attend to the source (columns)",
    "decoder": "Decoder self-attention: output tokens (rows) attend to the decoder's input (columns)",
    "cross": "Cross-attention: output tokens (rows) attend to the source (columns)",
}
PICTURE_FORMATS = (".png", ".svg", ".pdf")
_CELL_INCHES = 0.15  # fits a piece in the font below
_FONT_POINTS = 7  # points
_LETTER_INCHES = 0.075  # maximum width of a letter
_MAX_LABEL_LETTERS = 14  # of a piece
_HEADING_INCHES = 0.55  # above the matrices
_MIN_WIDTH_INCHES = 7.0  # fits the titles of the kinds
_RIGHT_MARGIN_INCHES = 0.8  # for the names of layers and the colour bar
_GAP_CELLS = 1  # between matrices
_DOTS_PER_INCH = 150  # an inch
_MAX_PIXELS = 25_000_000  # larger PNGs are drawn at a lower resolution
_MAX_SIDE_PIXELS = 60_000

# The first covers Latin, Greek and Cyrillic; the others are used if installed.
_PREFERRED_FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK JP",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Arial Unicode MS",
)


@default_style()
def save_attention_picture(record: AttentionRecord, path: Path | str) -> None:
    """Draw `record` to `path`, as PNG, SVG or PDF depending on its suffix."""
    path = Path(path)
    if path.suffix.lower() not in PICTURE_FORMATS:
        raise UserError(f"{path}: the file name must end in {', '.join(PICTURE_FORMATS)}.")
    figure = _attention_figure(record)
    width, height = figure.get_size_inches()
    dots = min(_DOTS_PER_INCH, math.sqrt(_MAX_PIXELS / (width * height)), _MAX_SIDE_PIXELS / max(width, height))
    with warnings.catch_warnings():
        # Characters that no installed font has are drawn as boxes.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        figure.savefig(path, dpi=dots)


def require_attention(record: AttentionRecord) -> None:
    """Raise a UserError if the model has no attention."""
    if not record.kinds:
        raise UserError(f"{record.title or 'This model'} has no attention weights, so there is nothing to draw.")


def _attention_figure(record: AttentionRecord) -> Figure:
    """Return a figure with the kinds below each other."""
    require_attention(record)
    sizes = [_matrices_size(record.weights(kind)) for kind in record.kinds]
    margin = 0.2 + _LETTER_INCHES * min(
        _MAX_LABEL_LETTERS, max(map(len, record.source_pieces + record.prefix_pieces + record.target_pieces))
    )
    width = max(margin + max(width for width, _ in sizes) + _RIGHT_MARGIN_INCHES, _MIN_WIDTH_INCHES)
    height = _HEADING_INCHES + sum(_HEADING_INCHES + height + margin for _, height in sizes)
    figure = new_figure(width, height)
    title = printable_label(record.title, max_length=80)
    figure.text(
        margin / width, 1 - 0.3 / height, title, fontsize=_FONT_POINTS + 4, family=installed_fonts(), parse_math=False
    )
    top = height - _HEADING_INCHES
    for kind, (wide, high) in zip(record.kinds, sizes, strict=True):
        bottom = top - _HEADING_INCHES - high
        axes = figure.add_axes((margin / width, bottom / height, wide / width, high / height))
        image = _draw_matrices(axes, record, kind)
        top = bottom - margin
    beside = figure.add_axes((1 - 0.45 / width, 1 - (2 * _HEADING_INCHES + 1.5) / height, 0.1 / width, 1.5 / height))
    _draw_colour_bar(figure, beside, image)
    return figure


def _matrices_size(weights: AttentionWeights) -> tuple[float, float]:
    """Return the width and height, in inches, of all matrices of one kind."""
    layers, heads, rows, columns = weights.shape
    return (heads * (columns + _GAP_CELLS) - _GAP_CELLS) * _CELL_INCHES, (
        layers * (rows + _GAP_CELLS) - _GAP_CELLS
    ) * _CELL_INCHES


def _draw_matrices(axes: Axes, record: AttentionRecord, kind: AttentionKind) -> AxesImage:
    """Draw the matrices of one kind, one row per layer, with the pieces at the left and below."""
    weights = record.weights(kind)
    layers, heads, rows, columns = weights.shape
    image = axes.imshow(
        tile_matrices(weights), cmap="Blues", norm=PowerNorm(0.5, 0, 1), aspect="auto", interpolation="none"
    )
    axes.set_axis_off()
    _draw_labels(axes, "below", _tile_positions(heads, columns), record.column_labels(kind) * heads)
    _draw_labels(axes, "left", _tile_positions(layers, rows), record.row_labels(kind) * layers)
    for layer in range(layers):
        for head in range(heads):
            _draw_frame(axes, head * (columns + _GAP_CELLS), layer * (rows + _GAP_CELLS), columns, rows)
    _draw_headings(axes, kind, weights)
    return image


def tile_matrices(weights: AttentionWeights) -> AttentionWeights:
    """Tile all matrices into one, with gaps of NaN, which stay white."""
    layers, heads, rows, columns = weights.shape
    padded = np.pad(weights, ((0, 0), (0, 0), (0, _GAP_CELLS), (0, _GAP_CELLS)), constant_values=np.nan)
    sheet = padded.transpose(0, 2, 1, 3).reshape(layers * (rows + _GAP_CELLS), heads * (columns + _GAP_CELLS))
    return sheet[: -_GAP_CELLS or None, : -_GAP_CELLS or None]


def _tile_positions(matrices: int, pieces: int) -> list[int]:
    """Return the positions of the pieces of each matrix in the tiled matrix."""
    return [matrix * (pieces + _GAP_CELLS) + piece for matrix in range(matrices) for piece in range(pieces)]


def _draw_labels(axes: Axes, side: Literal["left", "below"], positions: list[int], pieces: tuple[str, ...]) -> None:
    """Draw the pieces along one side."""
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    for position, piece in zip(positions, pieces, strict=True):
        # Texts are drawn much faster than tick labels. parse_math=False keeps a piece like "$x$" as text.
        x, y = (left - 0.3, position) if side == "left" else (position, bottom + 0.3)
        alignment = {"ha": "right", "va": "center"} if side == "left" else {"ha": "center", "va": "top", "rotation": 90}
        axes.text(
            x,
            y,
            printable_label(piece.replace(" ", "▁")),
            fontsize=_FONT_POINTS,
            family=installed_fonts(),
            parse_math=False,
            **alignment,
        )


def printable_label(text: str, max_length: int = _MAX_LABEL_LETTERS) -> str:
    """Return `text` for drawing: unprintable characters replaced, and truncated to `max_length`."""
    printable = "".join(letter if letter.isprintable() else "�" for letter in text)
    return printable if len(printable) <= max_length else printable[: max_length - 1] + "…"


def _draw_frame(axes: Axes, left: int, top: int, columns: int, rows: int) -> None:
    """Draw a frame around one matrix."""
    corners_x = [left - 0.5, left + columns - 0.5, left + columns - 0.5, left - 0.5, left - 0.5]
    corners_y = [top - 0.5, top - 0.5, top + rows - 0.5, top + rows - 0.5, top - 0.5]
    axes.plot(corners_x, corners_y, color="0.75", linewidth=0.6, clip_on=False)


def _draw_headings(axes: Axes, kind: AttentionKind, weights: AttentionWeights) -> None:
    """Draw the kind and the heads above the matrices, and the layers at the right."""
    layers, heads, rows, columns = weights.shape
    axes.text(-0.5, -2.3, _KIND_TITLES[kind], fontsize=_FONT_POINTS + 2, va="bottom")
    for head in range(heads):
        middle = head * (columns + _GAP_CELLS) + (columns - 1) / 2
        axes.text(middle, -1, f"head {head + 1}", fontsize=_FONT_POINTS, color="0.35", ha="center", va="bottom")
    for layer in range(layers):
        middle = layer * (rows + _GAP_CELLS) + (rows - 1) / 2
        right = heads * (columns + _GAP_CELLS) - _GAP_CELLS
        axes.text(right, middle, f"layer {layer + 1}", fontsize=_FONT_POINTS, color="0.35", rotation=270, va="center")


def _draw_colour_bar(figure: Figure, axes: Axes, image: AxesImage) -> None:
    """Draw the colour bar. The scale is the square root of the weight, which keeps small weights visible."""
    bar = figure.colorbar(image, cax=axes, ticks=[0, 0.1, 0.25, 0.5, 1])
    bar.ax.set_yticklabels(["0", "0.1", "0.25", "0.5", "1"], fontsize=_FONT_POINTS)
    bar.outline.set_visible(False)


@cache
def installed_fonts() -> list[str]:
    """Return the preferred fonts that are installed, in order."""
    installed = set(font_names())
    return [font for font in _PREFERRED_FONTS if font in installed]
