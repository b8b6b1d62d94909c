"""Trainings repeated with other seeds: how many a budget allows, and what may be said about their differences."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.bench.measure import Measure
from dragoman.lab.laboratory import Trained

OVERHEAD_SECONDS = 8.0  # of a training: preparing the data, validating, scoring
LEAST_SECONDS = 12.0  # a training that would be shorter is not worth a second seed

Line = tuple[list[float], list[float]]  # what goes across, and what goes up


@dataclass(frozen=True)
class Repeats:
    """How often each variant is trained, and for how long each time."""

    seeds: tuple[int, ...]
    seconds: float

    def __str__(self) -> str:
        times = f"{len(self.seeds)} times, with other seeds" if len(self.seeds) > 1 else "once"
        return f"Each was trained {times}, for {self.seconds:.0f} seconds with all cores."


def repeats(budget_seconds: float, variants: int, first_seed: int, most: int = 3) -> Repeats:
    """Share a budget out to so many variants: as many seeds as leave each training a sensible length, at least one."""
    seconds = {count: training_seconds(budget_seconds / (variants * count)) for count in range(1, most + 1)}
    count = max([count for count in seconds if seconds[count] >= LEAST_SECONDS], default=1)
    return Repeats(tuple(range(first_seed, first_seed + count)), seconds[count])


def training_seconds(share_seconds: float) -> float:
    """Return what is left of one training's share of the time beside its overhead; of a very small one, a quarter."""
    return round(max(share_seconds - OVERHEAD_SECONDS, share_seconds / 4), 2)


def over_seeds(values: Sequence[float]) -> Measure:
    """Gather one quantity over all seeds; what is not a number stays out as long as anything is left."""
    finite = [value for value in values if math.isfinite(value)]
    return Measure.of(finite or list(values))


def digits(count: int) -> Callable[[float], str]:
    """Return what writes a number with so many digits after the point."""
    return lambda value: f"{value:,.{count}f}" if math.isfinite(value) else "not finite"


def apart(first: Measure, second: Measure) -> bool:
    """Say whether no value of the one lies among the values of the other."""
    return first.lowest > second.highest or second.lowest > first.highest


def compared(what: str, named: dict[str, Measure], form: Callable[[float], str]) -> str:
    """Say in one sentence how two variants differ; a difference smaller than the spread over seeds is called none."""
    (name, first), (other_name, second) = named.items()
    both = f"{what}: {name} {first.written(form)}, {other_name} {second.written(form)}"
    count = min(len(first.values), len(second.values))
    if count < 2:
        return f"{both} (one training each: how much of the difference is chance is not known)."
    if apart(first, second):
        return f"{both}; the values of the {count} seeds do not overlap."
    return f"{both}: no difference beyond the spread over {count} seeds."


def line(trained: Trained, kind: str, value: str) -> Line:
    """Return one curve of a training over its steps: of "train" or "validation" events."""
    return line_of(trained.curve, kind, value)


def line_of(events: Sequence[dict[str, Any]], kind: str, value: str) -> Line:
    """Return one quantity of the events of a kind over the steps; events without it are passed over."""
    found = [event for event in events if event["event"] == kind and event.get(value) is not None]
    return [event["step"] for event in found], [event[value] for event in found]
