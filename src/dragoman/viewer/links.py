"""Which pieces of a sentence pair translate each other, found by counting alone: the judge of alignment-like heads.

This is IBM's first model (Brown et al. 1993) in both directions, with fast_align's preference for the diagonal (Dyer et
al. 2013). Only links on which both directions agree are kept: few, but mostly right, and no attention was asked.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dragoman.viewer.statistics import Flags, Floats, Tokens

ROUNDS = 6
TENSION = 2.0  # how strongly a piece is expected at its own relative place; 4 finds more links and fewer right ones
SURE = 0.5  # a link is kept if both directions give it at least this probability


def likely_links(pairs: Sequence[tuple[Tokens, Tokens]]) -> list[Flags]:
    """Return for each pair of token sequences (S and T pieces) a matrix T S of the links that are likely."""
    forward = posteriors(pairs)
    backward = posteriors([(target, source) for source, target in pairs])
    return [(there >= SURE) & (back.T >= SURE) for there, back in zip(forward, backward, strict=True)]


def posteriors(pairs: Sequence[tuple[Tokens, Tokens]]) -> list[Floats]:
    """Return for each pair a matrix T S: how probably each target piece was made by each source piece."""
    if not pairs:
        return []
    together, both = np.unique(np.concatenate([combined(*pair) for pair in pairs]), return_inverse=True)
    owner = owners(pairs)
    _, maker = np.unique(together >> 32, return_inverse=True)
    table = np.ones(len(together))
    near = np.concatenate([diagonal(len(source), len(target)).ravel() for source, target in pairs])
    shares = shared(near, owner)
    for _ in range(ROUNDS):
        counts = np.bincount(both, shares, len(together))
        table = counts / np.bincount(maker, counts)[maker]
        shares = shared(table[both] * near, owner)
    sizes = [len(source) * len(target) for source, target in pairs]
    cut = np.split(shares, np.cumsum(sizes)[:-1])
    return [part.reshape(len(target), len(source)) for part, (source, target) in zip(cut, pairs, strict=True)]


def combined(source: Tokens, target: Tokens) -> NDArray[np.int64]:
    """Return a number for each target piece with each source piece, in the order of a matrix T S."""
    return ((source[None, :].astype(np.int64) << 32) | target[:, None].astype(np.int64)).ravel()


def owners(pairs: Sequence[tuple[Tokens, Tokens]]) -> NDArray[np.int64]:
    """Return, in the same order, which target position of the whole text each entry belongs to."""
    lengths = np.concatenate([np.full(len(target), len(source)) for source, target in pairs])
    return np.repeat(np.arange(len(lengths)), lengths)


def diagonal(sources: int, targets: int) -> Floats:
    """Return T S: how much a place is expected before the pieces are known."""
    away = (np.arange(targets)[:, None] + 0.5) / targets - (np.arange(sources) + 0.5) / sources
    return np.exp(-TENSION * np.abs(away))


def shared(values: Floats, owner: NDArray[np.int64]) -> Floats:
    """Divide values so that those of one owner sum to one."""
    return values / np.bincount(owner, values)[owner]
