"""Batches: which pairs each update is made of, and pairs collated into padded arrays.

The order of the data is a function of the seed and the step, so there is no iterator to save: a resumed run sees every
pair exactly once per epoch, as an uninterrupted one does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.data.arrays import IndexArray, TokenPairs
from dragoman.tokens import END, PAD, START

_CostArray = npt.NDArray[Any]

_TIE_STREAM, _BATCH_STREAM = 0, 1  # two independent random streams per epoch


@dataclass(frozen=True)
class ArrayBatch:
    """Collated pairs, padded."""

    source: npt.NDArray[Any]  # B S, tokens; or B S F, the frames of a signal
    source_lengths: IndexArray  # B
    prefix: IndexArray  # B T  the decoder's input: START, then the target without its END
    target: IndexArray  # B T  the decoder's expected output
    tokens: int  # of the target, without padding
    indices: IndexArray  # B  of the pairs


def collate(pairs: TokenPairs, indices: Sequence[int] | IndexArray, *, seed: Sequence[int] | None = None) -> ArrayBatch:
    """Return some pairs as one padded batch; signals are varied at random if there is a seed, as in training."""
    indices = np.asarray(indices, dtype=np.int64)
    source, source_lengths = pairs.pad_sources(indices, seed)
    target = pairs.pad_targets(indices)
    prefix = np.full_like(target, START)
    prefix[:, 1:] = target[:, :-1]
    prefix[prefix == END] = PAD  # nothing follows END
    tokens = int((target != PAD).sum())
    return ArrayBatch(source, source_lengths, prefix, target, tokens=tokens, indices=indices)


def batch_boundaries(costs: _CostArray, max_cost: int) -> IndexArray:
    """Return where each batch ends among the items sorted by cost.

    A batch is the longest run whose padded cost, items × highest cost, is at most `max_cost`; an item that costs more
    is a batch by itself. The boundaries do not depend on how ties are broken, so they are the same in every epoch.
    """
    ascending = np.sort(costs.astype(np.int64))
    ends = [0]
    while ends[-1] < len(ascending):
        ends.append(ends[-1] + _first_batch_size(ascending[ends[-1] :], max_cost))
    return np.array(ends[1:], dtype=np.int64)


def _first_batch_size(ascending: IndexArray, max_cost: int) -> int:
    # The padded cost of the first n items grows with n. At most this many fit, as none costs less than the first.
    most = min(len(ascending), max_cost // max(1, int(ascending[0])))
    padded_costs = ascending[:most] * np.arange(1, most + 1)
    return max(1, int(np.searchsorted(padded_costs, max_cost, side="right")))


class Order:
    """The items of every update of a training, as a function of the seed and the step.

    An item has a cost, such as its length in tokens; items of similar cost share a batch. `tie_break` sorts items of
    equal cost, and what is still equal is shuffled anew in every epoch.
    """

    def __init__(
        self,
        costs: _CostArray,
        max_cost: int,
        accumulate: int = 1,
        seed: int = 1,
        *,
        tie_break: _CostArray | None = None,
    ) -> None:
        self.costs = costs
        self.tie_break = tie_break
        self.boundaries = batch_boundaries(costs, max_cost)
        self.accumulate = accumulate
        self.seed = seed
        self._cached_epoch: tuple[int, list[IndexArray]] = (-1, [])

    @property
    def updates_per_epoch(self) -> int:
        """The number of updates that see every item once."""
        return -(-len(self.boundaries) // self.accumulate)

    def update(self, step: int) -> list[IndexArray]:
        """Return the micro-batches of an update (counted from 0), each an array of item indices.

        The last update of an epoch has those that are left. Of several processes, process r of n takes `[r::n]`.
        """
        epoch, position = divmod(step, self.updates_per_epoch)
        return self.epoch_batches(epoch)[position * self.accumulate : (position + 1) * self.accumulate]

    def epoch_batches(self, epoch: int) -> list[IndexArray]:
        """Return all batches of an epoch in the order of use."""
        if self._cached_epoch[0] != epoch:
            batches = np.split(self._items_by_cost(epoch), self.boundaries[:-1])
            order = self._permutation(len(batches), epoch, _BATCH_STREAM)
            self._cached_epoch = (epoch, [batches[index] for index in order])
        return self._cached_epoch[1]

    def _items_by_cost(self, epoch: int) -> IndexArray:
        ties = self._permutation(len(self.costs), epoch, _TIE_STREAM)
        return np.lexsort((ties, self.costs) if self.tie_break is None else (ties, self.tie_break, self.costs))

    def _permutation(self, count: int, epoch: int, stream: int) -> IndexArray:
        # The raw numbers of Philox are the same in every version of NumPy; those of `Generator` may change.
        numbers = np.random.Philox(np.random.SeedSequence([self.seed, epoch, stream])).random_raw(count)
        return np.argsort(numbers, kind="stable")
