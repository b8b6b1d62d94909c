"""The loss of a language model on each token of a text that is longer than its context window.

The text is read in overlapping windows. Every token is predicted once, in the window with the most context before it;
only the first window predicts all of its tokens.

Shapes: B windows, T tokens of a window.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from dragoman.decoding.scoring import token_log_probabilities
from dragoman.models.transducer import Source, Transducer
from dragoman.tokens import PAD, START

_BATCH_TOKENS = 4096

_TokenIdArray = npt.NDArray[np.int64]


@torch.inference_mode()
def token_losses(
    model: Transducer,
    tokens: Sequence[int] | npt.NDArray[np.integer],
    window: int,
    device: torch.device,
    progress: Callable[[int], None] | None = None,
) -> npt.NDArray[np.float64]:
    """Return minus the log-probability of each token, with at least half a window of context after the first half."""
    text = np.asarray(tokens, dtype=np.int64)
    found = np.empty(len(text), dtype=np.float64)
    starts = list(range(0, max(1, len(text) - window + window_stride(window)), window_stride(window)))
    at_once = max(1, _BATCH_TOKENS // window)
    for some in (starts[first : first + at_once] for first in range(0, len(starts), at_once)):
        losses = _window_losses(model, [text[start : start + window] for start in some], device)
        for start, row in zip(some, losses, strict=True):
            seen = window - window_stride(window) if start else 0  # predicted by the previous window
            end = min(start + window, len(text))
            found[start + seen : end] = row[seen : end - start]
            if progress:
                progress(end - start - seen)
    return found


def window_stride(window: int) -> int:
    """Return the distance between consecutive windows: half a window."""
    return max(1, window // 2)


def _window_losses(model: Transducer, rows: list[_TokenIdArray], device: torch.device) -> npt.NDArray[np.float64]:
    """Return minus the log-probabilities (B T) of rows of tokens, each preceded by START."""
    target = torch.full((len(rows), max(map(len, rows))), PAD, dtype=torch.long, device=device)
    for place, row in enumerate(rows):
        target[place, : len(row)] = torch.from_numpy(row).to(device)
    prefix = torch.cat([torch.full_like(target[:, :1], START), target[:, :-1]], dim=1)
    memory = model.encode(Source.from_ids(target[:, :0]))  # there is no source
    logits = model.decode(prefix, memory)  # B T V
    return -token_log_probabilities(logits, target).double().cpu().numpy()
