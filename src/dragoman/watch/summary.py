"""What the page shows, as one JSON document: curves of a few hundred points, however long the training was."""

from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.watch.metrics import Metrics, MetricsFile, Validation
from dragoman.watch.state import METRICS, State, state

POINTS = 300  # of a curve: more than a screen can show apart
LATEST = 50  # steps over which the present speed is taken

Points = list[list[float]]


class Watched:
    """A run that is watched; `summary` looks again each time it is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = MetricsFile(folder / METRICS)
        self.drawn: dict[str, Any] = {}

    def summary(self) -> dict[str, Any]:
        """Return the document of this moment."""
        if self.file.refresh() or not self.drawn:
            self.drawn = numbers(self.file.metrics)
        now = state(self.folder)
        return {"run": self.folder.resolve().name, **about(now), **self.drawn, "left": left(self.drawn, now)}

    def samples(self, step: int) -> list[dict[str, str]] | None:
        """Return the sentences of a validation."""
        return next((found.samples for found in self.file.metrics.validations if found.step == step), None)


def about(now: State) -> dict[str, Any]:
    """Return what is known apart from the numbers."""
    return {
        "situation": now.situation,
        "steps": now.steps,
        "facts": now.facts,
        "checkpoints": now.checkpoints,
    }


def numbers(metrics: Metrics) -> dict[str, Any]:
    """Return what follows from the metrics alone."""
    training, validations = metrics.training, metrics.validations
    with_loss = [found for found in validations if found.loss is not None]
    best = min(with_loss, key=lambda found: found.loss or 0.0, default=None)
    return {
        "step": int(training["step"][-1]) if len(metrics) else 0,
        "seconds": last(training["seconds"]),
        "speed": latest_mean(training["tokens_per_second"]),
        "pace": pace(metrics),
        "best": {"step": best.step, "loss": best.loss} if best else None,
        "curves": curves(metrics),
        "measure": next((found.measure for found in reversed(validations) if found.measure), ""),
        "validations": [found.step for found in validations],
        "samples": validations[-1].samples if validations else [],
    }


def curves(metrics: Metrics) -> dict[str, dict[str, Points]]:
    """Return every curve: a list of [step, value] for each of its lines."""
    step = as_numbers(metrics.training["step"])

    def drawn(name: str) -> Points:
        return thinned(step, as_numbers(metrics.training[name]))

    def found(name: str) -> Points:
        return validated(metrics.validations, name)

    return {
        "loss": {"training": drawn("nll"), "validation": found("loss")},
        "perplexity": {"validation": found("perplexity")},
        "score": {"validation": found("score")},
        "rate": {"training": drawn("rate")},
        "speed": {"training": drawn("tokens_per_second")},
    }


def as_numbers(values: "array[float]") -> NDArray[np.float64]:
    """Return a copy that does not hold the growing array fast."""
    return np.array(values, dtype=np.float64)


def thinned(steps: NDArray[np.float64], values: NDArray[np.float64]) -> Points:
    """Return at most POINTS points, each the mean of its neighbours; the last step stays the last."""
    known = np.isfinite(values)
    steps, values = steps[known], values[known]
    if len(steps) <= POINTS:
        return pairs(steps, values)
    starts = np.linspace(0, len(steps), POINTS, endpoint=False).astype(int)
    sizes = np.diff([*starts, len(steps)])
    means = np.add.reduceat(values, starts) / sizes
    return pairs(steps[starts + sizes - 1], means)


def validated(validations: list[Validation], name: str) -> Points:
    """Return one number of every validation that has it."""
    found = [(one.step, getattr(one, name)) for one in validations if getattr(one, name) is not None]
    every = -(-len(found) // POINTS) or 1
    kept = found[::-1][::every][::-1]  # the newest stays
    return pairs(*zip(*kept, strict=True)) if kept else []


def pairs(steps: Iterable[float], values: Iterable[float]) -> Points:
    """Return points with as many digits as can be seen."""
    return [[int(step), float(f"{value:.5g}")] for step, value in zip(steps, values, strict=True)]


def last(values: "array[float]") -> float | None:
    """Return the last value, if it is a number."""
    return values[-1] if values and np.isfinite(values[-1]) else None


def latest_mean(values: "array[float]") -> float | None:
    """Return the mean of the latest values."""
    latest = as_numbers(values[-LATEST:])
    latest = latest[np.isfinite(latest)]
    return float(latest.mean()) if len(latest) else None


def pace(metrics: Metrics) -> float | None:
    """Return the seconds that a step takes at present."""
    seconds, steps = metrics.training["seconds"][-LATEST:], metrics.training["step"][-LATEST:]
    if len(steps) < 2 or steps[-1] <= steps[0]:
        return None
    each = (seconds[-1] - seconds[0]) / (steps[-1] - steps[0])
    return each if np.isfinite(each) and each >= 0 else None


def left(drawn: dict[str, Any], now: State) -> float | None:
    """Return the seconds that a training that goes on will still take, if it does not end early."""
    if now.situation != "training" or now.steps is None or drawn["pace"] is None:
        return None
    return max(0.0, (now.steps - float(drawn["step"])) * float(drawn["pace"]))
