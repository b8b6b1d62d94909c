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

BLOCK = 1 << 22  # bytes read at a time
OPENING = 256  # bytes by which a file is known again
NUMBERS = ("step", "loss", "nll", "rate", "gradient_norm", "tokens_per_second", "seconds")


@dataclass
class Validation:
    """What a validation found."""

    step: int
    loss: float | None
    perplexity: float | None
    score: float | None  # of some examples that were tried
    measure: str  # what kind of score that is: "BLEU"
    samples: list[dict[str, str]]


@dataclass
class Metrics:
    """All that the file has said up to now."""

    training: dict[str, "array[float]"] = field(default_factory=lambda: {name: array("d") for name in NUMBERS})
    validations: list[Validation] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.training["step"])

    def take(self, entry: dict[str, Any]) -> None:
        """Take an event into account."""
        if entry["event"] == "train":
            for name, values in self.training.items():
                values.append(number(entry.get(name), nan))
        elif entry["event"] == "validation":
            loss, perplexity = (number(entry.get(name), None) for name in ("loss", "perplexity"))
            self.validations.append(Validation(entry["step"], loss, perplexity, *score(entry), samples(entry)))


class MetricsFile:
    """A metrics file that is followed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.metrics = Metrics()
        self.read_to = 0
        self.opening = b""
        self.seen: tuple[int, int, int] | None = None  # file number, size, time of change

    def refresh(self) -> bool:
        """Read what is new, and say whether there was anything."""
        try:
            there = self.path.stat()
            if identity(there) == self.seen:
                return False
            self.read(there)
            self.seen = identity(there)
        except OSError:
            had = self.seen is not None
            self.forget()
            return had
        return True

    def read(self, there: stat_result) -> None:
        """Read the whole lines that are new; of another file than last time, all."""
        with self.path.open("rb") as file:
            opening = file.read(OPENING)
            replaced = self.seen is not None and there.st_ino != self.seen[0]
            if replaced or there.st_size < self.read_to or not opening.startswith(self.opening):
                self.forget()
            self.opening = opening
            file.seek(self.read_to)
            rest = b""
            while block := file.read(BLOCK):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                self.read_to += len(whole) + len(newline)
                for entry in entries(whole):
                    self.metrics.take(entry)


def identity(there: stat_result) -> tuple[int, int, int]:
    """Return what changes whenever a file is written to or replaced."""
    return there.st_ino, there.st_size, there.st_mtime_ns


def entries(lines: bytes) -> Iterator[dict[str, Any]]:
    """Yield the events on some lines; what is none is passed over."""
    for line in lines.split(b"\n"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("event"), str) and type(entry.get("step")) is int:
            yield entry


def number(value: Any, otherwise: Any) -> Any:
    """Return a finite number, or something else in its place."""
    try:
        return float(value) if isinstance(value, int | float) and isfinite(value) else otherwise
    except OverflowError:  # a whole number of hundreds of digits
        return otherwise


def score(entry: dict[str, Any]) -> tuple[float | None, str]:
    """Return a validation's score and what kind it is; earlier versions knew one kind, and named the score after it."""
    if "bleu" in entry:
        return number(entry["bleu"], None), "BLEU"
    return number(entry.get("score"), None), str(entry.get("measure") or "")


def samples(entry: dict[str, Any]) -> list[dict[str, str]]:
    """Return the examples of a validation; earlier versions wrote one, without its reference."""
    listed = entry.get("samples")
    found = listed if isinstance(listed, list) else [entry] if entry.get("source") else []
    names = ("source", "reference", "translation")
    return [{name: str(one.get(name, "")) for name in names} for one in found if isinstance(one, dict)]
