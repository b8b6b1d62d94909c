"""One output that was searched for, drawn or scored, and what the three have in common."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.recipe import Decoding
from dragoman.tokens import END, PAD, START


@dataclass(frozen=True)
class Hypothesis:
    """One output of a model for one source."""

    tokens: tuple[int, ...]  # without START and END
    score: float  # the log-probability divided by the length penalty: what hypotheses are ranked by
    log_probability: float
    truncated: bool  # stopped at its longest length, without END


EMPTY = Hypothesis((), score=0.0, log_probability=0.0, truncated=False)
FAILED = Hypothesis((), score=-torch.inf, log_probability=-torch.inf, truncated=True)  # of a model that gives only NaN


def longest_outputs(source: Tensor, how: Decoding) -> Tensor:
    """Return for each sentence (B) how many tokens it may produce, END included."""
    return (source != PAD).sum(dim=1) - 1 + how.extra_length  # the source's END is not counted


def log_probabilities(logits: Tensor, *, first: bool) -> Tensor:
    """Return log-probabilities (… V) in which PAD and START can never be chosen, nor END as the first token.

    Training shows no empty target, but a long sentence can be so improbable in every wording that silence scores best.
    """
    values = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    # Masked only now: the normaliser is that of training and of `score`, and `exp` is slow on very small numbers.
    values[..., PAD] = -torch.inf
    values[..., START] = -torch.inf
    if first:
        values[..., END] = -torch.inf
    return values


def sum_type(device: torch.device) -> torch.dtype:
    """Return the type to add log-probabilities in: dozens of float32 roundings would show in a score."""
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's processors have no float64


def produced_tokens(row: list[int]) -> tuple[int, ...]:
    """Return what a row holds between START and END (or PAD, or the end of the row)."""
    stop = next((place for place, token in enumerate(row) if token in (END, PAD)), len(row))
    return tuple(row[1:stop])
