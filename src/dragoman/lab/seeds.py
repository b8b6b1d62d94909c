"""Trainings repeated with several seeds: how many a budget allows, and how variants compare."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dragoman.bench.stats import SampleStats
from dragoman.lab.corpus import SplitCorpus
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.report import Json
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
        sentence = f"Each variant was trained {times}, {self.seconds:.0f} seconds per training, on all cores."
        if count == 1:
            return sentence
        odds = math.comb(2 * count, count) // 2
        chance = f"By chance alone, all {count} trainings of one variant beat all of another in one of {odds}"
        return f"{sentence} {chance} comparisons."


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


def seed_statistics(values: Sequence[float]) -> SampleStats:
    """Return the statistics of a quantity over seeds; values that are not finite are left out unless all are."""
    return SampleStats.from_values([value for value in values if math.isfinite(value)] or values)


def over_seeds(models: Iterable[TrainedModel], quantity: Callable[[TrainedModel], float]) -> SampleStats:
    """Return the statistics of a quantity of the models of a variant."""
    return seed_statistics([quantity(model) for model in models])


def seed_columns(models: Sequence[TrainedModel]) -> tuple[str, str]:
    """Return the cells of a table with the number of steps and the final validation loss."""
    losses = over_seeds(models, lambda model: model.validation_loss)
    return f"{over_seeds(models, lambda model: model.steps):,.0f}", f"{losses:,.3f}"


def seed_results(models: Sequence[TrainedModel]) -> dict[str, Json]:
    """Return the numbers of the trainings of a variant."""
    return {
        "steps": [model.steps for model in models], "diverged": [model.diverged for model in models],
        "validation_loss": over_seeds(models, lambda model: model.validation_loss).to_json(),
        "training_curves": [metric_curve(model, "train", "nll") for model in models],
    }  # fmt: skip


def comparison_phrase(first: SampleStats, second: SampleStats, *, less_is_better: bool = True) -> str:
    """Return a phrase such as "better than", or "not clearly better or worse than" if the ranges overlap."""
    if min(len(first.values), len(second.values)) < 2:
        return "not comparable (fewer than two trainings) with"
    if not _is_disjoint(first, second):
        return "not clearly better or worse than"
    return "better than" if (first.median < second.median) == less_is_better else "worse than"


def compare_variants(quantity: str, variants: Mapping[str, SampleStats]) -> str:
    """Return a sentence that compares a quantity of two variants; less is better."""
    (name, first), (other_name, second) = variants.items()
    values = f"{quantity}: {first:,.3f} {name}, {second:,.3f} {other_name}"
    fewest, most = sorted(len(sample.values) for sample in (first, second))
    values += f" (excluding {most - fewest} that diverged)" if fewest < most else ""
    if fewest < 2:
        return f"{values}; with one training per variant, the difference may be due to chance."
    if not _is_disjoint(first, second):
        return f"{values}; no clear difference, because the ranges over seeds overlap."
    better = name if first.median < second.median else other_name
    return f"{values}; better for all {fewest} seeds: {better}."


def _is_disjoint(first: SampleStats, second: SampleStats) -> bool:
    return first.lowest > second.highest or second.lowest > first.highest


# Curves


def metric_curve(model: TrainedModel, kind: str, key: str) -> _MetricCurve:
    """Return the steps and values of a metric in the "train" or "validation" events of a training."""
    events = [event for event in model.events if event["event"] == kind and event.get(key) is not None]
    return [event["step"] for event in events], [event[key] for event in events]


def training_curves(models: Mapping[str, Sequence[TrainedModel]]) -> dict[str, _MetricCurve]:
    """Return the smoothed training loss of the first seed of each variant."""
    curves = {name: metric_curve(trained[0], "train", "nll") for name, trained in models.items()}
    return {name: (steps, running_mean(values)) for name, (steps, values) in curves.items()}


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
