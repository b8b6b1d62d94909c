"""The metrics of a training, read incrementally from metrics.jsonl.

Another process writes the file: its last line may be incomplete, it may not exist yet, and it may be replaced at any
time. What cannot be read is read at the next refresh.
"""

import json
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from math import isfinite, nan
from os import stat_result
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.run import MAX_LINE_BYTES, Run

_READ_BYTES = 1 << 22  # bytes read at a time
_SIGNATURE_BYTES = 256  # first bytes, which identify a file
_TRAINING_FIELDS = ("step", "loss", "nll", "rate", "gradient_norm", "tokens_per_second", "seconds")


@dataclass
class ValidationEntry:
    """The results of one validation."""

    step: int
    loss: float | None
    perplexity: float | None
    score: float | None  # of the samples
    measure: str  # the name of the score, as "BLEU"
    samples: list[dict[str, str]]


@dataclass
class MetricsHistory:
    """All entries that were read."""

    training: dict[str, "array[float]"] = field(default_factory=lambda: {name: array("d") for name in _TRAINING_FIELDS})
    validations: list[ValidationEntry] = field(default_factory=list)
    last_step: int | None = None  # if an earlier end than the recipe's was planned

    def __len__(self) -> int:
        return len(self.training["step"])

    def add(self, entry: dict[str, Any]) -> None:
        """Add an entry."""
        if entry["event"] == "train":
            for name, values in self.training.items():
                values.append(_finite_or(entry.get(name), nan))
        elif entry["event"] == "validation":
            loss, perplexity = (_finite_or(entry.get(name), None) for name in ("loss", "perplexity"))
            self.validations.append(
                ValidationEntry(entry["step"], loss, perplexity, *_validation_score(entry), _validation_samples(entry))
            )
        elif entry["event"] == "replan" and type(entry.get("last_step")) is int:
            self.last_step = entry["last_step"]


class MetricsFile:
    """A growing metrics file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reset()

    def reset(self) -> None:
        """Discard everything that was read."""
        self.metrics = MetricsHistory()
        self.offset = 0
        self.signature = b""
        self.file_identity: tuple[int, int, int] | None = None  # inode, size, modification time

    def refresh(self) -> bool:
        """Read new entries and return whether the file has changed."""
        try:
            with Run(self.path.parent).open_file(self.path) as file:
                stat = os.fstat(file.fileno())
                if _file_identity(stat) == self.file_identity:
                    return False
                self._read_new_lines(file, stat)
            self.file_identity = _file_identity(stat)
        except (OSError, UserError):
            existed = self.file_identity is not None
            self.reset()
            return existed
        return True

    def _read_new_lines(self, file: BufferedReader, there: stat_result) -> None:
        """Read the complete new lines, or all lines if the file was replaced."""
        opening = file.read(_SIGNATURE_BYTES)
        replaced = self.file_identity is not None and there.st_ino != self.file_identity[0]
        if replaced or there.st_size < self.offset or not opening.startswith(self.signature):
            self.reset()
        self.signature = opening
        file.seek(self.offset)
        rest = b""
        while block := file.read(_READ_BYTES):
            whole, newline, rest = (rest + block).rpartition(b"\n")
            self.offset += len(whole) + len(newline)
            for entry in _parse_entries(whole):
                self.metrics.add(entry)
            if len(rest) > MAX_LINE_BYTES:  # no event of a training; its remainder is not valid JSON either
                self.offset, rest = self.offset + len(rest), b""


def _file_identity(there: stat_result) -> tuple[int, int, int]:
    return there.st_ino, there.st_size, there.st_mtime_ns


def _parse_entries(lines: bytes) -> Iterator[dict[str, Any]]:
    """Yield the entries of some lines; other lines are skipped."""
    for line in lines.split(b"\n"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("event"), str) and type(entry.get("step")) is int:
            yield entry


def _finite_or(value: Any, default: Any) -> Any:
    """Return a finite number as a float, or the default."""
    try:
        return float(value) if isinstance(value, int | float) and isfinite(value) else default
    except OverflowError:  # an integer that is too large for a float
        return default


def _validation_score(entry: dict[str, Any]) -> tuple[float | None, str]:
    """Return the score of a validation and its name; early versions wrote "bleu" only."""
    if "bleu" in entry:
        return _finite_or(entry["bleu"], None), "BLEU"
    return _finite_or(entry.get("score"), None), str(entry.get("measure") or "")


def _validation_samples(entry: dict[str, Any]) -> list[dict[str, str]]:
    """Return the samples of a validation; early versions wrote a single one, without a reference."""
    listed = entry.get("samples")
    samples = listed if isinstance(listed, list) else [entry] if entry.get("source") else []
    names = ("source", "reference", "translation")
    return [{name: str(sample.get(name, "")) for name in names} for sample in samples if isinstance(sample, dict)]
