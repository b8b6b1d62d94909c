"""The summary of a run as a JSON document, with curves of at most a few hundred points."""

from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.run import Run
from dragoman.watch.metrics import MetricsFile, MetricsHistory, ValidationEntry
from dragoman.watch.run_status import RunStatus, run_status

MAX_POINTS = 300  # per curve
_RECENT_STEPS = 50  # over which the current speed is averaged

CurvePoints = list[list[float]]


class WatchedRun:
    """A run whose summary is refreshed by each call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = MetricsFile(Run(folder).metrics_file)
        self.metrics_summary: dict[str, Any] = {}

    def summary(self) -> dict[str, Any]:
        """Return the current summary."""
        if self.file.refresh() or not self.metrics_summary:
            self.metrics_summary = _metrics_fields(self.file.metrics)
        now = run_status(self.folder)
        return {
            "run": self.folder.resolve().name,
            **_status_fields(now),
            **self.metrics_summary,
            "seconds_left": _seconds_left(self.metrics_summary, now),
        }

    def samples(self, step: int) -> list[dict[str, str]] | None:
        """Return the samples of the validation at a step, or None."""
        validations = self.file.metrics.validations
        return next((validation.samples for validation in validations if validation.step == step), None)


def _status_fields(status: RunStatus) -> dict[str, Any]:
    return {
        "status": status.status,
        "steps": status.steps,
        "reads_recordings": status.reads_recordings,
        "facts": status.facts,
        "checkpoints": status.checkpoints,
    }


def _metrics_fields(metrics: MetricsHistory) -> dict[str, Any]:
    """Return the part of the summary that depends on the metrics only."""
    training, validations = metrics.training, metrics.validations
    with_loss = [validation for validation in validations if validation.loss is not None]
    best = min(with_loss, key=lambda validation: validation.loss or 0.0, default=None)
    return {
        "step": int(training["step"][-1]) if len(metrics) else 0,
        "seconds": _last_finite(training["seconds"]),
        "tokens_per_second": _recent_mean(training["tokens_per_second"]),
        "seconds_per_step": _seconds_per_step(metrics),
        "best_validation": {"step": best.step, "loss": best.loss} if best else None,
        "curves": _curves(metrics),
        "measure": next((validation.measure for validation in reversed(validations) if validation.measure), ""),
        "validations": [validation.step for validation in validations],
        "samples": validations[-1].samples if validations else [],
        **({"steps": metrics.last_step} if metrics.last_step else {}),
    }


def _curves(metrics: MetricsHistory) -> dict[str, dict[str, CurvePoints]]:
    """Return the curves: per line a list of [step, value]."""
    step = _to_array(metrics.training["step"])

    def training_curve(name: str) -> CurvePoints:
        return downsample(step, _to_array(metrics.training[name]))

    def validation_curve(name: str) -> CurvePoints:
        return _validation_curve(metrics.validations, name)

    return {
        "loss": {"training": training_curve("nll"), "validation": validation_curve("loss")},
        "perplexity": {"validation": validation_curve("perplexity")},
        "score": {"validation": validation_curve("score")},
        "rate": {"training": training_curve("rate")},
        "speed": {"training": training_curve("tokens_per_second")},
    }


def _to_array(values: "array[float]") -> NDArray[np.float64]:
    """Return a copy; a view would lock the size of the growing array."""
    return np.array(values, dtype=np.float64)


def downsample(steps: NDArray[np.float64], values: NDArray[np.float64]) -> CurvePoints:
    """Return at most `MAX_POINTS` points, each the mean of its neighbours; the last step stays the last."""
    known = np.isfinite(values)
    steps, values = steps[known], values[known]
    if len(steps) <= MAX_POINTS:
        return _rounded_points(steps, values)
    starts = np.linspace(0, len(steps), MAX_POINTS, endpoint=False).astype(int)
    sizes = np.diff([*starts, len(steps)])
    means = np.add.reduceat(values, starts) / sizes
    return _rounded_points(steps[starts + sizes - 1], means)


def _validation_curve(validations: list[ValidationEntry], name: str) -> CurvePoints:
    """Return one metric of the validations that have it."""
    points = [
        (validation.step, getattr(validation, name))
        for validation in validations
        if getattr(validation, name) is not None
    ]
    stride = -(-len(points) // MAX_POINTS) or 1
    sampled = points[::-1][::stride][::-1]  # the newest stays
    return _rounded_points(*zip(*sampled, strict=True)) if sampled else []


def _rounded_points(steps: Iterable[float], values: Iterable[float]) -> CurvePoints:
    """Return points rounded to five significant digits."""
    return [[int(step), float(f"{value:.5g}")] for step, value in zip(steps, values, strict=True)]


def _last_finite(values: "array[float]") -> float | None:
    return values[-1] if values and np.isfinite(values[-1]) else None


def _recent_mean(values: "array[float]") -> float | None:
    latest = _to_array(values[-_RECENT_STEPS:])
    latest = latest[np.isfinite(latest)]
    return float(latest.mean()) if len(latest) else None


def _seconds_per_step(metrics: MetricsHistory) -> float | None:
    """Return the current seconds per step."""
    seconds, steps = metrics.training["seconds"][-_RECENT_STEPS:], metrics.training["step"][-_RECENT_STEPS:]
    if len(steps) < 2 or steps[-1] <= steps[0]:
        return None
    seconds_per_step = (seconds[-1] - seconds[0]) / (steps[-1] - steps[0])
    return seconds_per_step if np.isfinite(seconds_per_step) and seconds_per_step >= 0 else None


def _seconds_left(metrics_summary: dict[str, Any], status: RunStatus) -> float | None:
    """Return the estimated seconds until a running training ends."""
    steps: int | None = metrics_summary.get("steps", status.steps)
    if status.status != "training" or steps is None or metrics_summary["seconds_per_step"] is None:
        return None
    left = steps - int(metrics_summary["step"])
    return max(0.0, left * float(metrics_summary["seconds_per_step"]))
