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

from dragoman.crew import ONE, Crew
from dragoman.errors import Diverged
from dragoman.model.layers import noise
from dragoman.model.transducer import Network
from dragoman.model.weights import copies, put_back, statistics
from dragoman.recipe import Training
from dragoman.tokens import PAD
from dragoman.training.distributed import ALONE, World
from dragoman.training.loss import projected_cross_entropy
from dragoman.training.schedule import schedule

SMALLEST_SHARE = 512  # tokens, padding included: less work than this is not worth a core of its own
SKIPPED_IN_A_ROW = 10  # steps that may be skipped for a non-finite gradient before training gives up


@dataclass(frozen=True)
class TensorBatch:
    """A batch on its device."""

    source: Tensor  # B S
    prefix: Tensor  # B T
    target: Tensor  # B T
    tokens: int  # target tokens, padding not counted
    numbers: Sequence[int]  # which pairs of the corpus these are

    def shares(self, count: int) -> list["TensorBatch"]:
        """Deal the sentences out into at most `count` batches of about the same size, none of them very small."""
        count = max(1, min(count, self.target.numel() // SMALLEST_SHARE, len(self.target)))
        return [self.only(slice(first, None, count)) for first in range(count)] if count > 1 else [self]

    def only(self, rows: slice) -> "TensorBatch":
        """Return the sentences of these rows as a batch."""
        target = self.target[rows]
        return TensorBatch(self.source[rows], self.prefix[rows], target, int((target != PAD).sum()), self.numbers[rows])


@dataclass(frozen=True)
class Step:
    """What one update did. Losses are means over its target tokens."""

    number: int
    loss: float  # smoothed: what is minimised
    nll: float  # not smoothed: its exponential is the perplexity
    tokens: int
    rate: float
    gradient_norm: float
    skipped: int = 0  # how many steps in a row, up to this one, were skipped because the loss was not finite
    pairs: Sequence[int] = field(default=(), repr=False)  # of a skipped step only: which pairs were in it


Batches = Callable[[int], list[TensorBatch]]  # the batches of this process at a step, counted from 1


def train(
    model: Network,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    plan: Training,
    *,
    width: int,
    after: int = 0,
    skipped: int = 0,
    world: World = ALONE,
    crew: Crew = ONE,
) -> Iterator[Step]:
    """Update the parameters step by step, from the one after step `after` to the plan's last."""
    rate = schedule(plan, width)
    parameters, counts = list(model.parameters()), list(statistics(model).values())
    for number in range(after + 1, plan.steps + 1):
        before = copies(counts)
        loss, nll, tokens, pairs = accumulate(model, batches(number), plan, number, world, crew)
        world.agree(counts)
        norm = clipped_norm(parameters, plan.clip)
        finite = math.isfinite(norm) and math.isfinite(loss)
        if finite:
            set_rate(optimizer, rate(number))
            optimizer.step()
            increment_version(parameters)  # torch's fused Adam does not, and a validation would decode with old weights
        else:
            put_back(counts, before)
        optimizer.zero_grad(set_to_none=True)
        skipped = 0 if finite else skipped + 1
        yield Step(number, loss, nll, tokens, rate(number), norm, skipped, () if finite else pairs)
        if skipped >= SKIPPED_IN_A_ROW:
            raise Diverged(
                f"The loss was not a finite number in {skipped} steps in a row (the last was step {number}); training "
                f"has stopped. Nothing saved is damaged. Try a lower training.rate (now {rate(plan.warmup):.2g}), "
                f"a longer training.warmup (now {plan.warmup}) or training.clip = 1.0."
            )


def accumulate(
    model: Network, micro_batches: list[TensorBatch], plan: Training, number: int, world: World, crew: Crew
) -> tuple[float, float, int, list[int]]:
    """Leave the gradient of one update in the parameters; return both losses, the tokens and the pairs behind it."""
    model.train()
    parameters = list(model.parameters())
    tokens = world.total(sum(batch.tokens for batch in micro_batches))
    loss = nll = 0.0

    def work(job: tuple[TensorBatch, int]) -> tuple[float, float, tuple[Tensor | None, ...]]:
        return gradient(model, parameters, job[0], plan, tokens, job[1])

    for place, batch in enumerate(micro_batches):
        shares = batch.shares(crew.size)
        seeds = [step_seed(plan.seed, number, world.rank, place, share) for share in range(len(shares))]
        for smoothed, plain, gradients in crew.each(work, list(zip(shares, seeds, strict=True))):
            loss, nll = loss + smoothed, nll + plain
            add_gradients(parameters, gradients)
    world.add_up(parameters)
    pairs = [number for batch in micro_batches for number in batch.numbers]
    return world.total(loss), world.total(nll), int(tokens), pairs


def gradient(
    model: Network, parameters: list[nn.Parameter], batch: TensorBatch, plan: Training, tokens: float, seed: int
) -> tuple[float, float, tuple[Tensor | None, ...]]:
    """Return a batch's part of both mean losses and of the gradient, with the dropout that belongs to the seed."""
    device = batch.source.device
    with noise(seed, device), autocast(plan, device):
        hidden = model.hidden(batch.prefix, model.encode(batch.source))
        smoothed, plain = projected_cross_entropy(hidden, model.output, batch.target, plan.label_smoothing)
    gradients = torch.autograd.grad(smoothed / tokens, parameters, allow_unused=True)
    return smoothed.item() / tokens, plain.item() / tokens, gradients


def add_gradients(parameters: list[nn.Parameter], gradients: tuple[Tensor | None, ...]) -> None:
    """Add a share's gradient to what the parameters have."""
    for parameter, more in zip(parameters, gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = more
        elif more is not None:
            parameter.grad += more


def clipped_norm(parameters: list[nn.Parameter], longest: float) -> float:
    """Shorten the gradient to `longest` if that is set; return the length that it had."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if longest:
        nn.utils.clip_grads_with_norm_(parameters, longest, norm)
    return norm.item()


def autocast(plan: Training, device: torch.device) -> AbstractContextManager[object]:
    """Compute in bfloat16 where the plan asks for it, or leaves the choice and the processor is made for it."""
    wanted = plan.precision == "bfloat16" or (plan.precision == "auto" and has_bfloat16(device))
    return torch.autocast(device.type, torch.bfloat16) if wanted else nullcontext()


def has_bfloat16(device: torch.device) -> bool:
    """Say whether a device multiplies bfloat16 matrices in hardware."""
    if device.type == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported())
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def seconds_per_step(model: Network, batches: Batches, plan: Training, trials: int = 3, crew: Crew = ONE) -> float:
    """Measure how long an update takes on this machine, without making one."""
    durations, counts = [], list(statistics(model).values())
    before = copies(counts)
    for number in range(1, trials + 2):
        began_at = time.perf_counter()
        accumulate(model, batches(number), plan, number, ALONE, crew)
        durations.append(time.perf_counter() - began_at)
        for parameter in model.parameters():
            parameter.grad = None
    put_back(counts, before)
    return sum(durations[1:]) / trials  # the first one warms up


def adam(model: Network, plan: Training) -> torch.optim.Adam:
    """Section 5.3's optimiser."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=plan.betas, eps=plan.epsilon, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def step_seed(*place: int) -> int:
    """Return the seed of some dropout masks: unrelated numbers for related places, and nothing to save."""
    return int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0])
