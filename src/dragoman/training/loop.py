"""The training loop (section 5): a page, and it yields; others draw bars, write logs, save and validate.

Nothing in it remembers: the data of a step and its dropout are functions of (seed, step, rank). So a run that resumes
at a step goes on exactly as one that was never stopped.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from dragoman.errors import TrainingDiverged
from dragoman.models.layers import dropout_seed
from dragoman.models.transducer import Network
from dragoman.models.weights import clone_tensors, restore_tensors, running_statistics
from dragoman.parallel import SINGLE_THREAD, ThreadPool
from dragoman.recipe import TrainingConfig
from dragoman.tokens import PAD
from dragoman.training.distributed import SINGLE_PROCESS, World
from dragoman.training.loss import projected_cross_entropy
from dragoman.training.schedule import schedule

MIN_SHARD_TOKENS = 512  # tokens, padding included: less work than this is not worth a core of its own
_MAX_SKIPPED_IN_A_ROW = 10  # steps that may be skipped for a non-finite gradient before training gives up


@dataclass(frozen=True)
class TensorBatch:
    """A batch on its device."""

    source: Tensor  # B S
    prefix: Tensor  # B T
    target: Tensor  # B T
    tokens: int  # target tokens, padding not counted
    line_numbers: Sequence[int]  # which pairs of the corpus these are

    def split_rows(self, count: int) -> list["TensorBatch"]:
        """Deal the sentences out into at most `count` batches of about the same size, none of them very small."""
        count = max(1, min(count, self.target.numel() // MIN_SHARD_TOKENS, len(self.target)))
        return [self.select_rows(slice(first, None, count)) for first in range(count)] if count > 1 else [self]

    def select_rows(self, rows: slice) -> "TensorBatch":
        """Return the sentences of these rows as a batch."""
        target = self.target[rows]
        return TensorBatch(
            self.source[rows], self.prefix[rows], target, int((target != PAD).sum()), self.line_numbers[rows]
        )


@dataclass(frozen=True)
class TrainingStep:
    """What one update did. Losses are means over its target tokens."""

    number: int
    loss: float  # smoothed: what is minimised
    nll: float  # not smoothed: its exponential is the perplexity
    tokens: int
    learning_rate: float
    gradient_norm: float
    skipped: int = 0  # how many steps in a row, up to this one, were skipped because the loss was not finite
    line_numbers: Sequence[int] = field(default=(), repr=False)  # of a skipped step only: which pairs were in it


BatchesOfStep = Callable[[int], list[TensorBatch]]  # the batches of this process at a step, counted from 1


def train(
    model: Network,
    optimizer: torch.optim.Optimizer,
    batches: BatchesOfStep,
    config: TrainingConfig,
    *,
    width: int,
    steps_done: int = 0,
    skipped: int = 0,
    world: World = SINGLE_PROCESS,
    pool: ThreadPool = SINGLE_THREAD,
) -> Iterator[TrainingStep]:
    """Update the parameters step by step, from the one after step `after` to the plan's last."""
    rate = schedule(config, width)
    parameters, counts = list(model.parameters()), list(running_statistics(model).values())
    for number in range(steps_done + 1, config.steps + 1):
        before = clone_tensors(counts)
        loss, nll, tokens, pairs = accumulate_gradients(model, batches(number), config, number, world, pool)
        world.all_reduce_mean(counts)
        norm = _clip_gradients(parameters, config.clip)
        finite = math.isfinite(norm) and math.isfinite(loss)
        if finite:
            _set_learning_rate(optimizer, rate(number))
            optimizer.step()
            increment_version(parameters)  # torch's fused Adam does not, and a validation would decode with old weights
        else:
            restore_tensors(counts, before)
        optimizer.zero_grad(set_to_none=True)
        skipped = 0 if finite else skipped + 1
        yield TrainingStep(number, loss, nll, tokens, rate(number), norm, skipped, () if finite else pairs)
        if skipped >= _MAX_SKIPPED_IN_A_ROW:
            raise TrainingDiverged(
                f"The loss was not a finite number in {skipped} steps in a row (the last was step {number}); training "
                f"has stopped. Nothing saved is damaged. Try a lower training.rate (now {rate(config.warmup):.2g}), "
                f"a longer training.warmup (now {config.warmup}) or training.clip = 1.0."
            )


