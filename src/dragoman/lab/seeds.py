"""Trainings repeated with several seeds: how many a budget allows, and how variants compare."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from matplotlib.axes import Axes

from dragoman.bench.stats import SampleStats
from dragoman.lab.corpus import SplitCorpus
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plots import draw_lines
from dragoman.training.metrics_log import running_mean

TRAINING_OVERHEAD_SECONDS = 8.0  # per training, for preparing the data, validation and scoring
MIN_TRAINING_SECONDS = 12.0  # a shorter training is not repeated with a second seed

_Key = TypeVar("_Key")
_MetricCurve = tuple[list[float], list[float]]  # steps and values


@dataclass(frozen=True)
class SeedPlan:
    """The seeds with which every variant is trained, and the seconds of each training."""

    seeds: tuple[int, ...]
    seconds: float

    def __str__(self) -> str:
        count = len(self.seeds)
        times = f"with {count} seeds" if count > 1 else "once"
        trainings = f"Each variant was trained {times}, {self.seconds:.0f} seconds per training, on all cores."
        return trainings + chance_note(count)


def plan_seeds(budget_seconds: float, variants: int, first_seed: int, max_seeds: int = 3) -> SeedPlan:
    """Divide a budget among variants: as many seeds as leave every training a sensible length, at least one."""
    seconds = {count: training_seconds(budget_seconds / (variants * count)) for count in range(1, max_seeds + 1)}
    count = max([count for count in seconds if seconds[count] >= MIN_TRAINING_SECONDS], default=1)
    return SeedPlan(tuple(range(first_seed, first_seed + count)), seconds[count])


def train_variants(
    lab: Laboratory,
    variants: Mapping[_Key, tuple[str, Mapping[str, Any]]],
    seed_plan: SeedPlan,
    corpus: SplitCorpus | None = None,
) -> dict[_Key, list[TrainedModel]]:
    """Train every variant, given as a folder name and changed settings, with every seed of a plan."""
    return {
        key: [
            lab.train_model(f"{name}-{seed}", settings, seconds=seed_plan.seconds, seed=seed, corpus=corpus)
            for seed in seed_plan.seeds
        ]
        for key, (name, settings) in variants.items()
    }


def training_seconds(share_seconds: float) -> float:
    """Return the time of a training without its overhead, at least a quarter of its share."""
    return round(max(share_seconds - TRAINING_OVERHEAD_SECONDS, share_seconds / 4), 2)


# Statistics


def chance_note(count: int) -> str:
    """Return a sentence with the probability that one of two equal variants is better with every seed."""
    if count < 2:
        return ""
    odds = math.comb(2 * count, count) // 2
    return f" By chance alone, all {count} trainings of one variant beat all of another in one of {odds} comparisons."


def seed_statistics(values: Sequence[float]) -> SampleStats:
    """Return the statistics of a quantity over seeds; values that are not finite are left out unless all are."""
    finite = [value for value in values if math.isfinite(value)]
    return SampleStats.from_values(finite or list(values))


def decimal_formatter(count: int) -> Callable[[float], str]:
    """Return a function that formats a number with `count` decimals."""
    return lambda value: f"{value:,.{count}f}".replace("-", "−") if math.isfinite(value) else "not finite"


def is_disjoint(first: SampleStats, second: SampleStats) -> bool:
    """Return whether the ranges of two samples do not overlap."""
    return first.lowest > second.highest or second.lowest > first.highest


def comparison_phrase(first: SampleStats, second: SampleStats, *, less_is_better: bool = True) -> str:
    """Return a phrase such as "better than", or "not clearly better or worse than" if the ranges overlap."""
    if min(len(first.values), len(second.values)) < 2:
        return "trained too few times to be compared with"
    if not is_disjoint(first, second):
        return "not clearly better or worse than"
    return "better than" if (first.median < second.median) == less_is_better else "worse than"


def compare_variants(quantity: str, variants: Mapping[str, SampleStats], format_value: Callable[[float], str]) -> str:
    """Return a sentence that compares a quantity of two variants; less is better."""
    (name, first), (other_name, second) = variants.items()
    values = f"{quantity}: {first.format(format_value)} {name}, {second.format(format_value)} {other_name}"
    fewest, most = sorted(len(sample.values) for sample in (first, second))
    values += f" (excluding {most - fewest} that diverged)" if fewest < most else ""
    if fewest < 2:
        return f"{values}; with one training per variant, the difference may be due to chance."
    if not is_disjoint(first, second):
        return f"{values}; no clear difference, because the ranges over seeds overlap."
    better = name if first.median < second.median else other_name
    return f"{values}; better {better} (for all {fewest} seeds)."


# Curves


def metric_curve(model: TrainedModel, kind: str, key: str) -> _MetricCurve:
    """Return the steps and values of a metric in the "train" or "validation" events of a training."""
    events = [event for event in model.events if event["event"] == kind and event.get(key) is not None]
    return [event["step"] for event in events], [event[key] for event in events]


def common_steps(models: Iterable[TrainedModel]) -> int:
    """Return the number of steps that all trainings have made, diverged ones left out."""
    return min((model.steps for model in models if not model.diverged), default=0)


def last_common_validation_step(models: Iterable[TrainedModel]) -> int:
    """Return the last step at which all trainings that did not diverge were validated, or else their common steps."""
    finished = [model for model in models if not model.diverged]
    validated = [set(map(int, metric_curve(model, "validation", "loss")[0])) for model in finished]
    return max(set.intersection(*validated) if validated else (), default=common_steps(finished))


def validation_loss_at(model: TrainedModel, step: int) -> float:
    """Return the validation loss at a step, or at the last validation before it."""
    if model.diverged:
        return math.inf
    steps, losses = metric_curve(model, "validation", "loss")
    before = [loss for at, loss in zip(steps, losses, strict=True) if at <= step]
    return before[-1] if before else losses[0] if losses else math.inf


def draw_training_losses(axes: Axes, models: Mapping[str, Sequence[TrainedModel]], *, title: str = "") -> None:
    """Draw the smoothed training loss of the first seed of each variant."""
    lines = {}
    for name, trained in models.items():
        steps, values = metric_curve(trained[0], "train", "nll")
        lines[name] = steps, running_mean(values)
    draw_lines(axes, lines, title=title, x_label="step", y_label="training loss, nats per token", markers=False)
