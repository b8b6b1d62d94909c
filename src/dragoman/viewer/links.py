"""Which pieces of a sentence pair translate each other, found by counting alone: the judge of alignment-like heads.

This is IBM's first model (Brown et al. 1993) in both directions, with fast_align's preference for the diagonal (Dyer et
al. 2013). Only links on which both directions agree are kept: few, but mostly right, and no attention was asked.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dragoman.viewer.head_statistics import BoolArray, FloatArray, TokenArray

_EM_ITERATIONS = 6
_DIAGONAL_TENSION = (
    2.0  # how strongly a piece is expected at its own relative place; 4 finds more links and fewer right ones
)
_MIN_POSTERIOR = 0.5  # a link is kept if both directions give it at least this probability


def likely_links(pairs: Sequence[tuple[TokenArray, TokenArray]]) -> list[BoolArray]:
    """Return for each pair of token sequences (S and T pieces) a matrix T S of the links that are likely."""
    forward = link_posteriors(pairs)
    backward = link_posteriors([(target, source) for source, target in pairs])
    return [
        (there >= _MIN_POSTERIOR) & (back.T >= _MIN_POSTERIOR) for there, back in zip(forward, backward, strict=True)
    ]


def link_posteriors(pairs: Sequence[tuple[TokenArray, TokenArray]]) -> list[FloatArray]:
    """Return for each pair a matrix T S: how probably each target piece was made by each source piece."""
    if not pairs:
        return []
    together, both = np.unique(np.concatenate([_pair_codes(*pair) for pair in pairs]), return_inverse=True)
    owner = _target_positions(pairs)
    _, maker = np.unique(together >> 32, return_inverse=True)
    table = np.ones(len(together))
    near = np.concatenate([_diagonal_prior(len(source), len(target)).ravel() for source, target in pairs])
    shares = _normalise_per_target(near, owner)
    for _ in range(_EM_ITERATIONS):
        counts = np.bincount(both, shares, len(together))
        table = counts / np.bincount(maker, counts)[maker]
        shares = _normalise_per_target(table[both] * near, owner)
    sizes = [len(source) * len(target) for source, target in pairs]
    cut = np.split(shares, np.cumsum(sizes)[:-1])
    return [part.reshape(len(target), len(source)) for part, (source, target) in zip(cut, pairs, strict=True)]


def _pair_codes(source: TokenArray, target: TokenArray) -> NDArray[np.int64]:
    """Return a number for each target piece with each source piece, in the order of a matrix T S."""
    return ((source[None, :].astype(np.int64) << 32) | target[:, None].astype(np.int64)).ravel()


def _target_positions(pairs: Sequence[tuple[TokenArray, TokenArray]]) -> NDArray[np.int64]:
    """Return, in the same order, which target position of the whole text each entry belongs to."""
    lengths = np.concatenate([np.full(len(target), len(source)) for source, target in pairs])
    return np.repeat(np.arange(len(lengths)), lengths)


def _diagonal_prior(sources: int, targets: int) -> FloatArray:
    """Return T S: how much a place is expected before the pieces are known."""
    away = (np.arange(targets)[:, None] + 0.5) / targets - (np.arange(sources) + 0.5) / sources
    return np.exp(-_DIAGONAL_TENSION * np.abs(away))


def _normalise_per_target(values: FloatArray, target_positions: NDArray[np.int64]) -> FloatArray:
    """Divide values so that those of one owner sum to one."""
    return values / np.bincount(target_positions, values)[target_positions]
