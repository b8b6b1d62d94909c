"""Token arrays: a corpus as token ids, made once, cached on disk, and mapped into memory rather than read.

A directory of flat little-endian files: the tokens of all sources one after another, where each begins, the same for
targets, and the line number of every pair. `header.json` counts them. The name of the directory is the hash of
everything that its content depends on. The corpus is read in chunks, so it may be larger than memory.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dragoman.cache import find_or_build
from dragoman.data.corpus import TextPairs
from dragoman.data.split import SplitPart
from dragoman.errors import UserError
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, PAD

ARRAY_FORMAT = 1
_FILES = ("source.tokens", "source.offsets", "target.tokens", "target.offsets", "lines")

CHUNK_LINES = 10_000
_CHUNK_CHARACTERS = 4_000_000
_PROGRESS_EVERY_LINES = 1000
# A line with more characters is too long whatever the tokenizer: no vocabulary has such long tokens on average.
_MAX_CHARACTERS_PER_TOKEN = 100
_MIN_LONG_LINE_CHARACTERS = 10_000

Array = npt.NDArray[Any]
IndexArray = npt.NDArray[np.int64]
OnLinesDone = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class TokenPairs:
    """Pairs of token sequences; each source and each target ends with END."""

    folder: Path
    fingerprint: str
    dropped_empty: int
    dropped_long: int
    source_tokens: Array
    source_offsets: Array
    target_tokens: Array
    target_offsets: Array
    line_numbers: Array  # in the corpus, counted from 1
    repeats = 1  # how many of the pairs a token of the corpus is in

    def __len__(self) -> int:
        return len(self.line_numbers)

    def __getitem__(self, index: int) -> tuple[Array, Array]:
        return self.source(index), self.target(index)

    @cached_property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        """The number of tokens of every source, END included."""
        return np.diff(self.source_offsets).astype(np.int32)

    @cached_property
    def target_lengths(self) -> npt.NDArray[np.int32]:
        """The number of tokens of every target, END included."""
        return (self.target_ends - self.target_offsets[:-1]).astype(np.int32)

    @cached_property
    def costs(self) -> npt.NDArray[np.int32]:
        """The length of the longer side of every pair, by which batches are made."""
        return np.maximum(self.source_lengths, self.target_lengths)

    @cached_property
    def target_ends(self) -> Array:
        """The offset after the last token of every target."""
        return self.target_offsets[1:]

    def source(self, index: int) -> Array:
        """Return the tokens of a source, END included."""
        return self.source_tokens[self.source_offsets[index] : self.source_offsets[index + 1]]

    def target(self, index: int) -> Array:
        """Return the tokens of a target, END included."""
        return self.target_tokens[self.target_offsets[index] : self.target_ends[index]]

    def pad_sources(self, indices: IndexArray, seed: Sequence[int] | None = None) -> tuple[Array, IndexArray]:
        """Return the sources of some pairs, padded (B S), and their lengths (B); text is not varied by the seed."""
        del seed
        starts, ends = self.source_offsets[indices], self.source_offsets[indices + 1]
        return _pad_rows(self.source_tokens, starts, ends), ends - starts

    def pad_targets(self, indices: IndexArray) -> IndexArray:
        """Return the targets of some pairs, padded with PAD (B T)."""
        return _pad_rows(self.target_tokens, self.target_offsets[indices], self.target_ends[indices])


def _pad_rows(tokens: Array, starts: Array, ends: Array) -> IndexArray:
    """Return stretches of a token array as rows, padded with PAD."""
    positions = starts[:, None] + np.arange((ends - starts).max())  # B S
    inside = positions < ends[:, None]
    rows = np.full(positions.shape, PAD, dtype=np.int64)
    rows[inside] = tokens[positions[inside]]
    return rows


def tokenize_corpus(
    corpus: TextPairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    longest: int,
    cache_dir: str | PathLike[str] | None = None,
    on_lines_done: OnLinesDone | None = None,
    part: SplitPart | None = None,
) -> TokenPairs:
    """Return a corpus as token arrays, from the cache if it is there; pairs longer than `longest` are dropped.

    `on_lines_done` is called with the number of lines that have been read.
    """
    part_name = part.fingerprint if part else "all"
    key_facts = [
        ARRAY_FORMAT, corpus.fingerprint(), source_tokenizer.fingerprint, target_tokenizer.fingerprint, longest,
        part_name,
    ]  # fmt: skip
    key = hashlib.sha256(json.dumps(key_facts).encode()).hexdigest()
    tokenizers, pair_filter = (source_tokenizer, target_tokenizer), _PairFilter(longest, part)

    def build(folder: Path) -> None:
        write_arrays(folder, corpus, tokenizers, pair_filter, on_lines_done)

    return open_arrays(find_or_build(key, build, _FILES, cache_dir))


def open_arrays(folder: Path) -> TokenPairs:
    """Map the arrays of a directory into memory."""
    header = json.loads((folder / "header.json").read_text())
    token_type = "<u4" if header["tokens"] == "<u4" else "<u2"
    dtypes = {name: token_type if name.endswith(".tokens") else "<i8" for name in _FILES}
    # As plain arrays: slicing a `memmap` costs several times more than slicing an array over the same memory.
    arrays = [np.asarray(np.memmap(folder / name, dtype=dtypes[name], mode="r")) for name in _FILES]
    return TokenPairs(folder, folder.name, header["dropped_empty"], header["dropped_long"], *arrays)


@dataclass(frozen=True)
class _PairFilter:
    """Which pairs are used: those of one side of a split, with at most `longest` tokens."""

    longest: int
    part: SplitPart | None = None

    def has_allowed_length(self, tokens: Sequence[int]) -> bool:
        return 0 < len(tokens) <= self.longest

    def is_clearly_too_long(self, text: str) -> bool:
        return len(text) > max(_MIN_LONG_LINE_CHARACTERS, _MAX_CHARACTERS_PER_TOKEN * self.longest)


@dataclass
class _FilterCounts:
    """How many pairs were kept, and why others were dropped."""

    kept: int = 0
    empty: int = 0
    long: int = 0


@dataclass
class _PairChunk:
    """Some pairs with their line numbers, counted from 1."""

    line_numbers: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    characters: int = 0

    def add(self, line_number: int, source: str, target: str) -> None:
        self.line_numbers.append(line_number)
        self.sources.append(source)
        self.targets.append(target)
        self.characters += len(source) + len(target)

    @property
    def is_full(self) -> bool:
        return len(self.line_numbers) >= CHUNK_LINES or self.characters >= _CHUNK_CHARACTERS


def _pair_chunks(
    corpus: TextPairs, pair_filter: _PairFilter, counts: _FilterCounts, on_lines_done: OnLinesDone | None
) -> Iterator[_PairChunk]:
    # Yields the pairs worth tokenizing; the others are counted.
    chunk, number = _PairChunk(), 0
    for number, (source, target) in enumerate(corpus.pairs(), 1):
        if on_lines_done and number % _PROGRESS_EVERY_LINES == 0:
            on_lines_done(number)
        if _is_usable(source, target, pair_filter, counts):
            chunk.add(number, source, target)
        if chunk.is_full:
            yield chunk
            chunk = _PairChunk()
    yield chunk
    if on_lines_done:
        on_lines_done(number)


def _is_usable(source: str, target: str, pair_filter: _PairFilter, counts: _FilterCounts) -> bool:
    if pair_filter.part and not pair_filter.part.contains(source, target):
        return False
    if not source.strip() or not target.strip():
        counts.empty += 1
        return False
    if pair_filter.is_clearly_too_long(source) or pair_filter.is_clearly_too_long(target):
        counts.long += 1
        return False
    return True


def write_arrays(
    folder: Path,
    corpus: TextPairs,
    tokenizers: tuple[Tokenizer, Tokenizer],
    pair_filter: _PairFilter,
    on_lines_done: OnLinesDone | None,
) -> None:
    """Write the arrays of a corpus and their header into a directory."""
    dtype = "<u2" if max(map(len, tokenizers)) <= 1 << 16 else "<u4"
    counts = _FilterCounts()
    with ExitStack() as open_files:
        sources, targets = (
            open_files.enter_context(_TokenFileWriter(folder, side, dtype)) for side in ("source", "target")
        )
        lines = open_files.enter_context((folder / "lines").open("wb"))
        for chunk in _pair_chunks(corpus, pair_filter, counts, on_lines_done):
            source, target = tokenizers[0].encode_batch(chunk.sources), tokenizers[1].encode_batch(chunk.targets)
            selected = [
                index
                for index in range(len(source))
                if pair_filter.has_allowed_length(source[index]) and pair_filter.has_allowed_length(target[index])
            ]
            counts.long += len(source) - len(selected)
            counts.kept += len(selected)
            sources.append([source[index] for index in selected])
            targets.append([target[index] for index in selected])
            np.array([chunk.line_numbers[index] for index in selected], dtype="<i8").tofile(lines)
    if not counts.kept:
        raise UserError(
            f"{corpus}: no usable pair: {counts.empty:,} have an empty side and {counts.long:,} are longer than "
            f"{pair_filter.longest:,} tokens ([data] longest)."
        )
    _write_header(folder, dtype, counts)


class _TokenFileWriter:
    """Writes one side of a corpus: tokens into one file, the offset of each sequence into another."""

    def __init__(self, folder: Path, side: str, dtype: str) -> None:
        self.dtype = dtype
        self.tokens = (folder / f"{side}.tokens").open("wb")
        self.offsets = (folder / f"{side}.offsets").open("wb")
        self.end = 0
        np.zeros(1, dtype="<i8").tofile(self.offsets)

    def append(self, sequences: list[list[int]]) -> None:
        """Write sequences, each followed by END."""
        lengths = np.array([len(sequence) + 1 for sequence in sequences], dtype="<i8")
        tokens = chain.from_iterable((*sequence, END) for sequence in sequences)
        np.fromiter(tokens, dtype=self.dtype, count=int(lengths.sum())).tofile(self.tokens)
        (self.end + np.cumsum(lengths)).astype("<i8").tofile(self.offsets)
        self.end += int(lengths.sum())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tokens.close()
        self.offsets.close()


def _write_header(folder: Path, dtype: str, counts: _FilterCounts) -> None:
    header = {
        "format": ARRAY_FORMAT,
        "tokens": dtype,
        "pairs": counts.kept,
        "dropped_empty": counts.empty,
        "dropped_long": counts.long,
        "bytes": {name: (folder / name).stat().st_size for name in _FILES},
    }
    (folder / "header.json").write_text(json.dumps(header, indent=2) + "\n")
