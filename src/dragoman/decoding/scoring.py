"""Scores of given outputs: the length penalty, scores equal to those of `beam_search`, and losses of long texts.

A text that is longer than the context window of a language model is read in overlapping windows. Every token is
predicted once, in the window with the most context before it; only the first window predicts all of its tokens.

Shapes: B batch or windows, T target positions, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from dragoman.decoding.hypothesis import Hypothesis, output_tokens, sum_dtype
from dragoman.models.transducer import Source, Transducer
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START, token_mask

_NumberOrTensor = TypeVar("_NumberOrTensor", float, Tensor)


def length_penalty(produced: _NumberOrTensor, alpha: float) -> _NumberOrTensor:
    """Return ((5 + n) / 6)^α for n produced tokens, END included (section 6.1; Wu et al. 2016, equation 14)."""
    penalty: _NumberOrTensor = ((5 + produced) / 6) ** alpha
    return penalty


def score_targets(model: Transducer, source: Source, target: Tensor, config: DecodingConfig) -> list[Hypothesis]:
    """Return the scores of targets (B T, padded with PAD); one without END is truncated."""
    prefix = torch.cat([torch.full_like(target[:, :1], START), target], dim=1)
    logits = model.decode(prefix[:, :-1], model.encode(source))  # B T V
    sums = token_log_probabilities(logits, target).to(sum_dtype(target.device)).sum(dim=1)
    scores = sums / length_penalty(token_mask(target).sum(dim=1).to(sums.dtype), config.length_penalty)
    truncated = ~(target == END).any(dim=1)
    rows = (prefix.tolist(), scores.tolist(), sums.tolist(), truncated.tolist())
    return [Hypothesis(output_tokens(tokens), *numbers) for tokens, *numbers in zip(*rows, strict=True)]


def token_log_probabilities(logits: Tensor, target: Tensor) -> Tensor:
    """Return the log-probability of each token of `target` (B T); zero at PAD."""
    losses = F.cross_entropy(
        logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32)),
        target.flatten(),
        ignore_index=PAD,
        reduction="none",
    )
    return -losses.view_as(target)


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
    result = np.empty(len(text), dtype=np.float64)
    starts = list(range(0, max(1, len(text) - window + window_stride(window)), window_stride(window)))
    batch_size = max(1, _BATCH_TOKENS // window)
    for batch in (starts[first : first + batch_size] for first in range(0, len(starts), batch_size)):
        losses = _window_losses(model, [text[start : start + window] for start in batch], device)
        for start, row in zip(batch, losses, strict=True):
            overlap = window - window_stride(window) if start else 0  # predicted by the previous window
            end = min(start + window, len(text))
            result[start + overlap : end] = row[overlap : end - start]
            if progress:
                progress(end - start - overlap)
    return result


def window_stride(window: int) -> int:
    """Return the distance between consecutive windows: half a window."""
    return max(1, window // 2)


def _window_losses(model: Transducer, rows: list[_TokenIdArray], device: torch.device) -> npt.NDArray[np.float64]:
    """Return minus the log-probabilities (B T) of rows of tokens, each preceded by START."""
    target = torch.full((len(rows), max(map(len, rows))), PAD, dtype=torch.long, device=device)
    for index, row in enumerate(rows):
        target[index, : len(row)] = torch.from_numpy(row).to(device)
    prefix = torch.cat([torch.full_like(target[:, :1], START), target[:, :-1]], dim=1)
    memory = model.encode(Source.from_ids(target[:, :0]))  # there is no source
    logits = model.decode(prefix, memory)  # B T V
    return -token_log_probabilities(logits, target).double().cpu().numpy()
