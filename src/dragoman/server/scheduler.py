"""Schedules sentences for the decoding threads: batches across requests, fair to each of them.

A job is one request and its sentences are units. A batch takes one unit of each waiting job in turn, so a request of a
thousand sentences delays one of a single sentence by no more than a batch. Long sentences have a queue of their own,
because a batch lasts as long as its longest sentence. While short units wait, at most one thread decodes long ones, and
it decodes short ones between two steps if no other thread does. Knows threads and numbers, no tensors.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Lane = Literal["short", "long", "single", "inspect"]
_LONG_LANES: tuple[Lane, ...] = ("single", "inspect", "long")

MAX_SHORT_TOKENS = 64  # longer units are long
BATCHING_DELAY_SECONDS = 0.008  # to wait for further units, if there were several lately
_MIN_UNIT_TOKENS = 16  # that a unit counts for at least, as in the engine
_MIN_SHARED_UNITS = 8  # a batch of fewer short units is not split between threads
_UNLIMITED_UNITS = 1 << 20  # the token budget alone limits the batch
_LOAD_DECAY = 0.9  # of the recent load, per batch


@dataclass(eq=False)
class Job:
    """One request: its units and their results. A job with a `fixed_lane` is a single task instead of sentences."""

    message_id: int
    key: Hashable  # units with equal keys can be decoded in one batch
    sizes: Sequence[int]  # tokens of each unit
    budget: int  # tokens in one batch
    payload: Any = None
    fixed_lane: Lane | None = None
    results: list[Any] = field(default_factory=list)
    remaining: int = 0  # units without a result
    is_cancelled: bool = False

    def __post_init__(self) -> None:
        self.remaining = len(self.sizes)
        self.results = [None] * self.remaining

    def lane_of(self, index: int) -> Lane:
        """Return the lane in which a unit waits."""
        if self.fixed_lane:
            return self.fixed_lane
        return "short" if self.sizes[index] <= MAX_SHORT_TOKENS else "long"


Unit = tuple[Job, int]  # a job and the index of the unit in it


@dataclass(frozen=True)
class DecodingBatch:
    """Units to decode together."""

    lane: Lane
    units: list[Unit]

    @property
    def is_wanted(self) -> bool:
        """Whether any of its requests has not been cancelled."""
        return any(not job.is_cancelled for job, _ in self.units)


class BatchScheduler:
    """Queues of waiting units, and the number of threads that work on each kind."""

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.threads = threads
        self.clock = clock
        self.condition = threading.Condition()
        self.queues: dict[Lane, dict[Job, deque[int]]] = {lane: {} for lane in ("short", *_LONG_LANES)}
        self.queued_units: dict[Lane, int] = dict.fromkeys(self.queues, 0)
        self.busy_threads: dict[Lane, int] = dict.fromkeys(self.queues, 0)
        self.decoding_units = 0  # short units in batches that are being decoded
        self.recent_load = 0.0  # decaying maximum of short units queued and being decoded
        self.queue_started_at = 0.0  # when the first of the present short units was queued
        self.jobs: dict[int, Job] = {}
        self.is_closed = False

    def submit(self, job: Job) -> None:
        """Queue the units of a job."""
        with self.condition:
            self.jobs[job.message_id] = job
            if not self.queued_units["short"]:
                self.queue_started_at = self.clock()
            for index in range(len(job.sizes)):
                lane = job.lane_of(index)
                self.queues[lane].setdefault(job, deque()).append(index)
                self.queued_units[lane] += 1
            self.condition.notify_all()

    def cancel(self, message_id: int) -> None:
        """Remove a job from the queues; a batch that is being decoded for cancelled jobs only stops by itself."""
        with self.condition:
            job = self.jobs.pop(message_id, None)
            if job is None:
                return
            job.is_cancelled = True
            for lane, jobs in self.queues.items():
                self.queued_units[lane] -= len(jobs.pop(job, ()))
            self.condition.notify_all()

    def next_batch(self) -> DecodingBatch | None:
        """Wait for a batch to decode; return None when the scheduler is closed."""
        with self.condition:
            while not self.is_closed:
                lane = self.next_lane()
                seconds = 0.0 if lane != "short" else self.batching_delay()
                if lane and seconds <= 0:
                    return self._start_batch(lane)
                self.condition.wait(seconds if lane else None)
            return None

    def next_short_batch(self) -> DecodingBatch | None:
        """Return short units that no thread is working on, for a thread that is decoding something longer."""
        if not self.queued_units["short"] or self.busy_threads["short"]:  # cheap: called after every decoding step
            return None
        with self.condition:
            is_free = self.queued_units["short"] and not self.busy_threads["short"]
            return self._start_batch("short") if is_free else None

    def record_results(self, batch: DecodingBatch, results: Sequence[Any]) -> list[Job]:
        """Store the results of a batch; return the jobs that are complete and not cancelled."""
        with self.condition:
            for (job, index), result in zip(batch.units, results, strict=True):
                job.results[index] = result
                job.remaining -= 1
            jobs = dict.fromkeys(job for job, _ in batch.units)
            return [job for job in jobs if job.remaining == 0 and not job.is_cancelled]

    def finish_batch(self, batch: DecodingBatch) -> None:
        """Mark a thread as free again."""
        with self.condition:
            self.busy_threads[batch.lane] -= 1
            if batch.lane == "short":
                self.decoding_units -= len(batch.units)
            for job, _ in batch.units:
                if job.remaining == 0:
                    self.jobs.pop(job.message_id, None)
            self.condition.notify_all()

    def close(self) -> None:
        """Make `next_batch` return None in every thread."""
        with self.condition:
            self.is_closed = True
            self.condition.notify_all()

    def next_lane(self) -> Lane | None:
        """Return the lane for a free thread: short units, but one thread at a time may decode longer ones."""
        for lane in _LONG_LANES:
            may_take = not self.queued_units["short"] or not any(self.busy_threads[other] for other in _LONG_LANES)
            one_at_a_time = lane == "inspect" and self.busy_threads[lane]
            if self.queued_units[lane] and may_take and not one_at_a_time:
                return lane
        return "short" if self.queued_units["short"] else None

    def batching_delay(self) -> float:
        """Return the seconds to wait for further units: a batch of two costs little more than one of one."""
        expected = math.ceil(0.75 * self.recent_load / self.threads)
        if self.queued_units["short"] >= expected:
            return 0.0
        return self.queue_started_at + BATCHING_DELAY_SECONDS - self.clock()

    def _start_batch(self, lane: Lane) -> DecodingBatch:
        load = self.queued_units["short"] + self.decoding_units
        share = max(_MIN_SHARED_UNITS, math.ceil(load / self.threads))
        max_units = share if lane == "short" else _UNLIMITED_UNITS if lane == "long" else 1
        batch = DecodingBatch(lane, self._collect_units(self.queues[lane], max_units))
        self.queued_units[lane] -= len(batch.units)
        self.busy_threads[lane] += 1
        if lane == "short":
            self.recent_load = max(load, _LOAD_DECAY * self.recent_load)
            self.decoding_units += len(batch.units)
            self.queue_started_at = self.clock()
        return batch

    def _collect_units(self, jobs: dict[Job, deque[int]], max_units: int) -> list[Unit]:
        """Take units with equal keys, one of each job in turn; a job with further units goes to the end."""
        leader = next(iter(jobs))
        candidates = deque(job for job in jobs if job.key == leader.key)
        units: list[Unit] = []
        longest = _MIN_UNIT_TOKENS
        while candidates and len(units) < max_units:
            job = candidates.popleft()
            longest = max(longest, job.sizes[jobs[job][0]])
            if units and longest * (len(units) + 1) > leader.budget:
                break
            indices = jobs.pop(job)
            units.append((job, indices.popleft()))
            if indices:
                jobs[job] = indices
                candidates.append(job)
        return units
