"""A parallel corpus on disk: where its pairs are, and whether its files belong together line by line."""

import hashlib
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dragoman.data.lines import OnFileNotice, read_line_blocks, read_lines
from dragoman.errors import UserError

FilePath = str | PathLike[str]
Pair = tuple[str, str]
_FloatArray = npt.NDArray[np.float64]

_MIN_LINES = 20  # below this a person finds the place sooner than statistics do
# Lines that belong together mismatch by 0.2 to 0.65 of what strangers do (Multi30k, NTREX, Tanaka).
_CLEAR_MISMATCH_RATIO = 0.7


class TextPairs(Protocol):
    """Pairs of texts on disk, whatever format they are stored in: what a model reads, and what it should write."""

    def __str__(self) -> str:
        """Name the files."""

    def count_pairs(self) -> int:
        """Read everything once, refuse what is malformed, and return the number of pairs."""

    def fingerprint(self) -> str:
        """Return the SHA-256 of all that the pairs depend on."""

    def notices(self) -> tuple[str, ...]:
        """Return what was taken off the text on the way in, one sentence each."""

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair, in order."""


@dataclass(frozen=True)
class CorpusScan:
    """What one pass over the files found."""

    count: int  # pairs
    fingerprint: str  # of the lines, whether or not they are packed, or end in CRLF
    notices: tuple[str, ...]


class ScannedCorpus(ABC):
    """Pairs on disk of which one pass over the files tells all there is to know."""

    @property
    @abstractmethod
    def scan(self) -> CorpusScan:
        """Read everything, refuse what is malformed, and say what was found; made once."""

    def count_pairs(self) -> int:
        """Read everything once, refuse what is malformed, and return the number of pairs."""
        return self.scan.count

    def fingerprint(self) -> str:
        """Return the SHA-256 of what was read."""
        return self.scan.fingerprint

    def notices(self) -> tuple[str, ...]:
        """Return what was taken off the text on the way in, one sentence each."""
        return self.scan.notices


@dataclass(frozen=True)
class ParallelCorpus(ScannedCorpus):
    """Sentence pairs in two files, line by line, or in one file with a tab between source and target."""

    files: tuple[Path, ...]

    @classmethod
    def from_files(
        cls, source: FilePath | None = None, target: FilePath | None = None, pairs: FilePath | None = None
    ) -> "ParallelCorpus":
        """Name the files of a corpus: source and target, or pairs."""
        if pairs is not None and source is None and target is None:
            return cls((Path(pairs),))
        if source is not None and target is not None and pairs is None:
            return cls((Path(source), Path(target)))
        raise UserError("A parallel text is two files, source and target, or one file of tab-separated pairs.")

    def __str__(self) -> str:
        return " and ".join(str(file) for file in self.files)

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair, in order."""
        if len(self.files) == 1:
            return _read_tab_separated_pairs(self.files[0])
        return _read_aligned_pairs(*self.files)

    @cached_property
    def scan(self) -> CorpusScan:
        """The number of pairs, and the SHA-256 of the lines."""
        for file in self.files:
            check_regular_file(file)
        notices: list[str] = []
        readings = [_count_and_hash_lines(file, notices.append) for file in self.files]
        if len({count for count, _ in readings}) > 1:
            raise _different_line_counts_error(self.files, [count for count, _ in readings])
        if len(self.files) == 1:
            for _ in self.pairs():  # every line has its tab
                pass
        digest = hashlib.sha256("".join(digest for _, digest in readings).encode()).hexdigest()
        return CorpusScan(readings[0][0], digest, tuple(dict.fromkeys(notices)))


def select_pairs(corpus: TextPairs, line_numbers: Iterable[int]) -> list[Pair]:
    """Return the pairs of these numbers (counted from 1), in the order of the file."""
    wanted = {int(number) for number in line_numbers}
    last = max(wanted, default=0)
    found = []
    for number, pair in enumerate(corpus.pairs(), 1):
        if number in wanted:
            found.append(pair)
        if number >= last:
            break
    return found


