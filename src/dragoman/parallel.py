"""Data parallelism over the cores of one machine: a thread pool in which each thread uses one core.

PyTorch splits every single operation over the cores and waits for the slowest. Threads that each process a part of the
batch, from the first layer to the gradient, synchronise once per step, and also run Python and native code in parallel.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

_Input = TypeVar("_Input")
_Output = TypeVar("_Output")


class ThreadPool:
    """A pool of threads with one PyTorch thread each; a pool of size 1 runs everything in the caller's thread."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.pool = ThreadPoolExecutor(size, "dragoman", torch.set_num_threads, (1,)) if size > 1 else None

    def map(self, function: Callable[[_Input], _Output], items: Sequence[_Input]) -> Iterator[_Output]:
        """Yield the results in the order of the items, while later ones are computed."""
        return map(function, items) if self.pool is None or len(items) == 1 else self.pool.map(function, items)


SINGLE_THREAD = ThreadPool()


@cache
def thread_pool(size: int) -> ThreadPool:
    """Return the pool of this size; it is created once and reused."""
    return ThreadPool(size) if size > 1 else SINGLE_THREAD
