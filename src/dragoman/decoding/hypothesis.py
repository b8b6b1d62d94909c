"""Hypotheses, and what search, sampling and scoring share."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman import native
from dragoman.models.transducer import Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START

NO_HYPOTHESIS = -torch.inf  # log-probability or score of an unused slot of the beam


@dataclass(frozen=True)
class Hypothesis:
    """One output of a model for one source."""

    tokens: tuple[int, ...]  # without START and END
    score: float  # log-probability divided by the length penalty; hypotheses are ranked by it
    log_probability: float
    truncated: bool  # cut at the maximum length, without END


EMPTY_HYPOTHESIS = Hypothesis((), score=0.0, log_probability=0.0, truncated=False)
FAILED_HYPOTHESIS = Hypothesis(
    (), score=-torch.inf, log_probability=-torch.inf, truncated=True
)  # of a model whose logits are all NaN


def max_output_lengths(source: Source, config: DecodingConfig) -> Tensor:
    """Return the maximum number of output tokens of each sentence (B), END included."""
    return source.positions - 1 + config.extra_length  # the END of a text is not counted


def output_log_probabilities(logits: Tensor, *, first: bool) -> Tensor:
    """Return log-probabilities (… V) with PAD and START, and END as the first token, ruled out.

    There is no empty target in training, but every wording of a long sentence can be less probable than no output.
    """
    values = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    # Masked after the softmax: the normaliser is that of training, and `exp` is slow on very small numbers.
    values[..., PAD] = -torch.inf
    values[..., START] = -torch.inf
    if first:
        values[..., END] = -torch.inf
    return values


def top_tokens(logits: Tensor, count: int, *, first: bool) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities (… X) of the `count` likeliest allowed tokens, and those tokens."""
    if native.is_supported(logits):
        return native.top_log_probabilities(logits, min(count, logits.shape[-1]), END + 1 if first else END)
    return fast_topk(output_log_probabilities(logits, first=first), count)


def sum_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype for sums of log-probabilities: float32 rounding errors would be visible in a score."""
    return torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64


def output_tokens(row: list[int]) -> tuple[int, ...]:
    """Return the tokens of a row between START and END (or PAD, or the end of the row)."""
    stop = next((index for index, token in enumerate(row) if token in (END, PAD)), len(row))
    return tuple(row[1:stop])


def fast_topk(values: Tensor, count: int, *, group: int = 16) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of the last dimension and their indices, like `topk` but faster.

    The largest values are in the groups with the largest maxima, and finding those reads each value once.
    """
    groups = values.shape[-1] // group
    if groups <= 2 * count:
        return values.topk(min(count, values.shape[-1]))
    grouped = values[..., : group * groups].view(*values.shape[:-1], group, groups)  # … 16 G
    best = grouped.amax(dim=-2).topk(count).indices[..., None, :].expand(*grouped.shape[:-1], count)  # … 16 X
    offsets = torch.arange(0, group * groups, groups, device=values.device)[:, None]
    remainder = torch.arange(group * groups, values.shape[-1], device=values.device)
    candidates = torch.cat([(best + offsets).flatten(-2), remainder.expand(*values.shape[:-1], -1)], dim=-1)
    largest, order = values.gather(-1, candidates).topk(count)
    return largest, candidates.gather(-1, order)
