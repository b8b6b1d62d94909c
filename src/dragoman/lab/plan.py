"""The plan of an experiment's trainings: how many variants, seeds and steps a budget allows.

A plan is a function of the comparison, the measured speed and the budget. It is made before the first training and
printed, so that fewer seeds, missing variants and too short trainings are known in advance.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dragoman.errors import format_count

# Steps after which the small model has learned (see `comparison.LEARNED_SHARE`), with a margin: on the phrasebook it
# needs about 100. Narrower models with smaller batches need more; their experiments have constants of their own.
LEARNING_STEPS = 200

_MIN_TRAINING_SHARE = 1 / 4  # of the time of a model; the rest is overhead
_MAX_WARMUP, _WARMUP_SHARE = 100, 4  # the warm-up is at most this part of the steps
_MAX_INTERVAL, _INTERVALS = 100, 10  # of validations and checkpoints


@dataclass(frozen=True)
class Comparison:
    """Which models an experiment trains, and what they have in common when they are compared."""

    variants: Mapping[str, Mapping[str, Any]]  # changed settings of the small model, by name
    equal: Literal["steps", "time"]
    learning_steps: int = LEARNING_STEPS
    min_seeds: int = 1
    max_seeds: int = 3
    optional: tuple[tuple[str, ...], ...] = ()  # groups of variants to leave out, in this order, if time is short
    at_once: int = 1  # models that are trained at the same time


@dataclass(frozen=True)
class TrainingSpeed:
    """What a training costs on this machine, as measured before the first one."""

    seconds_per_step: Mapping[str, float]  # by variant
    overhead_seconds: float  # per model: preparation, validations and scoring


@dataclass(frozen=True)
class ComparisonPlan:
    """The models that an experiment trains within its budget."""

    comparison: Comparison
    speed: TrainingSpeed
    variants: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: Mapping[str, int]  # by variant; if models are compared after equal time, an estimate
    seconds: Mapping[str, float]  # of training by variant; if models are compared after equal steps, an estimate

    @property
    def models(self) -> int:
        """The number of models."""
        return len(self.variants) * len(self.seeds)

    @property
    def missing_variants(self) -> list[str]:
        """The variants that are left out because time is short."""
        return [name for name in self.comparison.variants if name not in self.variants]

    def settings(self, variant: str) -> dict[str, Any]:
        """Return the length of the training of a variant, and the warm-up and intervals that fit it."""
        steps = self.steps[variant]
        interval = max(1, min(_MAX_INTERVAL, steps // _INTERVALS))
        return {
            **({"training.steps": steps} if self.comparison.equal == "steps" else {}),
            "training.minutes": 0.0 if self.comparison.equal == "steps" else self.seconds[variant] / 60,
            "training.warmup": max(1, min(_MAX_WARMUP, steps // _WARMUP_SHARE)),
            "training.validate_every": interval, "training.checkpoint_every": interval,
            **self.comparison.variants[variant],
        }  # fmt: skip

    def needed_minutes(self, steps: int | None = None) -> int:
        """Estimate the budget with which every variant makes so many steps, or else those that it needs to learn."""
        steps = steps or self.comparison.learning_steps
        speeds = list(self.speed.seconds_per_step.values())
        if self.comparison.equal == "time":
            speeds = [max(speeds)] * len(speeds)
        seconds = sum(steps * speed + self.speed.overhead_seconds for speed in speeds) * self.comparison.min_seeds
        return math.ceil(seconds / self.comparison.at_once / 60)

    def __str__(self) -> str:
        variants, seeds = len(self.variants), len(self.seeds)
        times, steps = _format_extent(self.seconds.values()), _format_extent(self.steps.values())
        counts = f"{format_count(variants, 'variant')}, {format_count(seeds, 'seed')}{' each' * (seeds > 1)}"
        each = " each" * (self.models > 1)
        length, the_same = (
            (f"about {times} s{each}, {steps} steps", "number of steps")
            if self.comparison.equal == "steps"
            else (f"{times} s{each}, about {steps} steps", "training time")
        )
        sentences = [f"{format_count(self.models, 'model')} ({counts}), {length}"]
        if variants > 1:
            sentences[0] += f"; compared after the same {the_same}"
        fewer = []
        if seeds < self.comparison.max_seeds:
            fewer.append(f"{seeds} instead of {format_count(self.comparison.max_seeds, 'seed')}")
        if self.missing_variants:
            fewer.append(f"without {', '.join(f'“{name}”' for name in self.missing_variants)}")
        if fewer:
            sentences.append(f"Because time is short: {'; '.join(fewer)}")
        if min(self.steps.values()) < self.comparison.learning_steps:
            sentences.append(
                f"This is probably too short: such models need about {self.comparison.learning_steps:,} steps to "
                f"learn, and the experiment about {format_count(self.needed_minutes(), 'minute')}"
            )
        return "".join(f"{sentence}. " for sentence in sentences).rstrip()


def plan_comparison(
    comparison: Comparison, speed: TrainingSpeed, budget_seconds: float, first_seed: int = 1
) -> ComparisonPlan:
    """Plan the trainings of a comparison within a budget.

    The plan has as many variants and seeds as leave every model the steps that it needs to learn. If time is short,
    there are fewer seeds, then fewer variants; if it does not suffice for those either, models are trained as long as
    the budget allows.
    """

    def plan(variants: tuple[str, ...], seeds: int) -> ComparisonPlan:
        speeds = {name: speed.seconds_per_step[name] for name in variants}
        share = budget_seconds * comparison.at_once / seeds  # for one model of every variant
        training = max(share - len(variants) * speed.overhead_seconds, _MIN_TRAINING_SHARE * share)
        if comparison.equal == "steps":
            steps = dict.fromkeys(variants, max(1, int(training / sum(speeds.values()))))
            seconds = {name: steps[name] * speeds[name] for name in variants}
        else:
            seconds = dict.fromkeys(variants, round(training / len(variants), 2))
            steps = {name: max(1, int(seconds[name] / speeds[name])) for name in variants}
        return ComparisonPlan(comparison, speed, variants, tuple(range(first_seed, first_seed + seeds)), steps, seconds)

    shapes = [
        (tuple(comparison.variants), seeds) for seeds in range(comparison.max_seeds, comparison.min_seeds - 1, -1)
    ]
    for group in comparison.optional:
        shapes.append((tuple(name for name in shapes[-1][0] if name not in group), comparison.min_seeds))
    plans = [plan(*shape) for shape in shapes]
    long_enough = (each for each in plans if min(each.steps.values()) >= comparison.learning_steps)
    return next(long_enough, plans[-1])


def _format_extent(values: Collection[float]) -> str:
    """Format the smallest and the largest of some numbers, as in 20–45."""
    smallest, largest = (f"{value:,.0f}" for value in (min(values), max(values)))
    return smallest if smallest == largest else f"{smallest}–{largest}"
