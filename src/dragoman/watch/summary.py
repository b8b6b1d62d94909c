"""What the page shows, as one JSON document: curves of a few hundred points, however long the training was."""

from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.watch.metrics import MetricsFile, MetricsHistory, ValidationEntry
from dragoman.watch.run_status import METRICS_FILE, RunStatus, run_status

MAX_POINTS = 300  # of a curve: more than a screen can show apart
_RECENT_STEPS = 50  # steps over which the present speed is taken

CurvePoints = list[list[float]]


class WatchedRun:
    """A run that is watched; `summary` looks again each time it is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = MetricsFile(folder / METRICS_FILE)
        self.metrics_summary: dict[str, Any] = {}

    def summary(self) -> dict[str, Any]:
        """Return the document of this moment."""
        if self.file.refresh() or not self.metrics_summary:
            self.metrics_summary = _metrics_fields(self.file.metrics)
        now = run_status(self.folder)
        return {
            "run": self.folder.resolve().name,
            **_status_fields(now),
            **self.metrics_summary,
            "left": _seconds_left(self.metrics_summary, now),
        }

    def samples(self, step: int) -> list[dict[str, str]] | None:
        """Return the sentences of a validation."""
        return next((found.samples for found in self.file.metrics.validations if found.step == step), None)


def _status_fields(status: RunStatus) -> dict[str, Any]:
    """Return what is known apart from the numbers."""
    return {
        "situation": status.status,
        "steps": status.steps,
        "facts": status.facts,
        "checkpoints": status.checkpoints,
    }


def _metrics_fields(metrics: MetricsHistory) -> dict[str, Any]:
    """Return what follows from the metrics alone."""
    training, validations = metrics.training, metrics.validations
    with_loss = [found for found in validations if found.loss is not None]
    best = min(with_loss, key=lambda found: found.loss or 0.0, default=None)
    return {
        "step": int(training["step"][-1]) if len(metrics) else 0,
        "seconds": _last_finite(training["seconds"]),
        "speed": _recent_mean(training["tokens_per_second"]),
        "pace": _seconds_per_step(metrics),
        "best": {"step": best.step, "loss": best.loss} if best else None,
        "curves": _curves(metrics),
        "measure": next((found.measure for found in reversed(validations) if found.measure), ""),
        "validations": [found.step for found in validations],
        "samples": validations[-1].samples if validations else [],
    }


def _curves(metrics: MetricsHistory) -> dict[str, dict[str, CurvePoints]]:
    """Return every curve: a list of [step, value] for each of its lines."""
    step = _to_array(metrics.training["step"])

    def drawn(name: str) -> CurvePoints:
        return downsample(step, _to_array(metrics.training[name]))

    def found(name: str) -> CurvePoints:
        return _validation_curve(metrics.validations, name)

    return {
        "loss": {"training": drawn("nll"), "validation": found("loss")},
        "perplexity": {"validation": found("perplexity")},
        "score": {"validation": found("score")},
        "rate": {"training": drawn("rate")},
        "speed": {"training": drawn("tokens_per_second")},
    }


def _to_array(values: "array[float]") -> NDArray[np.float64]:
    """Return a copy that does not hold the growing array fast."""
    return np.array(values, dtype=np.float64)


def downsample(steps: NDArray[np.float64], values: NDArray[np.float64]) -> CurvePoints:
    """Return at most POINTS points, each the mean of its neighbours; the last step stays the last."""
    known = np.isfinite(values)
    steps, values = steps[known], values[known]
    if len(steps) <= MAX_POINTS:
        return _rounded_points(steps, values)
    starts = np.linspace(0, len(steps), MAX_POINTS, endpoint=False).astype(int)
    sizes = np.diff([*starts, len(steps)])
    means = np.add.reduceat(values, starts) / sizes
    return _rounded_points(steps[starts + sizes - 1], means)


def _validation_curve(validations: list[ValidationEntry], name: str) -> CurvePoints:
    """Return one number of every validation that has it."""
    found = [(one.step, getattr(one, name)) for one in validations if getattr(one, name) is not None]
    every = -(-len(found) // MAX_POINTS) or 1
    kept = found[::-1][::every][::-1]  # the newest stays
    return _rounded_points(*zip(*kept, strict=True)) if kept else []


def _rounded_points(steps: Iterable[float], values: Iterable[float]) -> CurvePoints:
    """Return points with as many digits as can be seen."""
    return [[int(step), float(f"{value:.5g}")] for step, value in zip(steps, values, strict=True)]


def _last_finite(values: "array[float]") -> float | None:
    """Return the last value, if it is a number."""
    return values[-1] if values and np.isfinite(values[-1]) else None


def _recent_mean(values: "array[float]") -> float | None:
    """Return the mean of the latest values."""
    latest = _to_array(values[-_RECENT_STEPS:])
    latest = latest[np.isfinite(latest)]
    return float(latest.mean()) if len(latest) else None


def _seconds_per_step(metrics: MetricsHistory) -> float | None:
    """Return the seconds that a step takes at present."""
    seconds, steps = metrics.training["seconds"][-_RECENT_STEPS:], metrics.training["step"][-_RECENT_STEPS:]
    if len(steps) < 2 or steps[-1] <= steps[0]:
        return None
    each = (seconds[-1] - seconds[0]) / (steps[-1] - steps[0])
    return each if np.isfinite(each) and each >= 0 else None


def _seconds_left(metrics_summary: dict[str, Any], status: RunStatus) -> float | None:
    """Return the seconds that a training that goes on will still take, if it does not end early."""
    if status.status != "training" or status.steps is None or metrics_summary["pace"] is None:
        return None
    return max(0.0, (status.steps - float(metrics_summary["step"])) * float(metrics_summary["pace"]))
