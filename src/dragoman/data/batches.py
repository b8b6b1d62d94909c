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

Numbers = npt.NDArray[np.int64]
Lengths = npt.NDArray[Any]

TIES, BATCHES = 0, 1  # two independent streams of random numbers an epoch


@dataclass(frozen=True)
class Batch:
    """Pairs side by side, the shorter ones filled with PAD."""

    source: Numbers  # B S
    prefix: Numbers  # B T  what the decoder is given: START, then the target without its END
    target: Numbers  # B T  what it should say
    tokens: int  # of the target, without padding
    numbers: Numbers  # B  which pairs these are


def collate(pairs: TokenPairs, numbers: Sequence[int] | Numbers) -> Batch:
    """Put the pairs of these numbers side by side."""
    numbers = np.asarray(numbers, dtype=np.int64)
    source = padded(pairs.source_tokens, pairs.source_offsets[numbers], pairs.source_offsets[numbers + 1])
    target = padded(pairs.target_tokens, pairs.target_offsets[numbers], pairs.target_ends[numbers])
    prefix = np.full_like(target, START)
    prefix[:, 1:] = target[:, :-1]
    prefix[prefix == END] = PAD  # nothing is said after END
    return Batch(source, prefix, target, tokens=int((target != PAD).sum()), numbers=numbers)


def padded(tokens: npt.NDArray[Any], starts: npt.NDArray[Any], ends: npt.NDArray[Any]) -> Numbers:
    """Return the sequences between these places as rows, filled up with PAD."""
    places = starts[:, None] + np.arange((ends - starts).max())  # B S
    inside = places < ends[:, None]
    rows = np.full(places.shape, PAD, dtype=np.int64)
    rows[inside] = tokens[places[inside]]
    return rows


def batch_plan(source_lengths: Lengths, target_lengths: Lengths, batch_tokens: int) -> Numbers:
    """Return where each batch ends among the pairs sorted by length.

    A batch is the longest run whose padded size, pairs × longest, is within `batch_tokens`; a pair that is larger by
    itself is a batch by itself. The ends do not depend on how ties are broken, so they hold for every epoch.
    """
    longest = np.sort(np.maximum(source_lengths, target_lengths).astype(np.int64))
    ends = [0]
    while ends[-1] < len(longest):
        ends.append(ends[-1] + run_length(longest[ends[-1] :], batch_tokens))
    return np.array(ends[1:], dtype=np.int64)


def run_length(longest: Numbers, batch_tokens: int) -> int:
    """Return how many of the first pairs, sorted by length, fit into one batch."""
    # The padded size of the first n grows with n; no more than this many can fit, since none is shorter than the first.
    most = min(len(longest), batch_tokens // max(1, int(longest[0])))
    sizes = longest[:most] * np.arange(1, most + 1)
    return max(1, int(np.searchsorted(sizes, batch_tokens, side="right")))


class Order:
    """Which pairs each update of a training is made of."""

    def __init__(
        self, source_lengths: Lengths, target_lengths: Lengths, batch_tokens: int, accumulate: int = 1, seed: int = 1
    ) -> None:
        self.longest = np.maximum(source_lengths, target_lengths)
        self.target_lengths = target_lengths
        self.ends = batch_plan(source_lengths, target_lengths, batch_tokens)
        self.accumulate = accumulate
        self.seed = seed
        self.current: tuple[int, list[Numbers]] = (-1, [])  # the epoch worked out last, and its batches

    def updates_per_epoch(self, world: int = 1) -> int:
        """Return how many updates see every pair once, in so many processes."""
        return -(-len(self.ends) // (self.accumulate * world))

    def update(self, step: int, rank: int = 0, world: int = 1) -> list[Numbers]:
        """Return the batches of one process at a step (from 0): arrays of pair numbers.

        The last update of an epoch takes what is left; a process may then get nothing.
        """
        epoch, position = divmod(step, self.updates_per_epoch(world))
        share = self.accumulate * world
        return self.batches(epoch)[position * share : (position + 1) * share][rank::world]

    def batches(self, epoch: int) -> list[Numbers]:
        """Return all batches of an epoch in the order of use."""
        if self.current[0] != epoch:
            by_length = self.sorted_pairs(epoch)
            runs = np.split(by_length, self.ends[:-1])
            self.current = (epoch, [runs[number] for number in self.shuffled(len(runs), epoch, BATCHES)])
        return self.current[1]

    def sorted_pairs(self, epoch: int) -> Numbers:
        """Return the pair numbers by length; equal ones fall together differently in every epoch."""
        ties = self.shuffled(len(self.longest), epoch, TIES)
        return np.lexsort((ties, self.target_lengths, self.longest))

    def shuffled(self, count: int, epoch: int, stream: int) -> Numbers:
        """Return a permutation that depends on the seed, the epoch and the stream alone."""
        # The raw numbers of Philox are the same in every version of NumPy; what `Generator` makes of them may change.
        numbers = np.random.Philox(np.random.SeedSequence([self.seed, epoch, stream])).random_raw(count)
        return np.argsort(numbers, kind="stable")
