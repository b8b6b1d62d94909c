"""The numbers of a training, read from metrics.jsonl as it grows.

The file is somebody else's: its last line may be half written, it may not be there yet, and it may be replaced by
another at any moment. What cannot be read now is read next time.
"""

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite, nan
from os import stat_result
from pathlib import Path
from typing import Any

_READ_BYTES = 1 << 22  # bytes read at a time
_SIGNATURE_BYTES = 256  # bytes by which a file is known again
_TRAINING_FIELDS = ("step", "loss", "nll", "rate", "gradient_norm", "tokens_per_second", "seconds")


@dataclass
class ValidationEntry:
    """What a validation found."""

    step: int
    loss: float | None
    perplexity: float | None
    score: float | None  # of some examples that were tried
    measure: str  # what kind of score that is: "BLEU"
    samples: list[dict[str, str]]


@dataclass
class MetricsHistory:
    """All that the file has said up to now."""

    training: dict[str, "array[float]"] = field(default_factory=lambda: {name: array("d") for name in _TRAINING_FIELDS})
    validations: list[ValidationEntry] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.training["step"])

    def add(self, entry: dict[str, Any]) -> None:
        """Take an event into account."""
        if entry["event"] == "train":
            for name, values in self.training.items():
                values.append(_finite_or(entry.get(name), nan))
        elif entry["event"] == "validation":
            loss, perplexity = (_finite_or(entry.get(name), None) for name in ("loss", "perplexity"))
            self.validations.append(
                ValidationEntry(entry["step"], loss, perplexity, *_validation_score(entry), _validation_samples(entry))
            )


class MetricsFile:
    """A metrics file that is followed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.metrics = MetricsHistory()
        self.offset = 0
        self.signature = b""
        self.file_identity: tuple[int, int, int] | None = None  # file number, size, time of change

    def refresh(self) -> bool:
        """Read what is new, and say whether there was anything."""
        try:
            there = self.path.stat()
            if _file_identity(there) == self.file_identity:
                return False
            self._read_new_lines(there)
            self.file_identity = _file_identity(there)
        except OSError:
            had = self.file_identity is not None
            self.reset()
            return had
        return True

    def _read_new_lines(self, there: stat_result) -> None:
        """Read the whole lines that are new; of another file than last time, all."""
        with self.path.open("rb") as file:
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


def _file_identity(there: stat_result) -> tuple[int, int, int]:
    """Return what changes whenever a file is written to or replaced."""
    return there.st_ino, there.st_size, there.st_mtime_ns


def _parse_entries(lines: bytes) -> Iterator[dict[str, Any]]:
    """Yield the events on some lines; what is none is passed over."""
    for line in lines.split(b"\n"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("event"), str) and type(entry.get("step")) is int:
            yield entry


def _finite_or(value: Any, default: Any) -> Any:
    """Return a finite number, or something else in its place."""
    try:
        return float(value) if isinstance(value, int | float) and isfinite(value) else default
    except OverflowError:  # a whole number of hundreds of digits
        return default


def _validation_score(entry: dict[str, Any]) -> tuple[float | None, str]:
    """Return a validation's score and what kind it is; earlier versions knew one kind, and named the score after it."""
    if "bleu" in entry:
        return _finite_or(entry["bleu"], None), "BLEU"
    return _finite_or(entry.get("score"), None), str(entry.get("measure") or "")


def _validation_samples(entry: dict[str, Any]) -> list[dict[str, str]]:
    """Return the examples of a validation; earlier versions wrote one, without its reference."""
    listed = entry.get("samples")
    found = listed if isinstance(listed, list) else [entry] if entry.get("source") else []
    names = ("source", "reference", "translation")
    return [{name: str(one.get(name, "")) for name in names} for one in found if isinstance(one, dict)]