def check_regular_file(file: Path) -> None:
    """Object to what can be read only once."""
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError):
        return  # reading it will say more
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(f"{file}: is a pipe or a device; the text is read more than once, so save it to a file first.")


def _count_and_hash_lines(file: Path, on_notice: OnFileNotice) -> tuple[int, str]:
    """Return the number of lines in a file and their SHA-256."""
    digest, count = hashlib.sha256(), 0
    for lines in read_line_blocks(file, on_notice):
        count += len(lines)
        digest.update("".join(f"{line}\n" for line in lines).encode())
    return count, digest.hexdigest()


def _read_aligned_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """Yield line n of one file with line n of the other."""
    for source_line, target_line in zip_longest(read_lines(source), read_lines(target)):
        if source_line is None or target_line is None:
            files = (source, target)
            raise _different_line_counts_error(files, [sum(map(len, read_line_blocks(file))) for file in files])
        yield source_line, target_line


def _read_tab_separated_pairs(file: Path) -> Iterator[Pair]:
    """Yield source and target of every line; an empty line is an empty pair."""
    for number, line in enumerate(read_lines(file), 1):
        columns = line.split("\t")
        if len(columns) == 2:
            yield columns[0], columns[1]
        elif not line.strip(" "):
            yield "", ""
        else:
            raise _wrong_columns_error(file, number, line, len(columns))


def _wrong_columns_error(file: Path, number: int, line: str, columns: int) -> UserError:
    """Say which line is not source, tab, target."""
    start = line if len(line) <= 60 else line[:60] + "…"
    if columns == 1:
        return UserError(f"{file}: line {number:,} has no tab between source and target: {start!r}.")
    return UserError(
        f"{file}: line {number:,} has {columns - 1} tabs; expected one, between source and target: {start!r}. "
        f"`cut -f1,2` keeps the first two columns."
    )


def _different_line_counts_error(files: tuple[Path, ...], counts: list[int]) -> UserError:
    """Say how many lines the files have, and where they seem to part."""
    source, target = files
    words = f"{source} has {counts[0]:,} lines but {target} has {counts[1]:,}"
    matching = _find_misalignment(
        [len(line) for line in read_lines(source)], [len(line) for line in read_lines(target)]
    )
    if matching is None:
        return UserError(f"{words}; line n of one must translate line n of the other.")
    if matching >= min(counts):
        return UserError(f"{words}; up to there they seem to match, so lines are missing or left over at the end.")
    longer = source if counts[0] > counts[1] else target
    return UserError(
        f"{words}; line n of one must translate line n of the other. "
        f"Lengths stop matching near line {matching + 1:,}: look there for lines that only {longer} has."
    )


def _find_misalignment(source: Sequence[int], target: Sequence[int]) -> int | None:
    """Return how many lines match, judged by their lengths, before one file has lines that the other lacks.

    Long lines have long translations. So for every place we ask how well lengths agree if the files are in step up to
    it and apart by the surplus lines behind it, and take the best. None: the lengths do not tell.
    """
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


def _log_lengths(lengths: Sequence[int]) -> _FloatArray:
    """Return lengths on a scale on which a translation is a constant step away."""
    return np.log(np.asarray(lengths, dtype=np.float64) + 1.0)


def _length_mismatch(longer: _FloatArray, shorter: _FloatArray) -> _FloatArray:
    """Return, line by line, how far the ratio of lengths is from the usual one."""
    ratio = longer - shorter
    return np.abs(ratio - np.median(ratio))


def _shuffled_mismatch(longer: _FloatArray, shorter: _FloatArray) -> float:
    """Return the mean mismatch of lines that have nothing to do with each other."""
    half = len(shorter) // 2
    return float(_length_mismatch(np.roll(longer[: len(shorter)], half), shorter).mean())
