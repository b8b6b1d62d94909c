"""Parallel corpora on disk: their pairs, and a check that two files belong together line by line."""

import hashlib
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from os import PathLike
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dragoman.data.lines import Entry, OnFileNotice, read_line_blocks, read_lines
from dragoman.data.pair_files import check_is_text, read_opening, read_pair_file
from dragoman.errors import UserError, format_count
from dragoman.text.languages import Languages

FilePath = str | PathLike[str]
Pair = tuple[str, str]
_LengthArray = npt.NDArray[np.float64]

_MIN_LINES = 20  # with fewer, statistics say nothing
# The mismatch of parallel lines is 0.2 to 0.65 of that of unrelated lines (Multi30k, NTREX, Tanaka).
_CLEAR_MISMATCH_RATIO = 0.7


class TextPairs(Protocol):
    """Pairs of a source text and a target text on disk, in any format."""

    def __str__(self) -> str:
        """Return the names of the files."""

    def count_pairs(self) -> int:
        """Read everything once, raise if it is malformed, and return the number of pairs."""

    def fingerprint(self) -> str:
        """Return the SHA-256 digest of everything that the pairs depend on."""

    def notices(self) -> tuple[str, ...]:
        """Return what was removed from the text while reading it, one sentence each."""

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair, in order."""


@dataclass(frozen=True)
class CorpusScan:
    """The results of one pass over the files."""

    count: int  # pairs
    fingerprint: str  # of the text; the same if it is gzipped or its lines end in CRLF
    notices: tuple[str, ...]


class ScannedCorpus(ABC):
    """Pairs on disk that are described by one pass over the files."""

    @property
    @abstractmethod
    def scan(self) -> CorpusScan:
        """The results of reading everything; computed once."""

    def count_pairs(self) -> int:
        """Read everything once, raise if it is malformed, and return the number of pairs."""
        return self.scan.count

    def fingerprint(self) -> str:
        """Return the SHA-256 digest of what was read."""
        return self.scan.fingerprint

    def notices(self) -> tuple[str, ...]:
        """Return what was removed from the text while reading it, one sentence each."""
        return self.scan.notices


@dataclass(frozen=True)
class ParallelCorpus(ScannedCorpus):
    """Sentence pairs in two files, line by line, or in one file of pairs (tab-separated text, CSV, JSONL or TMX)."""

    files: tuple[Path, ...]
    languages: Languages | None = None  # the columns, keys or languages of a file of pairs
    label: str = ""  # put before every source

    @classmethod
    def from_files(
        cls,
        source: FilePath | None = None,
        target: FilePath | None = None,
        pairs: FilePath | None = None,
        *,
        languages: Languages | None = None,
        label: str = "",
    ) -> "ParallelCorpus":
        """Return the corpus of two files, source and target, or of one file of pairs.

        `languages` choose source and target in a file of pairs: names of columns or keys, or language codes.
        """
        if pairs is not None and source is None and target is None:
            return cls((Path(pairs),), languages, label)
        if source is not None and target is not None and pairs is None:
            return cls((Path(source), Path(target)), label=label)
        raise UserError("A parallel corpus is two files, source and target, or one file of pairs.")

    def __str__(self) -> str:
        return " and ".join(str(file) for file in self.files)

    @property
    def parts(self) -> tuple["ParallelCorpus", ...]:
        """The corpus itself."""
        return (self,)

    def entries(self, on_notice: OnFileNotice | None = None) -> Iterator[Entry]:
        """Yield every pair, without its label, with the line of the file where it begins."""
        if len(self.files) == 1:
            return read_pair_file(self.files[0], self.languages, on_notice)
        return ((number, *pair) for number, pair in enumerate(_read_aligned_pairs(*self.files), 1))

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair, in order."""
        if self.label:
            return ((f"{label_token(self.label)} {source}", target) for _, source, target in self.entries())
        if len(self.files) == 1:
            return ((source, target) for _, source, target in self.entries())
        return _read_aligned_pairs(*self.files)

    @cached_property
    def scan(self) -> CorpusScan:
        """The number of pairs, and the SHA-256 digest of their text."""
        for file in self.files:
            check_regular_file(file)
        notices: list[str] = []
        if len(self.files) == 1:
            readings = [_count_and_hash_entries(self.entries(notices.append))]
        else:
            for file in self.files:
                check_is_text(file, read_opening(file))
            readings = [_count_and_hash_lines(file, notices.append) for file in self.files]
        if len({count for count, _ in readings}) > 1:
            raise _different_line_counts_error(self.files, [count for count, _ in readings])
        if not readings[0][0]:
            raise UserError(f"{self}: there are no pairs.")
        digests = [digest for _, digest in readings] + ([self.label] if self.label else [])
        digest = hashlib.sha256("".join(digests).encode()).hexdigest()
        return CorpusScan(readings[0][0], digest, tuple(dict.fromkeys(notices)))


