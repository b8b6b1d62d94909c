"""Beam search with a compiled model: what `search` does, in one call for all sentences (kernels/search.c)."""

import torch
from torch import Tensor

from dragoman.decoding.hypothesis import FAILED, NOTHING, Hypothesis, longest_outputs
from dragoman.decoding.penalties import length_penalty
from dragoman.model.compiled import CompiledTransformer
from dragoman.recipe import Decoding


def compiled_search(
    model: CompiledTransformer,
    source: Tensor,
    how: Decoding,
    n_best: int,
    at_once: int,
    allowed: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Return for each sentence of `source` (B S) its `n_best` best hypotheses; `at_once` of them are worked on.

    `allowed` (B V) says which pieces may be said in each.
    """
    longest = longest_outputs(source, how)
    lengths = torch.arange(int(longest.max()) + 1, dtype=torch.float64)
    penalties = length_penalty(lengths, how.length_penalty)
    found = model.search(
        model.encode(source), longest, penalties, beam=how.beam, n_best=n_best, at_once=at_once, allowed=allowed
    )
    rows = zip(*(part.tolist() for part in vars(found).values()), strict=True)
    return [[hypothesis for hypothesis in map(read, *row) if hypothesis.score > NOTHING] or [FAILED] for row in rows]


def read(tokens: list[int], length: int, score: float, log_probability: float, truncated: bool) -> Hypothesis:
    """Return one hypothesis that was found."""
    return Hypothesis(tuple(tokens[:length]), score, log_probability, truncated)
