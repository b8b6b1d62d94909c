"""Statistics of a quantity that was measured several times."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.report import format_number


@dataclass(frozen=True)
class SampleStats:
    """The values of all turns; reports show their median, minimum and maximum."""

    values: tuple[float, ...]

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "SampleStats":
        """Return the statistics of these values."""
        assert values, "at least one value was measured"
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
        """Return the median and, if there are several values, the range: "6,100 (5,900–6,200)"."""
        if len(self.values) == 1:
            return format_number(self.median)
        return f"{format_number(self.median)} ({format_number(self.lowest)}–{format_number(self.highest)})"

    def __format__(self, spec: str) -> str:
        return self.format(lambda number: format_number(number, spec))

    def to_json(self) -> dict[str, Any]:
        """Return the median, the range and all values as plain numbers."""
        return {"median": self.median, "lowest": self.lowest, "highest": self.highest, "values": list(self.values)}


def paired_ratio(numerator: SampleStats, denominator: SampleStats) -> SampleStats:
    """Return the ratios of each round, in which both sides met the same load of the machine."""
    return SampleStats.from_values([a / b for a, b in zip(numerator.values, denominator.values, strict=True)])