@dataclass(frozen=True)
class CombinedCorpus(ScannedCorpus):
    """Several parallel corpora, one after the other."""

    parts: tuple[ParallelCorpus, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair, in order."""
        return chain.from_iterable(part.pairs() for part in self.parts)

    @cached_property
    def scan(self) -> CorpusScan:
        """The number of all pairs, and the SHA-256 digest of the digests of the parts."""
        scans = [part.scan for part in self.parts]
        digest = hashlib.sha256("".join(scan.fingerprint for scan in scans).encode()).hexdigest()
        notices = dict.fromkeys(notice for scan in scans for notice in scan.notices)
        return CorpusScan(sum(scan.count for scan in scans), digest, tuple(notices))


AnyParallelCorpus = ParallelCorpus | CombinedCorpus


def label_token(name: str) -> str:
    """Return a label as the model reads it."""
    return f"<{name}>"


def select_pairs(corpus: TextPairs, line_numbers: Iterable[int]) -> list[Pair]:
    """Return the pairs with these line numbers (counted from 1), in the order of the file."""
    numbers = {int(number) for number in line_numbers}
    last = max(numbers, default=0)
    selected = []
    for number, pair in enumerate(corpus.pairs(), 1):
        if number in numbers:
            selected.append(pair)
        if number >= last:
            break
    return selected


def check_regular_file(file: Path) -> None:
    """Raise if a file is a pipe or a device, which can be read only once."""
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError):
        return  # reading the file raises a better error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(f"{file}: is a pipe or a device, which can be read only once; save the text to a file first.")


def _count_and_hash_entries(entries: Iterable[Entry]) -> tuple[int, str]:
    # As the lines of tab-separated pairs, whatever the format: the same pairs have the same digest in each.
    digest, count = hashlib.sha256(), 0
    for _, source, target in entries:
        count += 1
        digest.update(f"{source}\t{target}\n".encode() if source or target else b"\n")
    return count, digest.hexdigest()


def _count_and_hash_lines(file: Path, on_notice: OnFileNotice) -> tuple[int, str]:
    digest, count = hashlib.sha256(), 0
    for lines in read_line_blocks(file, on_notice):
        count += len(lines)
        digest.update("".join(f"{line}\n" for line in lines).encode())
    return count, digest.hexdigest()


def _read_aligned_pairs(source: Path, target: Path) -> Iterator[Pair]:
    for source_line, target_line in zip_longest(read_lines(source), read_lines(target)):
        if source_line is None or target_line is None:
            files = (source, target)
            raise _different_line_counts_error(files, [sum(map(len, read_line_blocks(file))) for file in files])
        yield source_line, target_line


def _different_line_counts_error(files: tuple[Path, ...], counts: list[int]) -> UserError:
    source, target = files
    message = f"{source} has {format_count(counts[0], 'line')} but {target} has {counts[1]:,}"
    matching = _find_misalignment(
        [len(line) for line in read_lines(source)], [len(line) for line in read_lines(target)]
    )
    if matching is None:
        return UserError(f"{message}; the files must be aligned line by line.")
    if matching >= min(counts):
        return UserError(
            f"{message}; the shorter file seems to match the start of the longer one. Check the end of both files."
        )
    longer = source if counts[0] > counts[1] else target
    return UserError(
        f"{message}; the files must be aligned line by line. "
        f"The line lengths stop matching near line {matching + 1:,}; check for extra lines in {longer} there."
    )


def _find_misalignment(source: Sequence[int], target: Sequence[int]) -> int | None:
    # Returns how many lines match before one file has lines that the other lacks, or None if the lengths do not tell.
    # Long lines have long translations: for every line we compute how well the lengths agree if the files are in step
    # before it and shifted by the surplus lines after it, and take the best.
    if len(source) < len(target):
        source, target = target, source
    longer, shorter = _log_lengths(source), _log_lengths(target)
    count, surplus = len(shorter), len(longer) - len(shorter)
    if count < _MIN_LINES:
        return None
    in_step = _length_mismatch(longer[:count], shorter)
    apart = _length_mismatch(longer[surplus:], shorter)
    cost = np.concatenate([[0.0], np.cumsum(in_step)]) + np.concatenate([np.cumsum(apart[::-1])[::-1], [0.0]])
    best = int(np.argmin(cost))
    return best if cost[best] < _CLEAR_MISMATCH_RATIO * _shuffled_mismatch(longer, shorter) * count else None


def _log_lengths(lengths: Sequence[int]) -> _LengthArray:
    # On this scale, the difference between a line and its translation is about constant.
    return np.log(np.asarray(lengths, dtype=np.float64) + 1.0)


def _length_mismatch(longer: _LengthArray, shorter: _LengthArray) -> _LengthArray:
    # Per line: how far the ratio of lengths is from the median.
    ratio = longer - shorter
    return np.abs(ratio - np.median(ratio))


def _shuffled_mismatch(longer: _LengthArray, shorter: _LengthArray) -> float:
    # The mean mismatch of unrelated lines.
    half = len(shorter) // 2
    return float(_length_mismatch(np.roll(longer[: len(shorter)], half), shorter).mean())
