"""What the head report compares attention over a recording with: where it is silent, and where CTC hears each token."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dragoman.data.silence import find_silence, smooth_levels
from dragoman.decoding.ctc import align
from dragoman.decoding.source import to_source
from dragoman.models.transducer import FRAMES_PER_POSITION
from dragoman.models.transformer import Transformer
from dragoman.viewer.head_statistics import BoolArray

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel

_TOLERANCE = 2  # positions before and after the span of a token, in which attention to it may be


def find_silent_positions(frames: NDArray[Any]) -> BoolArray:
    """Return which positions of the encoder (S) have only silent frames (L F); the level is the mean of the bands."""
    silent = find_silence(smooth_levels(np.asarray(frames, np.float64).mean(axis=1)))
    padding = -len(silent) % FRAMES_PER_POSITION
    positions = np.pad(silent, (0, padding), constant_values=True).reshape(-1, FRAMES_PER_POSITION)
    silent_positions: BoolArray = np.all(positions, axis=1)
    return silent_positions


@torch.inference_mode()
def link_tokens_to_times(model: "SequenceModel", frames: NDArray[Any], tokens: list[int]) -> BoolArray | None:
    """Return where the model's CTC output hears each token (T S), or None if it has none or cannot write the tokens."""
    if not (isinstance(model.model, Transformer) and model.model.ctc is not None):
        return None
    source = to_source(np.asarray(frames, np.float32)[None], np.array([len(frames)]), model.device)
    heard = model.model.ctc_log_probabilities(model.model.encode(source))[0]
    try:
        spans = align(heard, tokens)
    except ValueError:  # more tokens than positions
        return None
    links = np.zeros((len(tokens), len(heard)), dtype=np.bool_)
    for row, (first, end) in zip(links, spans, strict=True):
        row[max(0, first - _TOLERANCE) : end + _TOLERANCE] = True
    return links
