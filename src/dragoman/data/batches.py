"""The order of the data, as a function of the seed and the step and nothing else; and a batch as arrays.

There is no iterator to save. Whoever knows the step knows which pairs come next, so a resumed run sees every pair
exactly once an epoch, as an undisturbed one does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.data.arrays import TokenPairs
from dragoman.tokens import END, PAD, START

IndexArray = npt.NDArray[np.int64]
_LengthArray = npt.NDArray[Any]

_TIE_STREAM, _BATCH_STREAM = 0, 1  # two independent streams of random numbers an epoch


@dataclass(frozen=True)
class ArrayBatch:
    """Pairs side by side, the shorter ones filled with PAD."""

    source: IndexArray  # B S
    prefix: IndexArray  # B T  what the decoder is given: START, then the target without its END
    target: IndexArray  # B T  what it should say
    tokens: int  # of the target, without padding
    indices: IndexArray  # B  which pairs these are


def collate(pairs: TokenPairs, indices: Sequence[int] | IndexArray) -> ArrayBatch:
    """Put the pairs of these numbers side by side."""
    indices = np.asarray(indices, dtype=np.int64)
    source = _pad(pairs.source_tokens, pairs.source_offsets[indices], pairs.source_offsets[indices + 1])
    target = _pad(pairs.target_tokens, pairs.target_offsets[indices], pairs.target_ends[indices])
    prefix = np.full_like(target, START)
    prefix[:, 1:] = target[:, :-1]
    prefix[prefix == END] = PAD  # nothing is said after END
    return ArrayBatch(source, prefix, target, tokens=int((target != PAD).sum()), indices=indices)


def _pad(tokens: npt.NDArray[Any], starts: npt.NDArray[Any], ends: npt.NDArray[Any]) -> IndexArray:
    """Return the sequences between these places as rows, filled up with PAD."""
    places = starts[:, None] + np.arange((ends - starts).max())  # B S
    inside = places < ends[:, None]
    rows = np.full(places.shape, PAD, dtype=np.int64)
    rows[inside] = tokens[places[inside]]
    return rows


def batch_boundaries(source_lengths: _LengthArray, target_lengths: _LengthArray, batch_tokens: int) -> IndexArray:
    """Return where each batch ends among the pairs sorted by length.

    A batch is the longest run whose padded size, pairs × longest, is within `batch_tokens`; a pair that is larger by
    itself is a batch by itself. The ends do not depend on how ties are broken, so they hold for every epoch.
    """
    longest = np.sort(np.maximum(source_lengths, target_lengths).astype(np.int64))
    ends = [0]
    while ends[-1] < len(longest):
        ends.append(ends[-1] + _first_batch_size(longest[ends[-1] :], batch_tokens))
    return np.array(ends[1:], dtype=np.int64)


def _first_batch_size(longest: IndexArray, batch_tokens: int) -> int:
    """Return how many of the first pairs, sorted by length, fit into one batch."""
    # The padded size of the first n grows with n; no more than this many can fit, since none is shorter than the first.
    most = min(len(longest), batch_tokens // max(1, int(longest[0])))
    sizes = longest[:most] * np.arange(1, most + 1)
    return max(1, int(np.searchsorted(sizes, batch_tokens, side="right")))


class Order:
    """Which pairs each update of a training is made of."""

    def __init__(
        self,
        source_lengths: _LengthArray,
        target_lengths: _LengthArray,
        batch_tokens: int,
        accumulate: int = 1,
        seed: int = 1,
    ) -> None:
        self.longest = np.maximum(source_lengths, target_lengths)
        self.target_lengths = target_lengths
        self.boundaries = batch_boundaries(source_lengths, target_lengths, batch_tokens)
        self.accumulate = accumulate
        self.seed = seed
        self.cached_epoch: tuple[int, list[IndexArray]] = (-1, [])  # the epoch worked out last, and its batches

    def updates_per_epoch(self, world: int = 1) -> int:
        """Return how many updates see every pair once, in so many processes."""
        return -(-len(self.boundaries) // (self.accumulate * world))

    def update(self, step: int, rank: int = 0, world: int = 1) -> list[IndexArray]:
        """Return the batches of one process at a step (from 0): arrays of pair numbers.

        The last update of an epoch takes what is left; a process may then get nothing.
        """
        epoch, position = divmod(step, self.updates_per_epoch(world))
        share = self.accumulate * world
        return self.epoch_batches(epoch)[position * share : (position + 1) * share][rank::world]

    def epoch_batches(self, epoch: int) -> list[IndexArray]:
        """Return all batches of an epoch in the order of use."""
        if self.cached_epoch[0] != epoch:
            by_length = self.pairs_by_length(epoch)
            runs = np.split(by_length, self.boundaries[:-1])
            self.cached_epoch = (epoch, [runs[number] for number in self.permutation(len(runs), epoch, _BATCH_STREAM)])
        return self.cached_epoch[1]

    def pairs_by_length(self, epoch: int) -> IndexArray:
        """Return the pair numbers by length; equal ones fall together differently in every epoch."""
        ties = self.permutation(len(self.longest), epoch, _TIE_STREAM)
        return np.lexsort((ties, self.target_lengths, self.longest))

    def permutation(self, count: int, epoch: int, stream: int) -> IndexArray:
        """Return a permutation that depends on the seed, the epoch and the stream alone."""
        # The raw numbers of Philox are the same in every version of NumPy; what `Generator` makes of them may change.
        numbers = np.random.Philox(np.random.SeedSequence([self.seed, epoch, stream])).random_raw(count)
        return np.argsort(numbers, kind="stable")
