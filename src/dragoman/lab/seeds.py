"""Trainings repeated with other seeds: how many a budget allows, and what may be said about their differences."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from dragoman.bench.stats import SampleStats
from dragoman.lab.laboratory import TrainedModel
from dragoman.lab.plots import draw_lines
from dragoman.training.metrics_log import running_mean

TRAINING_OVERHEAD_SECONDS = 8.0  # of a training: preparing the data, validating, scoring
MIN_TRAINING_SECONDS = 12.0  # a training that would be shorter is not worth a second seed

_MetricCurve = tuple[list[float], list[float]]  # what goes across, and what goes up


@dataclass(frozen=True)
class SeedPlan:
    """How often each variant is trained, and for how long each time."""

    seeds: tuple[int, ...]
    seconds: float

    def __str__(self) -> str:
        count = len(self.seeds)
        times = f"{count} times, with other seeds" if count > 1 else "once"
        return f"Each was trained {times}, for {self.seconds:.0f} seconds with all cores.{chance_note(count)}"


def plan_seeds(budget_seconds: float, variants: int, first_seed: int, max_seeds: int = 3) -> SeedPlan:
    """Share a budget out to so many variants: as many seeds as leave each training a sensible length, at least one."""
    seconds = {count: training_seconds(budget_seconds / (variants * count)) for count in range(1, max_seeds + 1)}
    count = max([count for count in seconds if seconds[count] >= MIN_TRAINING_SECONDS], default=1)
    return SeedPlan(tuple(range(first_seed, first_seed + count)), seconds[count])


def chance_note(count: int) -> str:
    """Say how often so many trainings of one kind would all be better than as many of another that is no different."""
    if count < 2:
        return ""
    times = math.comb(2 * count, count) // 2
    return f" By chance alone, all {count} of one kind would be better than all of another one time in {times}."


def training_seconds(share_seconds: float) -> float:
    """Return what is left of one training's share of the time beside its overhead; of a very small one, a quarter."""
    return round(max(share_seconds - TRAINING_OVERHEAD_SECONDS, share_seconds / 4), 2)


def seed_statistics(values: Sequence[float]) -> SampleStats:
    """Gather one quantity over all seeds; what is not a number stays out as long as anything is left."""
    finite = [value for value in values if math.isfinite(value)]
    return SampleStats.from_values(finite or list(values))


def decimal_formatter(count: int) -> Callable[[float], str]:
    """Return what writes a number with so many digits after the point."""
    return lambda value: f"{value:,.{count}f}".replace("-", "−") if math.isfinite(value) else "not finite"


def is_disjoint(first: SampleStats, second: SampleStats) -> bool:
    """Say whether no value of the one lies among the values of the other."""
    return first.lowest > second.highest or second.lowest > first.highest


def comparison_phrase(first: SampleStats, second: SampleStats, *, less_is_better: bool = True) -> str:
    """Say in the words of a comparison how one measure stands to another: "better than", "not clearly other than" …"""
    if min(len(first.values), len(second.values)) < 2:
        return "not repeated often enough to be compared with"
    if not is_disjoint(first, second):
        return "not clearly better or worse than"
    return "better than" if (first.median < second.median) == less_is_better else "worse than"


def compare_variants(quantity: str, variants: Mapping[str, SampleStats], format_value: Callable[[float], str]) -> str:
    """Say which of two variants has less, which is better; a difference within the spread over seeds is called none."""
    (name, first), (other_name, second) = variants.items()
    both = f"{quantity}: {first.format(format_value)} {name}, {second.format(format_value)} {other_name}"
    fewest, most = sorted(len(each.values) for each in (first, second))
    both += f" (without {most - fewest} that diverged)" if fewest < most else ""
    if fewest < 2:
        return f"{both}; with one training of each, nobody knows how much of that is chance."
    if not is_disjoint(first, second):
        return f"{both}; no clear difference, for the seeds overlap."
    ahead = name if first.median < second.median else other_name
    return f"{both}; better {ahead} (every one of {fewest} seeds)."


def metric_curve(trained: TrainedModel, kind: str, value: str) -> _MetricCurve:
    """Return a quantity of a training's "train" or "validation" events over the steps; events without it stay out."""
    found = [event for event in trained.events if event["event"] == kind and event.get(value) is not None]
    return [event["step"] for event in found], [event[value] for event in found]


def common_steps(models: Iterable[TrainedModel]) -> int:
    """Return how many steps all have made that did not diverge: there, trainings can be compared."""
    return min((model.steps for model in models if not model.diverged), default=0)


def last_common_validation_step(models: Iterable[TrainedModel]) -> int:
    """Return the last step at which all were validated that did not diverge; if there is none, what all have made."""
    whole = [model for model in models if not model.diverged]
    validated = [set(map(int, metric_curve(model, "validation", "loss")[0])) for model in whole]
    return max(set.intersection(*validated) if validated else (), default=common_steps(whole))


def validation_loss_at(trained: TrainedModel, step: int) -> float:
    """Return the validation loss at a step, or at the last validation before it: trainings differ in their steps."""
    if trained.diverged:
        return math.inf
    steps, losses = metric_curve(trained, "validation", "loss")
    before = [loss for at, loss in zip(steps, losses, strict=True) if at <= step]
    return before[-1] if before else losses[0] if losses else math.inf


def draw_training_losses(axes: Axes, models: Mapping[str, Sequence[TrainedModel]], *, title: str = "") -> None:
    """Draw the training loss of the first seed of each variant over the steps, smoothed."""
    lines = {}
    for name, trained in models.items():
        steps, values = metric_curve(trained[0], "train", "nll")
        lines[name] = steps, running_mean(values)
    draw_lines(axes, lines, title=title, x_label="step", y_label="training loss, nats per piece", markers=False)
