"""A score as all metrics return it: a value, its confidence interval, and what makes it reproducible."""

from dataclasses import dataclass
from typing import Any

_HUGE = 1e7  # larger values are printed in scientific notation


@dataclass(frozen=True)
class Score:
    """The value of one metric."""

    name: str
    value: float
    interval: float | None = None  # half the width of the 95 % confidence interval; None if not computed
    counted: str = ""  # the counts behind the value, for people
    signature: str = ""  # everything besides model and texts that the value depends on
    decimals: int = 2  # to print

    def __str__(self) -> str:
        return "  ".join(filter(None, (f"{self.name} {self.number}", self.counted, self.signature)))

    @property
    def number(self) -> str:
        """The value as text, with the interval if there is one."""
        if self.value >= _HUGE:
            return f"{self.value:.2g}"
        numbers = [self.value] if self.interval is None else [self.value, self.interval]
        return " ± ".join(f"{number:.{self.decimals}f}" for number in numbers)

    def to_json(self) -> dict[str, Any]:
        """Return the score as a JSON object."""
        counted = {"counted": self.counted} if self.counted else {}
        return {
            "name": self.name, "value": self.value, "interval": self.interval, **counted, "signature": self.signature,
        }  # fmt: skip
