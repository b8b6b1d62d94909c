"""Training, side by side: target tokens a second and peak memory, ours and a plain loop on the very same batches."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, cast

import torch

from dragoman.bench.config import BenchmarkConfig, endless_training_recipe
from dragoman.bench.data import BenchmarkCorpus
from dragoman.bench.flops import training_flops
from dragoman.bench.stats import SampleStats
from dragoman.bench.torch_baseline import TorchTraining, is_torch_compatible
from dragoman.bench.workers import (
    OWN_PREFIX,
    EngineFactory,
    EngineProcess,
    OnBenchmarkNotice,
    peak_memory_bytes,
    start_engines,
)
from dragoman.malloc import keep_freed_memory
from dragoman.model_config import TransformerConfig
from dragoman.models.architectures import build_model
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.training.trainer import Trainer

TORCH_ENGINES = {precision: f"torch.nn.Transformer {precision}" for precision in ("float32", "bfloat16")}


@dataclass(frozen=True)
class _TrainingTurn:
    """Some steps of one contender."""

    seconds: float
    tokens: int  # of the targets, without padding
    memory: int  # bytes that its process had at most so far


@dataclass(frozen=True)
class TrainingResult:
    """How fast one contender trained one model."""

    size: str
    engine: str
    speed: SampleStats  # target tokens a second
    memory: int  # bytes
    steps: int  # a turn
    parameters: int
    flops: float  # for one target token


class _TrainingEngine(Protocol):
    """Something that makes updates."""

    def step(self) -> int:
        """Make one update; return the target tokens it was made from."""
        ...


class DragomanTraining:
    """What `dragoman train` does between two validations."""

    def __init__(self, recipe: Recipe, corpus: BenchmarkCorpus) -> None:
        keep_freed_memory()
        self.steps = Trainer(Run(corpus.folder), recipe, corpus.prepared_data()).steps()

    def step(self) -> int:
        """Make one update; return the target tokens it was made from."""
        return next(self.steps).tokens


class TimedTraining:
    """A contender: a training that is asked for some steps at a time."""

    def __init__(
        self, kind: type[DragomanTraining] | type[TorchTraining], recipe: Recipe, corpus: BenchmarkCorpus
    ) -> None:
        self.training: _TrainingEngine = kind(recipe, corpus)

    def run_turn(self, steps: int) -> _TrainingTurn:
        """Make the next steps."""
        began_at = time.perf_counter()
        tokens = sum(self.training.step() for _ in range(steps))
        return _TrainingTurn(time.perf_counter() - began_at, tokens, peak_memory_bytes())


def measure_training(
    size: str,
    recipe: Recipe,
    corpus: BenchmarkCorpus,
    config: BenchmarkConfig,
    rounds: Iterable[int],
    on_notice: OnBenchmarkNotice,
) -> list[TrainingResult]:
    """Let the contenders train in turns; all make the same steps in every round."""
    with start_engines(
        _training_engines(size, recipe, corpus, config, on_notice), on_notice, config.workload.pause_seconds
    ) as workers:
        steps = _calibrate_steps(list(workers.values()), config.turn_seconds)
        turns: dict[str, list[_TrainingTurn]] = {name: [] for name in workers}
        for _ in rounds:
            for name, worker in workers.items():
                turns[name].append(worker.run_turn(steps))
    parameters, flops = _model_size(recipe, corpus)
    results = []
    for name, had in turns.items():
        speed = SampleStats.from_values([turn.tokens / turn.seconds for turn in had])
        results.append(TrainingResult(size, name, speed, had[-1].memory, steps, parameters, flops))
    return results


def _training_engines(
    size: str, recipe: Recipe, corpus: BenchmarkCorpus, config: BenchmarkConfig, on_notice: OnBenchmarkNotice
) -> dict[str, EngineFactory]:
    """Return who takes part."""

    def made(kind: type[DragomanTraining] | type[TorchTraining], precision: str) -> EngineFactory:
        return TimedTraining, (kind, endless_training_recipe(recipe, config, precision), corpus)

    found = {OWN_PREFIX: made(DragomanTraining, recipe.training.precision)}
    if config.bfloat16:
        found[f"{OWN_PREFIX} bfloat16"] = made(DragomanTraining, "bfloat16")
    if is_torch_compatible(recipe.model):
        found |= {name: made(TorchTraining, precision) for precision, name in TORCH_ENGINES.items()}
    else:
        on_notice(f"{size}: torch.nn.Transformer cannot be a model like this one; it is left out.")
    return found


def _calibrate_steps(workers: list[EngineProcess], seconds: float) -> int:
    """Warm everybody up, and choose how many steps last so many seconds for the slowest."""
    for worker in workers:
        worker.run_turn(1)
    slowest: float = max(worker.run_turn(1).seconds for worker in workers)
    return max(1, round(seconds / slowest))


def _model_size(recipe: Recipe, corpus: BenchmarkCorpus) -> tuple[int, float]:
    """Return the number of parameters and the operations for one target token."""
    source, target = map(len, corpus.read_tokenizers())
    with torch.device("meta"):
        model = build_model(recipe.model, source, target)
    pairs = corpus.open_pairs()
    lengths = zip(pairs.source_lengths.tolist(), pairs.target_lengths.tolist(), strict=True)
    return sum(each.numel() for each in model.parameters()), training_flops(
        cast(TransformerConfig, recipe.model), target, lengths
    )
