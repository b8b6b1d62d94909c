"""Training, side by side: target tokens a second and peak memory, ours and a plain loop on the very same batches."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from dragoman.bench.flops import training_flops
from dragoman.bench.material import Material
from dragoman.bench.measure import Measure
from dragoman.bench.plain import PlainTraining, can_be_plain
from dragoman.bench.plan import Plan, measured
from dragoman.bench.workers import OURS, Make, Say, Worker, peak_memory, started
from dragoman.memory import keep_freed_memory
from dragoman.model.architectures import build
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.tasks.train import Trainer, ignore
from dragoman.training.distributed import ALONE
from dragoman.training.loop import train
from dragoman.training.session import Stop

PLAIN = {precision: f"torch.nn.Transformer {precision}" for precision in ("float32", "bfloat16")}


@dataclass(frozen=True)
class Turn:
    """Some steps of one contender."""

    seconds: float
    tokens: int  # of the targets, without padding
    memory: int  # bytes that its process had at most so far


@dataclass(frozen=True)
class TrainingResult:
    """How fast one contender trained one model."""

    size: str
    contender: str
    speed: Measure  # target tokens a second
    memory: int  # bytes
    steps: int  # a turn
    parameters: int
    flops: float  # for one target token


class Training(Protocol):
    """Something that makes updates."""

    def step(self) -> int:
        """Make one update; return the target tokens it was made from."""
        ...


class OurTraining:
    """What `dragoman train` does between two validations."""

    def __init__(self, recipe: Recipe, material: Material) -> None:
        trainer = Trainer(Run(material.folder), recipe, material.prepared(), ALONE, ignore, Stop())
        keep_freed_memory()
        self.steps = train(
            trainer.model, trainer.optimizer, trainer.batches, recipe.training,
            width=recipe.model.width, world=trainer.world, crew=trainer.crew,
        )  # fmt: skip

    def step(self) -> int:
        """Make one update; return the target tokens it was made from."""
        return next(self.steps).tokens


class TimedTraining:
    """A contender: a training that is asked for some steps at a time."""

    def __init__(self, kind: type[OurTraining] | type[PlainTraining], recipe: Recipe, material: Material) -> None:
        self.training: Training = kind(recipe, material)

    def turn(self, steps: int) -> Turn:
        """Make the next steps."""
        began_at = time.perf_counter()
        tokens = sum(self.training.step() for _ in range(steps))
        return Turn(time.perf_counter() - began_at, tokens, peak_memory())


def measure_training(
    size: str, recipe: Recipe, text: Material, plan: Plan, rounds: Iterable[int], say: Say
) -> list[TrainingResult]:
    """Let the contenders train in turns; all make the same steps in every round."""
    with started(contenders(size, recipe, text, plan, say), say, plan.effort.pause_seconds) as workers:
        steps = steps_a_turn(list(workers.values()), plan.seconds)
        turns: dict[str, list[Turn]] = {name: [] for name in workers}
        for _ in rounds:
            for name, worker in workers.items():
                turns[name].append(worker.ask(steps))
    parameters, flops = size_of(recipe, text)
    results = []
    for name, had in turns.items():
        speed = Measure.of([turn.tokens / turn.seconds for turn in had])
        results.append(TrainingResult(size, name, speed, had[-1].memory, steps, parameters, flops))
    return results


def contenders(size: str, recipe: Recipe, text: Material, plan: Plan, say: Say) -> dict[str, Make]:
    """Return who takes part."""

    def made(kind: type[OurTraining] | type[PlainTraining], precision: str) -> Make:
        return TimedTraining, (kind, measured(recipe, plan, precision), text)

    found = {OURS: made(OurTraining, recipe.training.precision)}
    if plan.bfloat16:
        found[f"{OURS} bfloat16"] = made(OurTraining, "bfloat16")
    if can_be_plain(recipe.model):
        found |= {name: made(PlainTraining, precision) for precision, name in PLAIN.items()}
    else:
        say(f"{size}: torch.nn.Transformer cannot be a model like this one; it is left out.")
    return found


def steps_a_turn(workers: list[Worker], seconds: float) -> int:
    """Warm everybody up, and choose how many steps last so many seconds for the slowest."""
    for worker in workers:
        worker.ask(1)
    slowest: float = max(worker.ask(1).seconds for worker in workers)
    return max(1, round(seconds / slowest))


def size_of(recipe: Recipe, text: Material) -> tuple[int, float]:
    """Return the number of parameters and the operations for one target token."""
    source, target = map(len, text.tokenizers())
    with torch.device("meta"):
        model = build(recipe.model, source, target)
    pairs = text.pairs()
    lengths = zip(pairs.source_lengths.tolist(), pairs.target_lengths.tolist(), strict=True)
    return sum(each.numel() for each in model.parameters()), training_flops(recipe.model, target, lengths)
