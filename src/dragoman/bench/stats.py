"""A quantity that was measured several times, and what may be said about it."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class SampleStats:
    """What was measured, turn by turn. The median is what is reported, with the lowest and the highest beside it."""

    values: tuple[float, ...]

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "SampleStats":
        """Make a measure of the values of all turns."""
        assert values, "something was measured at least once"
        return cls(tuple(values))

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def lowest(self) -> float:
        """The lowest value."""
        return min(self.values)

    @property
    def highest(self) -> float:
        """The highest value."""
        return max(self.values)

    def format(self, format_number: Callable[[float], str]) -> str:
        """Write the median and, if there was more than one turn, the spread: "6,100 (5,900–6,200)"."""
        if len(self.values) == 1:
            return format_number(self.median)
        return f"{format_number(self.median)} ({format_number(self.lowest)}–{format_number(self.highest)})"

    def to_json(self) -> dict[str, Any]:
        """Return the median, the spread and all values as plain numbers."""
        return {"median": self.median, "lowest": self.lowest, "highest": self.highest, "values": list(self.values)}


def paired_ratio(numerator: SampleStats, denominator: SampleStats) -> SampleStats:
    """Compare turn by turn: what disturbs the machine for a while disturbs both sides of the same turn."""
    return SampleStats.from_values(
        [mine / yours for mine, yours in zip(numerator.values, denominator.values, strict=True)]
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which so many percent lie, between two neighbours where none is there exactly."""
    return float(np.percentile(values, percent))
