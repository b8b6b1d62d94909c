"""The cores of one machine as a crew: each works on sentences of its own, from the first layer to the gradient.

Torch by itself shares out every single operation and waits for the slowest core after each. Two cores that each take
half of the sentences meet once a step, and also share what torch does not: Python, and our own compiled functions.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

_Input = TypeVar("_Input")
_Output = TypeVar("_Output")


class ThreadPool:
    """So many threads, each with one core of torch's; a crew of one is the caller alone."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.pool = ThreadPoolExecutor(size, "crew", torch.set_num_threads, (1,)) if size > 1 else None

    def map(self, function: Callable[[_Input], _Output], items: Sequence[_Input]) -> Iterator[_Output]:
        """Yield the result for each item, in their order, while the crew works on the later ones."""
        return map(function, items) if self.pool is None or len(items) == 1 else self.pool.map(function, items)


SINGLE_THREAD = ThreadPool()


@cache
def thread_pool(size: int) -> ThreadPool:
    """Return the crew of this size, always the same one: its threads wait between two calls."""
    return ThreadPool(size) if size > 1 else SINGLE_THREAD
