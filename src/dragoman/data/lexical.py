"""Which target pieces translate a source piece, learned from pairs alone: the first of IBM's models.

Brown et al. 1993: every target piece comes from one piece of its source, each equally likely before the words are
seen. A few rounds of expectation and maximisation find how probable each target piece is for each source piece.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.data.arrays import TokenPairs

_EM_ITERATIONS = 4
MAX_LINKS = 20_000_000  # of a source piece to a target piece in the same pair: more are not needed, and fill memory

_IdArray = npt.NDArray[np.int64]


def translation_table(pairs: TokenPairs, source_vocabulary: int, count: int) -> _IdArray:
    """Return for each of `pieces` source pieces its `count` likeliest target pieces; rows are filled up with 0."""
    source, target, group = cooccurrences(pairs)
    span = int(target.max()) + 1
    words, which = np.unique(source * span + target, return_inverse=True)
    owner = words // span
    chances: npt.NDArray[Any] = np.ones(len(words))
    for _ in range(_EM_ITERATIONS):
        weight: npt.NDArray[Any] = chances[which]
        weight /= np.bincount(group, weight)[group]  # which source piece of its pair a target piece comes from
        counts: npt.NDArray[Any] = np.bincount(which, weight, minlength=len(words))
        chances = counts / np.bincount(owner, counts)[owner]
    return _most_likely_targets(owner, words % span, chances, source_vocabulary, count)


def cooccurrences(pairs: TokenPairs) -> tuple[_IdArray, _IdArray, _IdArray]:
    """Return every source piece beside every target piece of its pair, and which target position it is."""
    sizes = pairs.source_lengths.astype(np.int64) * pairs.target_lengths
    step = max(1, -(-int(sizes.sum()) // MAX_LINKS))  # of a large corpus every so many-th pair
    sources, targets, groups, positions = [], [], [], 0
    for pair in range(0, len(pairs), step):
        source = pairs.source_tokens[pairs.source_offsets[pair] : pairs.source_offsets[pair + 1]]
        target = pairs.target_tokens[pairs.target_offsets[pair] : pairs.target_offsets[pair + 1]]
        sources.append(np.tile(source, len(target)))
        targets.append(np.repeat(target, len(source)))
        groups.append(np.repeat(np.arange(positions, positions + len(target)), len(source)))
        positions += len(target)
    return tuple(np.concatenate(part).astype(np.int64) for part in (sources, targets, groups))  # type: ignore[return-value]


def _most_likely_targets(
    owner: _IdArray, target: _IdArray, chances: npt.NDArray[np.float64], pieces: int, count: int
) -> _IdArray:
    """Return the `count` likeliest targets of each owner."""
    order = np.lexsort((-chances, owner))
    owner, target = owner[order], target[order]
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    table = np.zeros((pieces, count), dtype=np.int64)
    kept = rank < count
    table[owner[kept], rank[kept]] = target[kept]
    return table


def most_frequent_targets(pairs: TokenPairs, count: int) -> _IdArray:
    """Return the `count` most frequent target pieces."""
    return np.argsort(-np.bincount(pairs.target_tokens), kind="stable")[:count].astype(np.int64)
