"""Scores of given outputs: equal to those of `beam_search` for the same tokens."""

import torch
from torch import Tensor
from torch.nn import functional as F

from dragoman.decoding.hypothesis import Hypothesis, output_tokens, sum_dtype
from dragoman.decoding.penalties import length_penalty
from dragoman.models.transducer import Source, Transducer
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START, token_mask


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
