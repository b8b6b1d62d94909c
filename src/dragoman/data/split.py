"""Holding pairs out for validation if the user gives no validation files.

Which pairs are held out depends on the seed and on their text, not on their position: a pair that occurs twice is on
one side, and adding lines to a corpus moves few of the old ones.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dragoman.data.corpus import TextPairs
from dragoman.errors import UserError

HELD_OUT_DIVISOR = 10  # at most one pair in ten is held out


@dataclass(frozen=True)
class SplitPart:
    """One side of a split of a corpus."""

    seed: int
    held_out_hashes: frozenset[int]
    is_held_out: bool  # the side of these pairs, or the other one
    by_source: bool = False  # pairs with the same source are on the same side

    def contains(self, source: str, target: str) -> bool:
        """Return whether a pair belongs to this side."""
        number = pair_hash(self.seed, source, "" if self.by_source else target)
        return (number in self.held_out_hashes) == self.is_held_out

    @property
    def fingerprint(self) -> str:
        """A digest that identifies this side."""
        digest = hashlib.sha256(f"{self.seed} {self.is_held_out}".encode())
        for number in sorted(self.held_out_hashes):
            digest.update(number.to_bytes(8, "big"))
        return digest.hexdigest()


@dataclass(frozen=True)
class CorpusSplit:
    """A corpus in two sides that share no pair."""

    training: SplitPart
    validation: SplitPart
    held_out: int  # pairs
    notice: str | None  # if fewer pairs are held out than configured


def split_held_out(
    corpus: TextPairs, held_out: int, seed: int, *, by_source: bool = False, unit: str = "pair"
) -> CorpusSplit:
    """Hold out up to `held_out` pairs for validation, and at most one in ten.

    With `by_source`, all pairs of one source are on the same side. `unit` is what messages call a pair.
    """
    hashes = _hash_usable_pairs(corpus, seed, by_source)
    distinct, counts = np.unique(hashes, return_counts=True)
    if len(distinct) < 2:
        raise UserError(
            f"{corpus}: {len(hashes):,} usable {unit}s, {len(distinct)} of them distinct; at least 2 are needed, "
            "one for training and one for validation."
        )
    limit = max(1, min(held_out, len(hashes) // HELD_OUT_DIVISOR))
    groups = _select_groups(counts, limit)
    selected = frozenset(int(number) for number in distinct[groups])
    size = int(counts[groups].sum())
    return CorpusSplit(
        training=SplitPart(seed, selected, is_held_out=False, by_source=by_source),
        validation=SplitPart(seed, selected, is_held_out=True, by_source=by_source),
        held_out=size,
        notice=None
        if size == held_out
        else f"{corpus}: {size:,} of {len(hashes):,} {unit}s are held out for validation.",
    )


def _hash_usable_pairs(corpus: TextPairs, seed: int, by_source: bool) -> npt.NDArray[np.uint64]:
    usable = ((source, target) for source, target in corpus.pairs() if source.strip() and target.strip())
    hashes = (pair_hash(seed, source, "" if by_source else target) for source, target in usable)
    return np.fromiter(hashes, dtype=np.uint64)


def _select_groups(counts: npt.NDArray[np.int64], limit: int) -> list[int]:
    # Select groups of equal pairs in order while they fit; if none fits, the smallest.
    selected, room = [], limit
    for group, count in enumerate(counts):
        if count <= room:
            selected.append(group)
            room -= int(count)
        if not room:
            break
    return selected or [int(np.argmin(counts))]


def pair_hash(seed: int, source: str, target: str) -> int:
    """Return a 64-bit hash of the seed and the text of a pair."""
    # No line has a newline, so the boundary between source and target is unambiguous.
    digest = hashlib.blake2b(
        f"{source}\n{target}".encode("utf-8", "surrogateescape"), digest_size=8, key=seed.to_bytes(8, "big")
    )
    return int.from_bytes(digest.digest(), "big")
