"""Trainings repeated with several seeds: statistics, comparisons and curves."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from dragoman.bench.stats import SampleStats
from dragoman.lab.laboratory import TrainedModel
from dragoman.report import Json
from dragoman.training.metrics_log import running_mean

_MetricCurve = tuple[list[float], list[float]]  # steps and values


# Statistics


def chance_sentence(seeds: int) -> str:
    """Return a sentence on how often a difference for all seeds is due to chance."""
    if seeds == 1:
        return "Each variant was trained once, so differences may be due to chance."
    odds = math.comb(2 * seeds, seeds) // 2
    return f"By chance alone, all {seeds} trainings of one variant beat all of another in one of {odds} comparisons."


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
    better, worse = (name, other_name) if first.median < second.median else (other_name, name)
    return f"{values}; every training “{better}” is better than every training “{worse}”."


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
