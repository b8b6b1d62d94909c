"""The line in which sentences wait for a decoding thread: batches across clients, fair to each of them.

A job is one request; its sentences are units. A batch takes one unit of each waiting job in turn, so that a request of
a thousand sentences delays one of a single sentence by no more than a batch. Long sentences wait in a line of their
own: a batch lasts as long as its longest sentence. While short ones wait, one thread at most works on long ones, and
that thread lets short ones pass between two steps if no other does. Knows threads and numbers, no tensors.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Lane = Literal["short", "long", "alone", "look"]
_LONG_LANES: tuple[Lane, ...] = ("alone", "look", "long")

MAX_SHORT_TOKENS = 64  # pieces; longer units are long
_MIN_UNIT_TOKENS = 16  # pieces that the shortest unit counts for, as in the engine
BATCHING_DELAY_SECONDS = 0.008  # seconds to wait for company, where there was company lately
_MIN_SHARED_UNITS, _UNLIMITED_UNITS = (
    8,
    1 << 20,
)  # units: a batch of fewer short ones is not worth sharing; as many as the budget allows
_LOAD_DECAY = 0.9  # of the number of units lately inside, at each batch


@dataclass(eq=False)
class Job:
    """One request: what to do with its units, and what has come out."""

    message_id: int
    key: Hashable  # units of equal key can be decoded together
    sizes: Sequence[int]  # pieces of each unit
    budget: int  # of pieces, for one batch
    payload: Any = None
    fixed_lane: Lane | None = None  # of a job that is no sentences but one task: alone, or a look
    results: list[Any] = field(default_factory=list)
    remaining: int = 0  # units without a result
    is_cancelled: bool = False  # nobody waits for it any more

    def __post_init__(self) -> None:
        self.remaining = len(self.sizes)
        self.results = [None] * self.remaining

    def lane_of(self, index: int) -> Lane:
        """Return where a unit waits."""
        if self.fixed_lane:
            return self.fixed_lane
        return "short" if self.sizes[index] <= MAX_SHORT_TOKENS else "long"


Unit = tuple[Job, int]  # and its place in the job


@dataclass(frozen=True)
class DecodingBatch:
    """Units to decode together."""

    lane: Lane
    units: list[Unit]

    @property
    def is_wanted(self) -> bool:
        """Say whether anybody still waits for any of it."""
        return any(not job.is_cancelled for job, _ in self.units)


class BatchScheduler:
    """Units that wait, and who works on what."""

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.threads = threads
        self.clock = clock
        self.condition = threading.Condition()
        self.queues: dict[Lane, dict[Job, deque[int]]] = {lane: {} for lane in ("short", *_LONG_LANES)}
        self.queued_units: dict[Lane, int] = dict.fromkeys(self.queues, 0)  # of units that wait
        self.busy_threads: dict[Lane, int] = dict.fromkeys(self.queues, 0)  # of threads
        self.decoding_units = 0  # short units in batches
        self.recent_load = 0.0  # short units inside
        self.queue_started_at = 0.0  # when the line of short units was last empty, and one came
        self.jobs: dict[int, Job] = {}
        self.is_closed = False

    def submit(self, job: Job) -> None:
        """Let a job's units wait."""
        with self.condition:
            self.jobs[job.message_id] = job
            if not self.queued_units["short"]:
                self.queue_started_at = self.clock()
            for place in range(len(job.sizes)):
                lane = job.lane_of(place)
                self.queues[lane].setdefault(job, deque()).append(place)
                self.queued_units[lane] += 1
            self.condition.notify_all()

    def cancel(self, message_id: int) -> None:
        """Forget a job; a batch that is under way without anyone waiting for it stops by itself."""
        with self.condition:
            job = self.jobs.pop(message_id, None)
            if job is None:
                return
            job.is_cancelled = True
            for lane, jobs in self.queues.items():
                self.queued_units[lane] -= len(jobs.pop(job, ()))
            self.condition.notify_all()

    def next_batch(self) -> DecodingBatch | None:
        """Wait for work and return some; None when the line is closed."""
        with self.condition:
            while not self.is_closed:
                lane = self.next_lane()
                seconds = 0.0 if lane != "short" else self.batching_delay()
                if lane and seconds <= 0:
                    return self.start_batch(lane)
                self.condition.wait(seconds if lane else None)
            return None

    def next_short_batch(self) -> DecodingBatch | None:
        """Return short units that nobody else is about to work on, for a thread in the middle of something longer."""
        if not self.queued_units["short"] or self.busy_threads["short"]:  # cheap, and asked at every step
            return None
        with self.condition:
            return self.start_batch("short") if self.queued_units["short"] and not self.busy_threads["short"] else None

    def record_results(self, batch: DecodingBatch, results: Sequence[Any]) -> list[Job]:
        """Note the results of a batch; return the jobs that are complete by it and still wanted."""
        with self.condition:
            for (job, place), result in zip(batch.units, results, strict=True):
                job.results[place] = result
                job.remaining -= 1
            return [
                job
                for job in dict.fromkeys(job for job, _ in batch.units)
                if job.remaining == 0 and not job.is_cancelled
            ]

    def finish_batch(self, batch: DecodingBatch) -> None:
        """Tell that a thread is done with a batch."""
        with self.condition:
            self.busy_threads[batch.lane] -= 1
            if batch.lane == "short":
                self.decoding_units -= len(batch.units)
            for job, _ in batch.units:
                if job.remaining == 0:
                    self.jobs.pop(job.message_id, None)
            self.condition.notify_all()

    def close(self) -> None:
        """Send everyone home."""
        with self.condition:
            self.is_closed = True
            self.condition.notify_all()

    def next_lane(self) -> Lane | None:
        """Say what a free thread should take: short units, but one thread may always be with longer ones."""
        for lane in _LONG_LANES:
            free = not self.queued_units["short"] or not any(self.busy_threads[each] for each in _LONG_LANES)
            if (
                self.queued_units[lane] and free and not (lane == "look" and self.busy_threads[lane])
            ):  # of looks one at a time
                return lane
        return "short" if self.queued_units["short"] else None

    def batching_delay(self) -> float:
        """Return how many seconds to wait for company: a batch of two costs little more than one of one."""
        share = math.ceil(0.75 * self.recent_load / self.threads)
        return (
            0.0
            if self.queued_units["short"] >= share
            else self.queue_started_at + BATCHING_DELAY_SECONDS - self.clock()
        )

    def start_batch(self, lane: Lane) -> DecodingBatch:
        """Take a batch out of a lane."""
        inside = self.queued_units["short"] + self.decoding_units
        share = max(_MIN_SHARED_UNITS, math.ceil(inside / self.threads))
        most = share if lane == "short" else _UNLIMITED_UNITS if lane == "long" else 1
        batch = DecodingBatch(lane, self.collect_units(self.queues[lane], most))
        self.queued_units[lane] -= len(batch.units)
        self.busy_threads[lane] += 1
        if lane == "short":
            self.recent_load = max(inside, _LOAD_DECAY * self.recent_load)
            self.decoding_units += len(batch.units)
            self.queue_started_at = self.clock()
        return batch

    def collect_units(self, jobs: dict[Job, deque[int]], max_units: int) -> list[Unit]:
        """Take units of one key, from each job in turn; a job that has more of them goes to the end."""
        leader = next(iter(jobs))
        alike = deque(job for job in jobs if job.key == leader.key)
        units: list[Unit] = []
        longest = _MIN_UNIT_TOKENS
        while alike and len(units) < max_units:
            job = alike.popleft()
            longest = max(longest, job.sizes[jobs[job][0]])
            if units and longest * (len(units) + 1) > leader.budget:
                break
            places = jobs.pop(job)
            units.append((job, places.popleft()))
            if places:
                jobs[job] = places
                alike.append(job)
        return units