def accumulate_gradients(
    model: Network, micro_batches: list[TensorBatch], config: TrainingConfig, step: int, world: World, pool: ThreadPool
) -> tuple[float, float, int, list[int]]:
    """Leave the gradient of one update in the parameters; return both losses, the tokens and the pairs behind it."""
    model.train()
    parameters = list(model.parameters())
    tokens = world.all_reduce_sum(sum(batch.tokens for batch in micro_batches))
    loss = nll = 0.0

    def work(job: tuple[TensorBatch, int]) -> tuple[float, float, tuple[Tensor | None, ...]]:
        return _compute_gradients(model, parameters, job[0], config, tokens, job[1])

    for place, batch in enumerate(micro_batches):
        shares = batch.split_rows(pool.size)
        seeds = [_step_seed(config.seed, step, world.rank, place, share) for share in range(len(shares))]
        for smoothed, plain, gradients in pool.map(work, list(zip(shares, seeds, strict=True))):
            loss, nll = loss + smoothed, nll + plain
            _add_gradients(parameters, gradients)
    world.all_reduce_gradients(parameters)
    pairs = [number for batch in micro_batches for number in batch.line_numbers]
    return world.all_reduce_sum(loss), world.all_reduce_sum(nll), int(tokens), pairs


def _compute_gradients(
    model: Network, parameters: list[nn.Parameter], batch: TensorBatch, config: TrainingConfig, tokens: float, seed: int
) -> tuple[float, float, tuple[Tensor | None, ...]]:
    """Return a batch's part of both mean losses and of the gradient, with the dropout that belongs to the seed."""
    device = batch.source.device
    with dropout_seed(seed, device), autocast(config, device):
        hidden = model.hidden_states(batch.prefix, model.encode(batch.source))
        smoothed, plain = projected_cross_entropy(hidden, model.output_weight, batch.target, config.label_smoothing)
    gradients = torch.autograd.grad(smoothed / tokens, parameters, allow_unused=True)
    return smoothed.item() / tokens, plain.item() / tokens, gradients


def _add_gradients(parameters: list[nn.Parameter], gradients: tuple[Tensor | None, ...]) -> None:
    """Add a share's gradient to what the parameters have."""
    for parameter, more in zip(parameters, gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = more
        elif more is not None:
            parameter.grad += more


def _clip_gradients(parameters: list[nn.Parameter], max_norm: float) -> float:
    """Shorten the gradient to `longest` if that is set; return the length that it had."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if max_norm:
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm.item()


def autocast(config: TrainingConfig, device: torch.device) -> AbstractContextManager[object]:
    """Compute in bfloat16 where the plan asks for it, or leaves the choice and the processor is made for it."""
    wanted = config.precision == "bfloat16" or (config.precision == "auto" and _has_bfloat16(device))
    return torch.autocast(device.type, torch.bfloat16) if wanted else nullcontext()


def _has_bfloat16(device: torch.device) -> bool:
    """Say whether a device multiplies bfloat16 matrices in hardware."""
    if device.type == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported())
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def measure_seconds_per_step(
    model: Network, batches: BatchesOfStep, config: TrainingConfig, trials: int = 3, pool: ThreadPool = SINGLE_THREAD
) -> float:
    """Measure how long an update takes on this machine, without making one."""
    durations, counts = [], list(running_statistics(model).values())
    before = clone_tensors(counts)
    for number in range(1, trials + 2):
        began_at = time.perf_counter()
        accumulate_gradients(model, batches(number), config, number, SINGLE_PROCESS, pool)
        durations.append(time.perf_counter() - began_at)
        for parameter in model.parameters():
            parameter.grad = None
    restore_tensors(counts, before)
    return sum(durations[1:]) / trials  # the first one warms up


def build_adam(model: Network, config: TrainingConfig) -> torch.optim.Adam:
    """Section 5.3's optimiser."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=config.betas, eps=config.epsilon, fused=True)


def _set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def _step_seed(*place: int) -> int:
    """Return the seed of some dropout masks: unrelated numbers for related places, and nothing to save."""
    return int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0])
