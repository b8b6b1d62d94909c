"""Token arrays: a corpus as ids, made once, kept on disk, and mapped into memory rather than read.

A folder of flat files, little-endian: the tokens of all sources one after another, where each begins, the same for
targets, and the line number of every pair that was kept. `header.json` counts them. The folder's name is the hash of
all that its content depends on, and it appears under that name complete or not at all.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dragoman.cache import atomic_directory, default_cache_dir, remove_abandoned, remove_directory
from dragoman.data.chunks import FilterCounts, OnLinesDone, PairFilter, pair_chunks
from dragoman.data.corpus import TextPairs
from dragoman.data.split import SplitPart
from dragoman.errors import UserError
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END

ARRAY_FORMAT = 1
_FILES = ("source.tokens", "source.offsets", "target.tokens", "target.offsets", "lines")

Array = npt.NDArray[Any]


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
    repeats = 1  # how often a token of the corpus is among them

    def __len__(self) -> int:
        return len(self.line_numbers)

    @cached_property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of every source, END included."""
        return np.diff(self.source_offsets).astype(np.int32)

    @cached_property
    def target_lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of every target, END included."""
        return (self.target_ends - self.target_offsets[:-1]).astype(np.int32)

    @cached_property
    def costs(self) -> npt.NDArray[np.int32]:
        """The length of the longer side of every pair, by which batches are made."""
        return np.maximum(self.source_lengths, self.target_lengths)

    @cached_property
    def target_ends(self) -> Array:
        """Where every target ends: where the next begins."""
        return self.target_offsets[1:]

    def source(self, number: int) -> Array:
        """Return the tokens of a source, with END."""
        return self.source_tokens[self.source_offsets[number] : self.source_offsets[number + 1]]

    def target(self, number: int) -> Array:
        """Return the tokens of a target, with END."""
        return self.target_tokens[self.target_offsets[number] : self.target_ends[number]]


def tokenize_corpus(
    corpus: TextPairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    longest: int,
    cache_dir: str | PathLike[str] | None = None,
    on_lines_done: OnLinesDone | None = None,
    part: SplitPart | None = None,
) -> TokenPairs:
    """Cut a corpus into tokens, or find it cut already; `progress` hears how many lines have been done."""
    key = _cache_key(corpus, source_tokenizer, target_tokenizer, longest, part)
    tokenizers, rule = (source_tokenizer, target_tokenizer), PairFilter(longest, part)
    return open_arrays(
        find_or_build(key, cache_dir, lambda folder: write_arrays(folder, corpus, tokenizers, rule, on_lines_done))
    )


def find_or_build(
    key: str, cache_dir: str | PathLike[str] | None, build: Callable[[Path], None], files: Sequence[str] = _FILES
) -> Path:
    """Return the folder of this name in the cache; if it is not there, or some file in it is damaged, `fill` it."""
    cache = Path(cache_dir) if cache_dir is not None else default_cache_dir()
    folder = cache / key
    if not _is_intact(folder, files):
        try:
            remove_abandoned(cache)
            if folder.exists() and not _is_intact(folder, files):
                remove_directory(folder)
            with atomic_directory(folder) as unfinished:
                build(unfinished)
        except OSError as error:
            raise UserError(
                f"{cache}: prepared data cannot be written there ({error.strerror or error}); "
                "make room, or name another folder in DRAGOMAN_CACHE."
            ) from None
    return folder


def _cache_key(corpus: TextPairs, source: Tokenizer, target: Tokenizer, longest: int, keep: SplitPart | None) -> str:
    """Return the hash of everything that the arrays depend on."""
    part = keep.fingerprint if keep else "all"
    facts = [ARRAY_FORMAT, corpus.fingerprint(), source.fingerprint, target.fingerprint, longest, part]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _is_intact(folder: Path, files: Sequence[str] = _FILES) -> bool:
    """Tell whether the folder holds arrays of the sizes that its header says."""
    try:
        header = json.loads((folder / "header.json").read_text())
        return all((folder / name).stat().st_size == header["bytes"][name] for name in files)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def open_arrays(folder: Path) -> TokenPairs:
    """Map the arrays of a folder into memory."""
    header = json.loads((folder / "header.json").read_text())
    kinds = dict.fromkeys(_FILES, "<i8") | {name: header["tokens"] for name in _FILES if name.endswith(".tokens")}
    # As plain arrays: cutting a `memmap` costs several times more than cutting an array over the same memory.
    arrays = [np.asarray(np.memmap(folder / name, dtype=kinds[name], mode="r")) for name in _FILES]
    return TokenPairs(folder, folder.name, header["dropped_empty"], header["dropped_long"], *arrays)


def write_arrays(
    folder: Path,
    corpus: TextPairs,
    tokenizers: tuple[Tokenizer, Tokenizer],
    pair_filter: PairFilter,
    on_lines_done: OnLinesDone | None,
) -> None:
    """Fill the folder with the arrays of a corpus and their header."""
    kind = "<u2" if max(map(len, tokenizers)) <= 1 << 16 else "<u4"
    tally = FilterCounts()
    with ExitStack() as open_files:
        sources, targets = (
            open_files.enter_context(_TokenFileWriter(folder, side, kind)) for side in ("source", "target")
        )
        lines = open_files.enter_context((folder / "lines").open("wb"))
        for chunk in pair_chunks(corpus, pair_filter, tally, on_lines_done):
            source, target = tokenizers[0].encode_batch(chunk.sources), tokenizers[1].encode_batch(chunk.targets)
            fitting = [
                i
                for i in range(len(source))
                if pair_filter.has_allowed_length(source[i]) and pair_filter.has_allowed_length(target[i])
            ]
            tally.long += len(source) - len(fitting)
            tally.kept += len(fitting)
            sources.append([source[i] for i in fitting])
            targets.append([target[i] for i in fitting])
            np.array([chunk.line_numbers[i] for i in fitting], dtype="<i8").tofile(lines)
    if not tally.kept:
        raise _no_usable_pairs_error(corpus, tally, pair_filter)
    _write_header(folder, kind, tally)


class _TokenFileWriter:
    """One side of the corpus on its way to disk: tokens in one file, where each sequence begins in another."""

    def __init__(self, folder: Path, side: str, kind: str) -> None:
        self.kind = kind
        self.tokens = (folder / f"{side}.tokens").open("wb")
        self.offsets = (folder / f"{side}.offsets").open("wb")
        self.end = 0
        np.zeros(1, dtype="<i8").tofile(self.offsets)

    def append(self, sequences: list[list[int]]) -> None:
        """Write the sequences, each with END behind it."""
        lengths = np.array([len(sequence) + 1 for sequence in sequences], dtype="<i8")
        tokens = chain.from_iterable((*sequence, END) for sequence in sequences)
        np.fromiter(tokens, dtype=self.kind, count=int(lengths.sum())).tofile(self.tokens)
        (self.end + np.cumsum(lengths)).astype("<i8").tofile(self.offsets)
        self.end += int(lengths.sum())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tokens.close()
        self.offsets.close()


def _write_header(folder: Path, kind: str, counts: FilterCounts) -> None:
    """Write what the arrays hold, with their sizes, by which a damaged folder is known."""
    header = {
        "format": ARRAY_FORMAT,
        "tokens": kind,
        "pairs": counts.kept,
        "dropped_empty": counts.empty,
        "dropped_long": counts.long,
        "bytes": {name: (folder / name).stat().st_size for name in _FILES},
    }
    (folder / "header.json").write_text(json.dumps(header, indent=2) + "\n")


def _no_usable_pairs_error(corpus: TextPairs, counts: FilterCounts, pair_filter: PairFilter) -> UserError:
    """Say why no pair is left."""
    return UserError(
        f"{corpus}: no usable pair: {counts.empty:,} are empty on a side and {counts.long:,} are longer than "
        f"{pair_filter.longest:,} pieces ([data] longest)."
    )
