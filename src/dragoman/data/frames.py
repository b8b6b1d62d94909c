"""Frames: the signals of a corpus as matrices, made once, cached on disk as float16, and mapped into memory.

A signal is a recording, or later an image: time × features. How it becomes frames is the caller's; this module makes
them in parallel, stores them one after another, pairs them with tokenized targets, and hides parts of them in training.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dragoman.cache import find_or_build
from dragoman.data.arrays import ARRAY_FORMAT, Array, IndexArray, OnLinesDone, TokenPairs
from dragoman.data.corpus import TextPairs
from dragoman.data.split import SplitPart
from dragoman.errors import UserError
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END

FrameMatrix = npt.NDArray[np.float32]  # L F
ReadFrames = Callable[[str], FrameMatrix]  # the frames of a source of the corpus
_MapInput = TypeVar("_MapInput")
_MapOutput = TypeVar("_MapOutput")

_FRAME_FORMAT = 1
_FILES = ("frames", "offsets")
_READ_AHEAD = 64  # signals that are read while others are written
_MASKS = 2  # of each kind that SpecAugment hides
_MAX_MASKED_SHARE = 0.2  # of the frames of a signal, by one mask


@dataclass(frozen=True, eq=False)
class FrameArrays:
    """The frames of all signals of a corpus, in its order."""

    fingerprint: str
    frames: Array  # N F, float16
    offsets: Array  # of the first frame of each signal, and the end

    def lengths(self, rows: Array) -> Array:
        """Return the number of frames of some signals."""
        lengths: Array = self.offsets[rows + 1] - self.offsets[rows]
        return lengths

    def signal(self, row: int) -> Array:
        """Return the frames of a signal."""
        return self.frames[self.offsets[row] : self.offsets[row + 1]]


def cache_frames(
    corpus: TextPairs,
    read_frames: ReadFrames,
    settings: Mapping[str, Any],
    frame_width: int,
    *,
    threads: int = 1,
    cache_dir: str | PathLike[str] | None = None,
    on_signals_done: OnLinesDone | None = None,
) -> FrameArrays:
    """Return the frames of the sources of a corpus, from the cache if they are there.

    `settings` are everything besides the corpus that `read_frames` depends on. `on_signals_done` is called with the
    number of signals that have been written.
    """
    key_facts = [_FRAME_FORMAT, corpus.fingerprint(), dict(settings), frame_width]
    key = hashlib.sha256(json.dumps(key_facts, sort_keys=True).encode()).hexdigest()

    def build(folder: Path) -> None:
        sources = (source for source, _ in corpus.pairs())
        _write_frames(folder, map_in_order(read_frames, sources, threads), on_signals_done)

    folder = find_or_build(key, build, _FILES, cache_dir)
    frames = np.memmap(folder / "frames", dtype="<f2", mode="r").reshape(-1, frame_width)
    return FrameArrays(key, np.asarray(frames), np.asarray(np.memmap(folder / "offsets", dtype="<i8", mode="r")))


def map_in_order(
    read: Callable[[_MapInput], _MapOutput], sources: Iterable[_MapInput], threads: int
) -> Iterator[_MapOutput]:
    """Yield what is read of each source, in order, while the next ones are read in other threads."""
    remaining = iter(sources)
    with ThreadPoolExecutor(max(1, threads), "frames") as pool:
        waiting = [pool.submit(read, source) for source in islice(remaining, _READ_AHEAD)]
        while waiting:
            yield waiting.pop(0).result()
            waiting += [pool.submit(read, source) for source in islice(remaining, 1)]


def _write_frames(folder: Path, matrices: Iterable[FrameMatrix], on_signals_done: OnLinesDone | None) -> None:
    end = 0
    with (folder / "frames").open("wb") as frames, (folder / "offsets").open("wb") as offsets:
        np.zeros(1, dtype="<i8").tofile(offsets)
        for number, matrix in enumerate(matrices, 1):
            matrix.astype("<f2").tofile(frames)
            end += len(matrix)
            np.array([end], dtype="<i8").tofile(offsets)
            if on_signals_done:
                on_signals_done(number)
    sizes = {name: (folder / name).stat().st_size for name in _FILES}
    (folder / "header.json").write_text(json.dumps({"format": _FRAME_FORMAT, "bytes": sizes}, indent=2) + "\n")


@dataclass(frozen=True)
class FrameMasking:
    """SpecAugment (Park et al. 2019, arXiv 1904.08779): what is hidden of a signal in training."""

    max_frames: int  # of one mask over time
    max_features: int  # of one mask over features

    def apply(self, frames: npt.NDArray[np.float32], lengths: Array, seed: Sequence[int]) -> None:
        """Set masked parts of padded signals (B L F) to zero, the mean of normalised features; drawn from the seed."""
        # The raw numbers of Philox are the same in every version of NumPy.
        words = np.random.Philox(np.random.SeedSequence(seed)).random_raw(len(frames) * _MASKS * 4)
        draws = (words / 2.0**64).reshape(len(frames), _MASKS, 4)
        for signal, length, masks in zip(frames, lengths, draws, strict=True):
            for size, start, feature_size, feature_start in masks:
                longest = min(self.max_frames, int(_MAX_MASKED_SHARE * length))
                first, last = _draw_span(size, start, longest, int(length))
                signal[first:last] = 0.0
                first, last = _draw_span(feature_size, feature_start, self.max_features, frames.shape[2])
                signal[:, first:last] = 0.0


def _draw_span(size: float, start: float, longest: int, length: int) -> tuple[int, int]:
    """Return a span of at most `longest` of `length` items, from two numbers between 0 and 1."""
    span = min(int(size * (longest + 1)), length)
    first = int(start * (length - span + 1))
    return first, first + span


@dataclass(frozen=True, eq=False, kw_only=True)
class FramePairs(TokenPairs):
    """Pairs of a signal and a target; a signal may be there several times, for example at several speeds."""

    versions: tuple[FrameArrays, ...]
    version_numbers: Array  # which of the versions a pair has
    rows: Array  # its signal
    frames_per_position: int
    masking: FrameMasking | None
    repeats: int

    @cached_property
    def frame_counts(self) -> npt.NDArray[np.int64]:
        """The number of frames of every pair."""
        lengths = np.stack([version.lengths(self.rows) for version in self.versions])
        counts: npt.NDArray[np.int64] = np.take_along_axis(lengths, self.version_numbers[None], axis=0)[0]
        return counts

    @cached_property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        """The number of encoder positions of every signal, by which batches are made."""
        return (-(-self.frame_counts // self.frames_per_position)).astype(np.int32)

    def source(self, index: int) -> Array:
        """Return the frames of a pair."""
        version: FrameArrays = self.versions[self.version_numbers[index]]
        return version.signal(int(self.rows[index]))

    def pad_sources(self, indices: IndexArray, seed: Sequence[int] | None = None) -> tuple[Array, IndexArray]:
        """Return the frames of some pairs (B L F), padded with zeros, and their lengths; masked if there is a seed."""
        lengths = self.frame_counts[indices]
        width = self.versions[0].frames.shape[1]
        frames = np.zeros((len(indices), int(lengths.max()), width), dtype=np.float32)
        for row, index in enumerate(indices):
            frames[row, : lengths[row]] = self.source(int(index))
        if self.masking and seed is not None:
            self.masking.apply(frames, lengths, seed)
        return frames, lengths


def pair_frames(
    corpus: TextPairs,
    versions: Sequence[FrameArrays],
    tokenizer: Tokenizer,
    longest: int,
    *,
    frames_per_position: int,
    masking: FrameMasking | None = None,
    part: SplitPart | None = None,
) -> FramePairs:
    """Pair the frames of a corpus with its tokenized targets; every pair is there once for each version.

    Pairs with more than `longest` positions or tokens, or with an empty side, are dropped.
    """
    rows, targets, empty, long = _select_pairs(corpus, versions, tokenizer, longest, frames_per_position, part)
    if not rows:
        raise UserError(
            f"{corpus}: no usable pair: {empty:,} have an empty side and {long:,} are longer than "
            f"{longest * frames_per_position:,} frames or {longest:,} tokens ([data] longest)."
        )
    count = len(versions)
    lengths = np.array([0, *map(len, targets * count)], dtype=np.int64)
    facts = [ARRAY_FORMAT, _FRAME_FORMAT, *(version.fingerprint for version in versions), tokenizer.fingerprint, rows]
    return FramePairs(
        folder=Path(),
        fingerprint=hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
        dropped_empty=empty,
        dropped_long=long,
        source_tokens=np.zeros(0, dtype="<u2"),
        source_offsets=np.zeros(1, dtype=np.int64),
        target_tokens=np.array(list(chain.from_iterable(targets)) * count, dtype=np.int64),
        target_offsets=lengths.cumsum(),
        line_numbers=np.tile(np.array(rows, dtype=np.int64) + 1, count),
        versions=tuple(versions),
        version_numbers=np.repeat(np.arange(count), len(rows)),
        rows=np.tile(np.array(rows, dtype=np.int64), count),
        frames_per_position=frames_per_position,
        masking=masking,
        repeats=count,
    )


def _select_pairs(
    corpus: TextPairs,
    versions: Sequence[FrameArrays],
    tokenizer: Tokenizer,
    longest: int,
    frames_per_position: int,
    part: SplitPart | None,
) -> tuple[list[int], list[list[int]], int, int]:
    """Return the rows and targets of the pairs to use, and how many are dropped as empty or long."""
    rows: list[int] = []
    targets: list[list[int]] = []
    empty = long = 0
    every_row = np.arange(len(versions[0].offsets) - 1)
    longest_frames = np.max([version.lengths(every_row) for version in versions], axis=0)
    for row, (source, target) in enumerate(corpus.pairs()):
        if part and not part.contains(source, target):
            continue
        tokens = [*tokenizer.encode(target), END]
        if not target.strip() or not longest_frames[row]:
            empty += 1
        elif len(tokens) > longest + 1 or longest_frames[row] > longest * frames_per_position:
            long += 1
        else:
            rows.append(row)
            targets.append(tokens)
    return rows, targets, empty, long
