"""Schedules the work of all requests for the decoding threads: in batches across requests, in fair shares.

A job is one stage of a request; its units are sentences, or other bounded parts. Whoever has used the least time is
next: first the client, then its job, so a client with eight requests gets no more than one with a single request. A
batch takes one unit of each client in turn. Long sentences and tasks that take many steps have lanes of their own,
because a batch lasts as long as its longest unit. While others wait, at most one thread works in these lanes. Between
two steps, a thread does the brief work of clients that have used less. Knows threads and numbers, no tensors.
"""

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

# short: sentences that are decoded together. slice: other bounded work. long: long sentences. single: a task of many
# steps. inspect: one of these at a time. All of them pause between steps, those that are not brief at each.
Lane = Literal["short", "slice", "long", "single", "inspect"]
BRIEF_LANES: tuple[Lane, ...] = ("short", "slice")
_STEPWISE_LANES: tuple[Lane, ...] = ("single", "inspect", "long")

MAX_SHORT_TOKENS = 64  # longer units are long
BATCHING_DELAY_SECONDS = 0.008  # to wait for further units, if there were several lately
_CROWDED_TOKENS: dict[Lane, int] = {"long": 256, "slice": 128}  # in a batch, while there are several jobs
_MIN_UNIT_TOKENS = 16  # that a unit counts for at least, as in the engine
_MIN_SHARED_UNITS = 8  # a batch of fewer short units is not split between threads
_UNITS_PER_JOB = 4  # in the load that a batch is dimensioned for, while there are several jobs
_LOAD_DECAY = 0.9  # of the recent load, per batch
_MAX_IDLE_CLIENTS = 1024  # whose use of time is remembered


@dataclass(eq=False)
class Client:
    """What a client has used."""

    seconds: float = 0.0
    turn: int = 0  # when it was served last
    jobs: int = 0  # that are not finished
    threads: int = 0  # that work for this client alone


@dataclass(eq=False)
class Job:
    """One stage of a request: its units and their results."""

    message_id: int
    key: Hashable  # units with equal keys can be decoded in one batch
    sizes: Sequence[int]  # tokens of each unit
    budget: int  # tokens in one batch
    payload: Any = None
    fixed_lane: Lane | None = None  # None: by the size of a unit
    client: str = ""
    seconds: float = 0.0  # that it has used; a new job starts with what the client's other jobs have used at least
    turn: int = 0  # when it was queued, or served last
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
_Priority = tuple[float, float]  # seconds used by the client, and by the job; the smallest is next


@dataclass(frozen=True)
class DecodingBatch:
    """Units to decode together."""

    lane: Lane
    units: list[Unit]

    @property
    def jobs(self) -> list[Job]:
        """The jobs of the units."""
        return list(dict.fromkeys(job for job, _ in self.units))

    @cached_property
    def shares(self) -> dict[Job, float]:
        """The share of each job in the sizes of the units."""
        sizes: Counter[Job] = Counter()
        for job, index in self.units:
            sizes[job] += max(_MIN_UNIT_TOKENS, job.sizes[index])
        return {job: size / sizes.total() for job, size in sizes.items()}

    @property
    def only_client(self) -> str | None:
        """The client, if all units are of the same."""
        clients = {job.client for job, _ in self.units}
        return clients.pop() if len(clients) == 1 else None

    @property
    def is_wanted(self) -> bool:
        """Whether any of its requests has not been cancelled."""
        return any(not job.is_cancelled for job, _ in self.units)


