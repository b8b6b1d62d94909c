"""The stages of a request in the worker: what is done one after the other, each in parts that are scheduled.

A request is a generator that yields stages, receives the results of their items, and returns the answer. The worker
queues the items of a stage as units of a job, so that the work of other requests comes in between, and ends the
generator when the request is cancelled.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dragoman.server.scheduler import Job, Lane

# Called between two steps: lets others go first, and raises if the request is not wanted. None: the work is brief.
Look = Callable[[], None] | None
Request = Generator["Stage", list[Any], Any]
_Looked = TypeVar("_Looked")
_BRIEF_SIZE = 256  # a stage of this size takes a few milliseconds


@dataclass(frozen=True)
class Stage:
    """Items to work on; `run` returns the results of some of them, which may belong to several requests."""

    run: Callable[[list[Any], Look], Sequence[Any]]
    items: Sequence[Any]
    sizes: Sequence[int]  # of the items, in tokens or characters
    key: Hashable = None  # items of stages with equal keys can be run together; None: of this stage only
    budget: int = 0  # sizes of the items that are run together
    lane: Lane | None = None  # None: by the size of an item
    needs_turn: bool = True  # False: a small stage is done at once

    @property
    def is_brief(self) -> bool:
        """Whether the stage is not worth a turn."""
        return not self.items or (not self.needs_turn and sum(self.sizes) <= _BRIEF_SIZE)

    def to_job(self, message_id: int, client: str, request: Request) -> Job:
        """Return the job to schedule."""
        key = id(self) if self.key is None else self.key
        return Job(
            message_id, key, self.sizes, self.budget, payload=(self, request), fixed_lane=self.lane, client=client
        )


def looking(items: Iterable[_Looked], look: Look) -> Iterator[_Looked]:
    """Yield items, and look around after each."""
    for item in items:
        yield item
        if look:
            look()


def advance(request: Request, results: list[Any] | None = None) -> Stage:
    """Return the next stage of a request that is not brief; raise StopIteration with the answer after the last."""
    stage = request.send(results)  # type: ignore[arg-type]  # None starts the generator
    while stage.is_brief:
        stage = request.send(list(stage.run(list(stage.items), None)) if stage.items else [])
    return stage
