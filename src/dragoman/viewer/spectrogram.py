"""Draw a recording as a spectrogram, and below it where a model attends for each piece of its transcript."""

from pathlib import Path

import numpy as np

from dragoman.figures import default_style, new_figure
from dragoman.viewer.alignment import best_aligned_weights
from dragoman.viewer.picture import installed_fonts, printable_label
from dragoman.viewer.record import AttentionRecord

_INCHES_PER_SECOND = 1.6
_WIDTH_LIMITS_INCHES = (6.0, 24.0)
_SPECTROGRAM_INCHES = 1.6
_PIECE_INCHES = 0.17
_MARGIN_INCHES = 0.7
_DOTS_PER_INCH = 150


@default_style()
def save_spectrogram(record: AttentionRecord, path: Path | str) -> None:
    """Draw the frames of a record and its cross-attention, mean over the heads of the most aligned layer."""
    assert record.frames is not None, "the source of the record is not a signal"
    frames, seconds = record.frames, record.seconds
    weights, layer = best_aligned_weights(record.cross)  # T S
    pieces = len(record.target_pieces)
    width = float(np.clip(_INCHES_PER_SECOND * seconds, *_WIDTH_LIMITS_INCHES))
    height = _SPECTROGRAM_INCHES + _PIECE_INCHES * pieces + 2 * _MARGIN_INCHES
    figure = new_figure(width, height)
    upper, lower = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [_SPECTROGRAM_INCHES, _PIECE_INCHES * pieces]}
    )
    upper.imshow(frames.T, aspect="auto", origin="lower", extent=(0, seconds, 0, frames.shape[1]), cmap="magma")
    upper.set_ylabel("mel band")
    upper.set_title(printable_label(f"{record.title} → {record.target_text}", max_length=100), parse_math=False)
    lower.imshow(weights, aspect="auto", extent=(0, seconds, pieces, 0), cmap="Blues", vmin=0.0)
    labels = [printable_label(piece, max_length=14) for piece in record.target_pieces]
    lower.set_yticks(np.arange(pieces) + 0.5, labels, family=installed_fonts(), parse_math=False)
    lower.set_xlabel("seconds")
    lower.set_ylabel(f"cross-attention, layer {layer + 1}")
    figure.tight_layout()
    figure.savefig(path, dpi=_DOTS_PER_INCH)
