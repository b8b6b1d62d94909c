"""Draw attention as lines between two rows of words, one colour per head, as in the paper's figures 3 to 5."""

import warnings
from pathlib import Path

import numpy as np

from dragoman.errors import UserError
from dragoman.figures import Axes, Figure, colormaps, default_style, new_figure
from dragoman.model_config import AttentionKind
from dragoman.viewer.picture import PICTURE_FORMATS, installed_fonts, printable_label, require_attention
from dragoman.viewer.record import AttentionRecord, AttentionWeights
from dragoman.viewer.words import WordSpan, group_words, is_special_piece

_COLOUR_MAP = "tab10"  # one colour per head, repeated after ten
_WORD_INCHES = 0.3  # between words
_ROW_DISTANCE_INCHES = 1.9  # inches between the rows
_LETTER_INCHES = 0.085
_MIN_WEIGHT = 0.01  # smaller weights are not drawn


@default_style()
def save_line_picture(record: AttentionRecord, path: Path | str, heads: str, word: str | None = None) -> None:
    """Draw some heads, as `encoder.5` or `cross.2.1`, to `path`: the lines of all words, or of `word` only."""
    path = Path(path)
    if path.suffix.lower() not in PICTURE_FORMATS:
        raise UserError(f"{path}: the file name must end in {', '.join(PICTURE_FORMATS)}.")
    figure = _line_figure(record, *parse_head_name(record, heads), word)
    with warnings.catch_warnings():
        # Characters that no installed font has are drawn as boxes.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        figure.savefig(path, dpi=200, bbox_inches="tight")


def parse_head_name(record: AttentionRecord, name: str) -> tuple[AttentionKind, int, list[int]]:
    """Return the kind, the layer and the heads, from 0, of a name like `encoder.5` or `cross.2.1`."""
    kind, *parts = name.split(".")
    known: dict[str, AttentionKind] = {known_kind: known_kind for known_kind in record.kinds}
    require_attention(record)
    layers, count = record.weights(known.get(kind, record.kinds[0])).shape[:2]
    numbers = [int(part) if part.isdecimal() else 0 for part in parts]
    fits = 1 <= len(numbers) <= 2 and all(1 <= n <= most for n, most in zip(numbers, (layers, count), strict=False))
    if kind not in known or not fits:
        raise UserError(
            f"Unknown heads {name!r}: expected a kind ({', '.join(known)}), a layer from 1 to {layers} and optionally "
            f"a head from 1 to {count}, for example {record.kinds[0]}.{layers} or {record.kinds[-1]}.1.{count}."
        )
    return known[kind], numbers[0] - 1, [numbers[1] - 1] if len(numbers) == 2 else list(range(count))


def _line_figure(
    record: AttentionRecord, kind: AttentionKind, layer: int, heads: list[int], word: str | None
) -> Figure:
    """Return the figure, with queries above and keys below."""
    above, below = query_and_key_words(record, kind)
    query_indices = [i for i, span in enumerate(above) if word is None or span.label.casefold() == word.casefold()]
    if not query_indices:
        labels = ", ".join(span.label for span in above if not span.special)
        raise UserError(f"Unknown query word {word!r}; available words: {labels}.")
    longest = _LETTER_INCHES * max(len(printable_label(span.label)) for span in above + below)
    width = _WORD_INCHES * max(len(above), len(below)) + 0.4
    figure = new_figure(width, _ROW_DISTANCE_INCHES + 2 * longest + 0.4)
    axes = figure.add_axes((0.0, longest / figure.get_figheight(), 1.0, _ROW_DISTANCE_INCHES / figure.get_figheight()))
    axes.set_axis_off()
    axes.set_xlim(-0.7, max(len(above), len(below)) - 0.3)
    axes.set_ylim(0, 1)
    for number, head in enumerate(heads):
        weights = word_weights(record.weights(kind)[layer, head], above, below)
        draw_attention_lines(axes, weights, query_indices, colormaps[_COLOUR_MAP](number % 10))
    draw_words(axes, above, 1.03, "bottom", set(query_indices) if word else set())
    draw_words(axes, below, -0.03, "top", set())
    return figure


def query_and_key_words(record: AttentionRecord, kind: AttentionKind) -> tuple[list[WordSpan], list[WordSpan]]:
    """Return the query words and the key words of a kind."""
    source = group_words(record.source_text, record.source_pieces, record.source_spans)
    target = group_words(record.target_text, record.target_pieces, record.target_spans)
    if kind == "encoder":
        return source, source
    if kind == "cross":
        return target, source
    prefix_words = [WordSpan(span.label, span.first + 1, span.end + 1) for span in target if not span.special]
    return target, [WordSpan(record.prefix_pieces[0], 0, 1, is_special_piece(record.prefix_pieces[0])), *prefix_words]


def word_weights(weights: AttentionWeights, queries: list[WordSpan], keys: list[WordSpan]) -> AttentionWeights:
    """Return weights between words: the mean over the pieces of a query, the sum over the pieces of a key."""
    rows = np.stack([weights[span.first : span.end].mean(0) for span in queries])
    return np.stack([rows[:, span.first : span.end].sum(1) for span in keys], axis=1)


def draw_attention_lines(axes: Axes, weights: AttentionWeights, rows: list[int], colour: tuple[float, ...]) -> None:
    """Draw the lines of one head, wider for larger weights."""
    for row in rows:
        for column in np.flatnonzero(weights[row] >= _MIN_WEIGHT).tolist():
            strength = float(weights[row, column])
            axes.plot(
                [row, column], [1, 0], color=colour, alpha=min(1.0, strength**0.7), linewidth=0.4 + 2.4 * strength
            )


def draw_words(axes: Axes, words: list[WordSpan], height: float, edge: str, bold: set[int]) -> None:
    """Draw words vertically along one side."""
    for x, span in enumerate(words):
        axes.text(
            x,
            height,
            printable_label(span.label.strip()),
            rotation=90,
            ha="center",
            va=edge,
            fontsize=9,
            family=installed_fonts(),
            parse_math=False,
            color="0.5" if span.special else "black",
            fontweight="bold" if x in bold else "normal",
        )
