"""Distributed training: the rank of this process, and sums over all processes.

`torchrun` sets RANK and WORLD_SIZE. Without it there is one process, and these functions do nothing.
"""

import atexit
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed as dist
from torch import nn

from dragoman.errors import UserError


@dataclass(frozen=True)
class World:
    """The processes of one training; only the main process, rank 0, writes files."""

    rank: int = 0
    size: int = 1

    @property
    def is_main_process(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.rank == 0

    def all_reduce_sum(self, value: float) -> float:
        """Return the sum of a number over all processes."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.item()

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Run the block in the main process first, and then in the others, which find what it has written."""
        if self.size > 1 and not self.is_main_process:
            dist.barrier()
        yield
        if self.size > 1 and self.is_main_process:
            dist.barrier()

    def all_reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its sum over all processes; a process without a batch contributes zeros."""
        if self.size > 1:
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                dist.all_reduce(parameter.grad)

    def all_reduce_mean(self, tensors: Iterable[torch.Tensor]) -> None:
        """Replace each tensor by its mean over all processes."""
        if self.size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)
                tensor /= self.size


SINGLE_PROCESS = World()


def init_world() -> World:
    """Return the rank and the number of processes, and initialise the process group if there are several."""
    size, rank = _read_number("WORLD_SIZE", minimum=1), _read_number("RANK", minimum=0)
    if size > 1 and not dist.is_initialized():
        try:
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"The {size} processes of WORLD_SIZE cannot be connected: {error}. Start them with `torchrun`, or "
                "unset WORLD_SIZE to train with one process."
            ) from None
        # Without it, the threads of the group are sometimes still running when the process ends, which aborts it.
        atexit.register(dist.destroy_process_group)
    return World(rank, size)


def _read_number(name: str, *, minimum: int) -> int:
    """Return an environment variable that `torchrun` sets, or its minimum without it."""
    value = os.environ.get(name, str(minimum))
    if not (value.isascii() and value.isdecimal()) or int(value) < minimum:
        raise UserError(
            f'The environment variable {name} is "{value}"; it must be a number, which `torchrun` sets. Unset it to '
            "train with one process."
        )
    return int(value)
