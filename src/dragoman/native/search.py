"""Beam search in C: what `decoding.search` does, for all sentences at once (search.c)."""

from collections.abc import Callable

import torch
from torch import Tensor

from dragoman.decoding.hypothesis import FAILED_HYPOTHESIS, NO_HYPOTHESIS, Hypothesis, max_output_lengths
from dragoman.decoding.scoring import length_penalty
from dragoman.models.transducer import IncrementalDecoder, Source
from dragoman.native.model import NativeTransformer
from dragoman.recipe import DecodingConfig


def native_beam_search(
    model: IncrementalDecoder,
    source: Source,
    config: DecodingConfig,
    n_best: int,
    *,
    allowed: Tensor | None = None,
    active_sentences: int | None = None,
    pause: Callable[[], None] | None = None,
) -> list[list[Hypothesis]] | None:
    """Return the `n_best` best hypotheses of each sentence, or None if the model cannot be searched natively.

    `allowed` (B V) restricts the tokens of each sentence; `active_sentences` are searched at the same time. `pause` is
    called from time to time; what it raises ends the search.
    """
    if not isinstance(model, NativeTransformer):
        return None
    max_lengths = max_output_lengths(source, config)
    if active_sentences is None:
        active_sentences = model.max_active_sentences(max_lengths, config.beam)
    if active_sentences == 0:
        return None
    lengths = torch.arange(int(max_lengths.max()) + 1, dtype=torch.float64)
    results = model.search(
        model.encode(source, pause),
        max_lengths,
        length_penalty(lengths, config.length_penalty),
        beam=config.beam,
        n_best=n_best,
        active_sentences=active_sentences,
        allowed=allowed,
        pause=pause,
    )
    rows = zip(*(part.tolist() for part in vars(results).values()), strict=True)
    return [
        [hypothesis for hypothesis in map(_to_hypothesis, *row) if hypothesis.score > NO_HYPOTHESIS]
        or [FAILED_HYPOTHESIS]
        for row in rows
    ]


def _to_hypothesis(tokens: list[int], length: int, score: float, log_probability: float, truncated: bool) -> Hypothesis:
    return Hypothesis(tuple(tokens[:length]), score, log_probability, truncated)
