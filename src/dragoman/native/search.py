"""Beam search with a compiled model: what `search` does, in one call for all sentences (native/search.c)."""

import torch
from torch import Tensor

from dragoman.decoding.hypothesis import FAILED_HYPOTHESIS, NO_HYPOTHESIS, Hypothesis, max_output_lengths
from dragoman.decoding.penalties import length_penalty
from dragoman.models.transducer import Source
from dragoman.native.model import NativeTransformer
from dragoman.recipe import DecodingConfig


def native_beam_search(
    model: NativeTransformer,
    source: Source,
    config: DecodingConfig,
    n_best: int,
    active_sentences: int,
    allowed: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Return for each sentence of `source` (B S) its `n_best` best hypotheses; `at_once` of them are worked on.

    `allowed` (B V) says which pieces may be said in each.
    """
    longest = max_output_lengths(source, config)
    lengths = torch.arange(int(longest.max()) + 1, dtype=torch.float64)
    penalties = length_penalty(lengths, config.length_penalty)
    found = model.search(
        model.encode(source),
        longest,
        penalties,
        beam=config.beam,
        n_best=n_best,
        active_sentences=active_sentences,
        allowed=allowed,
    )
    rows = zip(*(part.tolist() for part in vars(found).values()), strict=True)
    return [
        [hypothesis for hypothesis in map(_to_hypothesis, *row) if hypothesis.score > NO_HYPOTHESIS]
        or [FAILED_HYPOTHESIS]
        for row in rows
    ]


def _to_hypothesis(tokens: list[int], length: int, score: float, log_probability: float, truncated: bool) -> Hypothesis:
    """Return one hypothesis that was found."""
    return Hypothesis(tuple(tokens[:length]), score, log_probability, truncated)
