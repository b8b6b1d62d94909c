"""Measure training: target tokens per second and peak memory, beside a PyTorch loop on the same batches."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch

from dragoman.bench.config import BenchmarkConfig, endless_training_recipe
from dragoman.bench.data import BenchmarkCorpus
from dragoman.bench.flops import training_flops
from dragoman.bench.stats import SampleStats
from dragoman.bench.torch_baseline import TorchTraining, is_torch_compatible
from dragoman.bench.workers import (
    OWN_PREFIX,
    EngineProcess,
    EngineSpec,
    OnBenchmarkNotice,
    engine_spec,
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
    """The result of some steps of one engine."""

    seconds: float
    tokens: int  # target tokens without padding
    memory: int  # peak memory of the process, in bytes


@dataclass(frozen=True)
class TrainingResult:
    """The training speed of one engine with one model."""

    size: str
    engine: str
    speed: SampleStats  # target tokens per second
    memory: int  # bytes
    steps: int  # per turn
    parameters: int
    flops: float  # per target token


class _TrainingEngine(Protocol):
    """What a training engine implements."""

    def step(self) -> int:
        """Make one update and return its number of target tokens."""
        ...


class DragomanTraining:
    """The training loop of `dragoman train` without validation."""

    def __init__(self, recipe: Recipe, corpus: BenchmarkCorpus) -> None:
        keep_freed_memory()
        self.steps = Trainer(Run(corpus.folder), recipe, corpus.prepared_data()).steps()

    def step(self) -> int:
        """Make one update and return its number of target tokens."""
        return next(self.steps).tokens


_TRAININGS: dict[str, type[DragomanTraining] | type[TorchTraining]] = {
    "dragoman": DragomanTraining,
    "torch": TorchTraining,
}


class TimedTraining:
    """A training that makes some steps per turn."""

    def __init__(self, training: str, recipe: dict[str, Any], corpus: dict[str, Any]) -> None:
        self.training: _TrainingEngine = _TRAININGS[training](
            Recipe.from_table(recipe), BenchmarkCorpus.from_description(corpus)
        )

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
    """Let the engines train in turns, with the same number of steps in every round."""
    with start_engines(
        _training_engines(size, recipe, corpus, config, on_notice), on_notice, config.workload.pause_seconds
    ) as engines:
        steps = _calibrate_steps(list(engines.values()), config.turn_seconds)
        turns: dict[str, list[_TrainingTurn]] = {name: [] for name in engines}
        for _ in rounds:
            for name, engine in engines.items():
                turns[name].append(_TrainingTurn(**engine.run_turn(steps)))
    parameters, flops = _model_size(recipe, corpus)
    results = []
    for name, own_turns in turns.items():
        speed = SampleStats.from_values([turn.tokens / turn.seconds for turn in own_turns])
        results.append(TrainingResult(size, name, speed, own_turns[-1].memory, steps, parameters, flops))
    return results


def _training_engines(
    size: str, recipe: Recipe, corpus: BenchmarkCorpus, config: BenchmarkConfig, on_notice: OnBenchmarkNotice
) -> dict[str, EngineSpec]:
    def timed(training: str, precision: str) -> EngineSpec:
        endless = endless_training_recipe(recipe, config, precision).model_dump(mode="json")
        return engine_spec(TimedTraining, training, endless, corpus.describe())

    specs = {OWN_PREFIX: timed("dragoman", recipe.training.precision)}
    if config.bfloat16:
        specs[f"{OWN_PREFIX} bfloat16"] = timed("dragoman", "bfloat16")
    if is_torch_compatible(recipe.model):
        specs |= {name: timed("torch", precision) for precision, name in TORCH_ENGINES.items()}
    else:
        on_notice(f"{size}: torch.nn.Transformer is skipped because it does not support this model.")
    return specs


def _calibrate_steps(engines: list[EngineProcess], seconds: float) -> int:
    """Warm up all engines, and return the number of steps that takes the slowest one so many seconds."""
    for engine in engines:
        engine.run_turn(1)
    slowest: float = max(_TrainingTurn(**engine.run_turn(1)).seconds for engine in engines)
    return max(1, round(seconds / slowest))


def _model_size(recipe: Recipe, corpus: BenchmarkCorpus) -> tuple[int, float]:
    """Return the number of parameters and the operations per target token."""
    source, target = map(len, corpus.read_tokenizers())
    with torch.device("meta"):
        model = build_model(recipe.model, source, target)
    pairs = corpus.open_pairs()
    lengths = zip(pairs.source_lengths.tolist(), pairs.target_lengths.tolist(), strict=True)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return parameters, training_flops(cast(TransformerConfig, recipe.model), target, lengths)
