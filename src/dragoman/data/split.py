"""Holding pairs out for validation where the user gives no validation files.

Which pairs are held out depends on the seed and on their own text, not on their place: a pair that occurs twice falls
on one side, and adding lines to a corpus moves few of the old ones.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dragoman.data.corpus import TextPairs
from dragoman.errors import UserError

HELD_OUT_DIVISOR = 10  # hold out one pair in ten at most


@dataclass(frozen=True)
class SplitPart:
    """One side of a split: which pairs of the corpus belong to it."""

    seed: int
    held_out_hashes: frozenset[int]
    is_held_out: bool  # the side of the chosen pairs, or the other one
    by_source: bool = False  # whether pairs with one source stay together, whatever their targets

    def contains(self, source: str, target: str) -> bool:
        """Tell whether a pair belongs to this side."""
        number = pair_hash(self.seed, source, "" if self.by_source else target)
        return (number in self.held_out_hashes) == self.is_held_out

    @property
    def fingerprint(self) -> str:
        """What makes this side different from any other."""
        digest = hashlib.sha256(f"{self.seed} {self.is_held_out}".encode())
        for number in sorted(self.held_out_hashes):
            digest.update(number.to_bytes(8, "big"))
        return digest.hexdigest()


@dataclass(frozen=True)
class CorpusSplit:
    """A corpus in two parts that share no pair."""

    training: SplitPart
    validation: SplitPart
    held_out: int  # pairs
    notice: str | None  # said where fewer are held out than were asked for


def split_held_out(corpus: TextPairs, held_out: int, seed: int, *, by_source: bool = False) -> CorpusSplit:
    """Choose up to `held_out` pairs for validation, but leave nine in ten for training.

    With `by_source` all pairs of one source fall on one side."""
    hashes = _hash_usable_pairs(corpus, seed, by_source)
    different, counts = np.unique(hashes, return_counts=True)
    if len(different) < 2:
        raise UserError(
            f"{corpus}: {len(hashes):,} usable pairs, {len(different)} of them different; at least 2 are needed, "
            "to train with one and validate with the other."
        )
    limit = max(1, min(held_out, len(hashes) // HELD_OUT_DIVISOR))
    groups = _select_groups(counts, limit)
    chosen = frozenset(int(number) for number in different[groups])
    size = int(counts[groups].sum())
    return CorpusSplit(
        training=SplitPart(seed, chosen, is_held_out=False, by_source=by_source),
        validation=SplitPart(seed, chosen, is_held_out=True, by_source=by_source),
        held_out=size,
        notice=None
        if size == held_out
        else f"{corpus}: {size:,} of {len(hashes):,} pairs are held out for validation.",
    )


def _hash_usable_pairs(corpus: TextPairs, seed: int, by_source: bool) -> npt.NDArray[np.uint64]:
    """Return the hash of every pair that is not empty on either side, or of its source alone."""
    usable = ((source, target) for source, target in corpus.pairs() if source.strip() and target.strip())
    hashes = (pair_hash(seed, source, "" if by_source else target) for source, target in usable)
    return np.fromiter(hashes, dtype=np.uint64)


def _select_groups(counts: npt.NDArray[np.int64], limit: int) -> list[int]:
    """Choose groups of equal pairs, first come first served, while they fit; if none fits, the smallest."""
    chosen, room = [], limit
    for group, count in enumerate(counts):
        if count <= room:
            chosen.append(group)
            room -= int(count)
        if not room:
            break
    return chosen or [int(np.argmin(counts))]


def pair_hash(seed: int, source: str, target: str) -> int:
    """Return a number from 0 to 2⁶⁴ - 1 that depends on the seed and the pair's text alone."""
    # No line holds a newline, so that none can shift text from one side to the other.
    digest = hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=8, key=seed.to_bytes(8, "big"))
    return int.from_bytes(digest.digest(), "big")
