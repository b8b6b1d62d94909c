"""The training loop (section 5 of the paper): it updates the parameters and yields one `TrainingStep` per update.

It keeps no state of its own: the data of a step and its dropout masks are functions of (seed, step), so a resumed
training makes exactly the updates of one that was never stopped. Logging, validation and checkpoints are the caller's.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from dragoman.cache import default_cache_dir
from dragoman.errors import TrainingDiverged
from dragoman.models.layers import dropout_seed
from dragoman.models.transducer import FRAMES_PER_POSITION, Source, Transducer
from dragoman.models.weights import clone_tensors, restore_tensors, running_statistics
from dragoman.parallel import SINGLE_THREAD, ThreadPool
from dragoman.recipe import TrainingConfig
from dragoman.tokens import token_mask
from dragoman.training.distributed import SINGLE_PROCESS, World

MIN_SHARD_TOKENS = 512  # padding included; a smaller shard is not worth a core of its own
_MAX_SKIPPED_IN_A_ROW = 10  # steps with a non-finite gradient before training gives up


@dataclass(frozen=True)
class TensorBatch:
    """A batch on its device."""

    source: Source
    prefix: Tensor  # B T
    target: Tensor  # B T
    tokens: int  # target tokens, without padding
    line_numbers: Sequence[int]  # of its pairs in the corpus

    def split_rows(self, count: int) -> list["TensorBatch"]:
        """Return at most `count` shards of about equal size with at least `MIN_SHARD_TOKENS` tokens each."""
        is_signal = self.source.values.dim() == 3  # whose transcript is much shorter
        size = self.source.mask.numel() // FRAMES_PER_POSITION if is_signal else self.target.numel()
        count = max(1, min(count, size // MIN_SHARD_TOKENS, len(self.target)))
        return [self.select_rows(slice(first, None, count)) for first in range(count)] if count > 1 else [self]

    def select_rows(self, rows: slice) -> "TensorBatch":
        """Return the sentences of some rows as a batch."""
        target = self.target[rows]
        tokens = int(token_mask(target).sum())
        return TensorBatch(self.source[rows], self.prefix[rows], target, tokens, self.line_numbers[rows])


class LossSums(NamedTuple):
    """What an objective returns for a batch, summed over its target tokens."""

    loss: Tensor  # what is minimised
    nll: Tensor  # the negative log-likelihood, for the log; its exponential per token is the perplexity


Objective = Callable[[Transducer, TensorBatch], LossSums]
BatchesOfStep = Callable[[int], list[TensorBatch]]  # the micro-batches of this process at a step, counted from 1
_Gradients = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class TrainingStep:
    """One update of the parameters. Losses are means over its target tokens."""

    number: int
    loss: float  # smoothed: what is minimised
    nll: float  # not smoothed: its exponential is the perplexity
    tokens: int
    learning_rate: float
    gradient_norm: float
    skipped: int = 0  # consecutive steps up to this one that were skipped: loss or gradient norm was not finite
    line_numbers: Sequence[int] = field(default=(), repr=False)  # of the pairs of a skipped step


def train(
    model: Transducer,
    optimizer: torch.optim.Optimizer,
    objective: Objective,
    batches: BatchesOfStep,
    config: TrainingConfig,
    learning_rate: Callable[[int], float],
    *,
    steps_done: int = 0,
    skipped: int = 0,
    world: World = SINGLE_PROCESS,
    pool: ThreadPool = SINGLE_THREAD,
) -> Iterator[TrainingStep]:
    """Update the parameters step by step, from step `steps_done` + 1 to the last one of the config."""
    parameters, statistics = list(model.parameters()), list(running_statistics(model).values())
    for number in range(steps_done + 1, config.steps + 1):
        statistics_before = clone_tensors(statistics)
        loss, nll, tokens, line_numbers = accumulate_gradients(
            model, objective, batches(number), config, number, world, pool
        )
        world.all_reduce_mean(statistics)
        norm = _clip_gradients(parameters, config.clip)
        is_finite = math.isfinite(norm) and math.isfinite(loss)
        if is_finite:
            _set_learning_rate(optimizer, learning_rate(number))
            optimizer.step()
            # torch's fused Adam does not increment it, and a validation would decode with weights cached before
            increment_version(parameters)
        else:
            restore_tensors(statistics, statistics_before)
        optimizer.zero_grad(set_to_none=True)
        skipped = 0 if is_finite else skipped + 1
        yield TrainingStep(
            number, loss, nll, tokens, learning_rate(number), norm, skipped, () if is_finite else line_numbers
        )
        if skipped >= _MAX_SKIPPED_IN_A_ROW:
            raise TrainingDiverged(
                f"The loss or the gradient norm was not finite in {skipped} steps in a row (the last was step "
                f"{number}), so training has stopped. In the last step, the loss was {loss:.4g} and the gradient norm "
                f"was {norm:.4g}. Saved checkpoints are intact. Try a lower training.rate (now "
                f"{learning_rate(config.warmup):.2g}), a longer training.warmup (now {config.warmup}) or "
                "training.clip = 1.0."
            )


def accumulate_gradients(
    model: Transducer,
    objective: Objective,
    micro_batches: list[TensorBatch],
    config: TrainingConfig,
    step: int,
    world: World,
    pool: ThreadPool,
) -> tuple[float, float, int, list[int]]:
    """Leave the gradient of one update in the parameters; return its loss, nll, tokens and line numbers.

    The losses are divided by the target tokens of the whole update, over all micro-batches and processes, so that the
    gradient is that of one large batch.
    """
    model.train()
    parameters = list(model.parameters())
    tokens = world.all_reduce_sum(sum(batch.tokens for batch in micro_batches))
    loss = nll = 0.0

    def compute(job: tuple[TensorBatch, int]) -> tuple[float, float, _Gradients]:
        batch, seed = job
        return _compute_gradients(model, objective, parameters, batch, config, tokens, seed)

    for index, batch in enumerate(micro_batches):
        shards = batch.split_rows(pool.size)
        # The seeds number the micro-batches of the update over all processes, so they do not depend on how many there
        # are. The constant 0 is part of the seeds of released runs, which resume with the same dropout masks.
        update_index = index * world.size + world.rank
        seeds = [_step_seed(config.seed, step, 0, update_index, shard) for shard in range(len(shards))]
        for shard_loss, shard_nll, gradients in pool.map(compute, list(zip(shards, seeds, strict=True))):
            loss, nll = loss + shard_loss, nll + shard_nll
            _add_gradients(parameters, gradients)
    world.all_reduce_gradients(parameters)
    line_numbers = [number for batch in micro_batches for number in batch.line_numbers]
    return world.all_reduce_sum(loss), world.all_reduce_sum(nll), int(tokens), line_numbers


def _compute_gradients(
    model: Transducer,
    objective: Objective,
    parameters: list[nn.Parameter],
    batch: TensorBatch,
    config: TrainingConfig,
    tokens: float,
    seed: int,
) -> tuple[float, float, _Gradients]:
    device = batch.target.device
    with dropout_seed(seed, device), autocast(config, device):
        sums = objective(model, batch)
    gradients = torch.autograd.grad(sums.loss / tokens, parameters, allow_unused=True)
    return sums.loss.item() / tokens, sums.nll.item() / tokens, gradients


def _add_gradients(parameters: list[nn.Parameter], gradients: _Gradients) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = gradient
        elif gradient is not None:
            parameter.grad += gradient


def _clip_gradients(parameters: list[nn.Parameter], max_norm: float) -> float:
    # Returns the norm before clipping; a max_norm of 0 leaves the gradient as it is.
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if max_norm:
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm.item()


def autocast(config: TrainingConfig, device: torch.device) -> AbstractContextManager[object]:
    """Compute in bfloat16 if the config says so, or leaves the choice and the hardware supports it."""
    enabled = config.precision == "bfloat16" or (config.precision == "auto" and _has_bfloat16(device))
    return torch.autocast(device.type, torch.bfloat16) if enabled else nullcontext()


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported())
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def measure_seconds_per_step(
    model: Transducer,
    objective: Objective,
    batches: BatchesOfStep,
    config: TrainingConfig,
    trials: int = 3,
    pool: ThreadPool = SINGLE_THREAD,
) -> float:
    """Measure how long an update takes on this machine, without updating the parameters."""
    durations, statistics = [], list(running_statistics(model).values())
    statistics_before = clone_tensors(statistics)
    for step in range(1, trials + 2):
        started_at = time.perf_counter()
        accumulate_gradients(model, objective, batches(step), config, step, SINGLE_PROCESS, pool)
        durations.append(time.perf_counter() - started_at)
        for parameter in model.parameters():
            parameter.grad = None
    restore_tensors(statistics, statistics_before)
    return sum(durations[1:]) / trials  # the first one is a warm-up


def build_adam(model: Transducer, config: TrainingConfig) -> torch.optim.Adam:
    """Return the optimiser of section 5.3."""
    # It imports torch's compiler, which creates a directory for its results, in /tmp unless told otherwise.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(default_cache_dir() / "torchinductor"))
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=config.betas, eps=config.epsilon, fused=True)


def _set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def _step_seed(*position: int) -> int:
    # A hash: unrelated seeds for neighbouring steps, micro-batches and shards, and nothing to save.
    return int(np.random.SeedSequence(position).generate_state(1, np.uint64)[0])