class BatchScheduler:
    """Queues of waiting units, the time that clients have used, and the number of threads in each lane."""

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.threads = threads
        self.clock = clock
        self.condition = threading.Condition()
        self.queues: dict[Lane, dict[Job, deque[int]]] = {lane: {} for lane in (*BRIEF_LANES, *_STEPWISE_LANES)}
        self.queued_units: dict[Lane, int] = dict.fromkeys(self.queues, 0)
        self.busy_threads: dict[Lane, int] = dict.fromkeys(self.queues, 0)
        self.idle_threads = 0  # that wait for a batch
        self.decoding_units = 0  # short units in batches that are being decoded
        self.recent_load = 0.0  # decaying maximum of short units queued and being decoded
        self.recent_jobs = 0.0  # decaying maximum of unfinished jobs
        self.recent_clients = 0.0  # decaying maximum of clients with unfinished jobs
        self.queue_started_at = 0.0  # when the first of the present short units was queued
        self.jobs: dict[int, Job] = {}
        self.clients: dict[str, Client] = {}
        self.least_seconds = 0.0  # used by the client that was served last: what a new client starts with
        self.turns = 0
        self.is_closed = False

    # ---- jobs

    def submit(self, job: Job, after: Job | None = None) -> None:
        """Queue the units of a job; that of the next stage of a request only if the one before is not cancelled."""
        with self.condition:
            if after is not None:
                if after.is_cancelled:
                    return
                job.seconds = after.seconds
                self._remove(after)
            self._add(job, is_new=after is None)
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
            job = self.jobs.get(message_id)
            if job is None:
                return
            job.is_cancelled = True
            self._remove(job)
            for lane, jobs in self.queues.items():
                self.queued_units[lane] -= len(jobs.pop(job, ()))
            self.condition.notify_all()

    def charge(self, batch: DecodingBatch, seconds: float) -> None:
        """Add time to what the jobs of a batch and their clients have used, in proportion to the sizes of the units."""
        with self.condition:
            for job, share in batch.shares.items():
                job.seconds += seconds * share
                if job.client in self.clients:
                    self.clients[job.client].seconds += seconds * share

    def record_results(self, batch: DecodingBatch, results: Sequence[Any]) -> list[Job]:
        """Store the results of a batch; return the jobs that are complete and not cancelled."""
        with self.condition:
            for (job, index), result in zip(batch.units, results, strict=True):
                job.results[index] = result
                job.remaining -= 1
            return [job for job in batch.jobs if job.remaining == 0 and not job.is_cancelled]

    def finish_batch(self, batch: DecodingBatch) -> None:
        """Mark a thread as free again."""
        with self.condition:
            self.busy_threads[batch.lane] -= 1
            if batch.lane == "short":
                self.decoding_units -= len(batch.units)
            if batch.only_client is not None:
                self.clients[batch.only_client].threads -= 1
            for job in batch.jobs:
                if job.remaining == 0:
                    self._remove(job)
            self.condition.notify_all()

    def close(self) -> None:
        """Make `next_batch` return None in every thread."""
        with self.condition:
            self.is_closed = True
            self.condition.notify_all()

    def _add(self, job: Job, *, is_new: bool) -> None:
        client = self.clients.setdefault(job.client, Client())
        if client.jobs == 0:  # the time in which it wanted nothing gives it no right to more
            client.seconds = max(client.seconds, self.least_seconds)
        if is_new:
            others = [other.seconds for other in self.jobs.values() if other.client == job.client]
            job.seconds = min(others, default=0.0)
        self.turns += 1
        job.turn = self.turns
        client.jobs += 1
        self.jobs[job.message_id] = job
        self._note_crowd(decay=1.0)

    def _note_crowd(self, decay: float) -> None:
        clients = sum(client.jobs > 0 for client in self.clients.values())
        self.recent_jobs = max(float(len(self.jobs)), decay * self.recent_jobs)
        self.recent_clients = max(float(clients), decay * self.recent_clients)

    def _remove(self, job: Job) -> None:
        if self.jobs.get(job.message_id) is not job:
            return
        del self.jobs[job.message_id]
        self.clients[job.client].jobs -= 1
        if len(self.clients) > _MAX_IDLE_CLIENTS:
            self.clients = {name: client for name, client in self.clients.items() if client.jobs or client.threads}

    # ---- batches

    def next_batch(self) -> DecodingBatch | None:
        """Wait for a batch to decode; return None when the scheduler is closed."""
        with self.condition:
            while not self.is_closed:
                leader = self._next_leader(self._allowed_lanes())
                seconds = self.batching_delay() if leader and leader[0] == "short" else 0.0
                if leader and seconds <= 0:
                    return self._start_batch(*leader)
                self.idle_threads += 1
                self.condition.wait(seconds if leader else None)
                self.idle_threads -= 1
            return None

    def next_brief_batch(self, running: DecodingBatch) -> DecodingBatch | None:
        """Return brief work for a thread between two steps of a batch, if it comes before that batch.

        It does if its client has used less, or if no other thread does brief work. An idle thread takes it otherwise.
        """
        # Cheap: called after every decoding step.
        if self.idle_threads or not any(self.queued_units[lane] for lane in BRIEF_LANES):
            return None
        with self.condition:
            leader = self._next_leader(BRIEF_LANES)
            if leader is None:
                return None
            is_free = not any(self.busy_threads[lane] for lane in BRIEF_LANES)
            comes_first = self._priority(leader[1]) < min(self._priority(job) for job in running.jobs)
            return self._start_batch(*leader) if is_free or comes_first else None

    def batching_delay(self) -> float:
        """Return the seconds to wait for further units: a batch of two costs little more than one of one."""
        expected = math.ceil(0.75 * self.recent_load / self.threads)
        if self.queued_units["short"] >= expected:
            return 0.0
        return self.queue_started_at + BATCHING_DELAY_SECONDS - self.clock()

    def _allowed_lanes(self) -> list[Lane]:
        """Return the lanes for a free thread: one thread at a time is in stepwise lanes while brief work waits."""
        lanes: list[Lane] = list(BRIEF_LANES)
        brief_waits = any(self.queued_units[lane] for lane in BRIEF_LANES)
        if not brief_waits or not any(self.busy_threads[lane] for lane in _STEPWISE_LANES):
            lanes += [lane for lane in _STEPWISE_LANES if lane != "inspect" or not self.busy_threads[lane]]
        return lanes

    def _next_leader(self, lanes: Sequence[Lane]) -> tuple[Lane, Job] | None:
        """Return the job whose turn it is."""
        waiting = [(lane, job) for lane in lanes for job in self.queues[lane]]
        if self.recent_clients >= 2:  # one thread is left to the others
            most = max(1, self.threads - 1)
            waiting = [(lane, job) for lane, job in waiting if self.clients[job.client].threads < most]
        return min(waiting, key=lambda each: self._turn_order(each[1]), default=None)

    def _turn_order(self, job: Job) -> tuple[float, int, float, int]:
        """Return a sort key: the client that has used least or was served longest ago, and its job likewise."""
        client = self.clients[job.client]
        return client.seconds, client.turn, job.seconds, job.turn

    def _priority(self, job: Job) -> _Priority:
        client = self.clients.get(job.client)
        return (client.seconds if client else 0.0), job.seconds

    def _start_batch(self, lane: Lane, leader: Job) -> DecodingBatch:
        client = self.clients[leader.client]
        self.least_seconds = max(self.least_seconds, client.seconds)
        is_crowded = self.recent_jobs >= 2
        load = self._short_load(is_crowded) if lane == "short" else 0
        max_units = max(_MIN_SHARED_UNITS, math.ceil(load / self.threads)) if lane == "short" else len(self.jobs) << 20
        budget = min(leader.budget, _CROWDED_TOKENS.get(lane, leader.budget)) if is_crowded else leader.budget
        batch = DecodingBatch(lane, self._collect_units(lane, leader, max_units, budget))
        self.queued_units[lane] -= len(batch.units)
        self.busy_threads[lane] += 1
        if batch.only_client is not None:
            client.threads += 1
        self._note_crowd(_LOAD_DECAY)
        if lane == "short":
            self.recent_load = max(load, _LOAD_DECAY * self.recent_load)
            self.decoding_units += len(batch.units)
            self.queue_started_at = self.clock()
        return batch

    def _short_load(self, is_crowded: bool) -> int:
        """Return the short units queued and being decoded; of several jobs, a few of each count."""
        most = _UNITS_PER_JOB if is_crowded else self.queued_units["short"]
        return sum(min(most, len(indices)) for indices in self.queues["short"].values()) + self.decoding_units

    def _collect_units(self, lane: Lane, leader: Job, max_units: int, budget: int) -> list[Unit]:
        """Take units with the leader's key: one of each client in turn, and of each job of a client in turn."""
        queue = self.queues[lane]
        waiting: dict[str, deque[Job]] = {}
        for job in sorted((job for job in queue if job.key == leader.key), key=self._turn_order):
            waiting.setdefault(job.client, deque()).append(job)
        most = math.ceil(_MIN_SHARED_UNITS / len(waiting)) if len(waiting) > 1 else max_units  # of one client
        taken: Counter[str] = Counter()
        turns = deque(waiting.values())
        units: list[Unit] = []
        longest = _MIN_UNIT_TOKENS
        while turns and len(units) < max_units:
            jobs = turns.popleft()
            job = jobs.popleft()
            longest = max(longest, job.sizes[queue[job][0]])
            if units and longest * (len(units) + 1) > budget:
                break
            units.append((job, queue[job].popleft()))
            taken[job.client] += 1
            self.turns += 1
            job.turn = self.clients[job.client].turn = self.turns
            if queue[job]:
                jobs.append(job)
            else:
                del queue[job]
            if jobs and taken[job.client] < most:
                turns.append(jobs)
        return units
