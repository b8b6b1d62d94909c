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
LONGER: tuple[Lane, ...] = ("alone", "look", "long")

SHORT = 64  # pieces; longer units are long
FEWEST = 16  # pieces that the shortest unit counts for, as in the engine
PATIENCE = 0.008  # seconds to wait for company, where there was company lately
FAIR, MANY = 8, 1 << 20  # units: a batch of fewer short ones is not worth sharing; as many as the budget allows
FORGETTING = 0.9  # of the number of units lately inside, at each batch


@dataclass(eq=False)
class Job:
    """One request: what to do with its units, and what has come out."""

    number: int
    key: Hashable  # units of equal key can be decoded together
    sizes: Sequence[int]  # pieces of each unit
    budget: int  # of pieces, for one batch
    what: Any = None
    own_lane: Lane | None = None  # of a job that is no sentences but one task: alone, or a look
    results: list[Any] = field(default_factory=list)
    left: int = 0  # units without a result
    gone: bool = False  # nobody waits for it any more

    def __post_init__(self) -> None:
        self.left = len(self.sizes)
        self.results = [None] * self.left

    def lane(self, place: int) -> Lane:
        """Return where a unit waits."""
        if self.own_lane:
            return self.own_lane
        return "short" if self.sizes[place] <= SHORT else "long"


Unit = tuple[Job, int]  # and its place in the job


@dataclass(frozen=True)
class Batch:
    """Units to decode together."""

    lane: Lane
    units: list[Unit]

    @property
    def wanted(self) -> bool:
        """Say whether anybody still waits for any of it."""
        return any(not job.gone for job, _ in self.units)


class Line:
    """Units that wait, and who works on what."""

    def __init__(self, threads: int, now: Callable[[], float] = time.monotonic) -> None:
        self.threads = threads
        self.now = now
        self.changed = threading.Condition()
        self.waiting: dict[Lane, dict[Job, deque[int]]] = {lane: {} for lane in ("short", *LONGER)}
        self.counts: dict[Lane, int] = dict.fromkeys(self.waiting, 0)  # of units that wait
        self.working: dict[Lane, int] = dict.fromkeys(self.waiting, 0)  # of threads
        self.decoding = 0  # short units in batches
        self.lately = 0.0  # short units inside
        self.first_at = 0.0  # when the line of short units was last empty, and one came
        self.jobs: dict[int, Job] = {}
        self.closed = False

    def put(self, job: Job) -> None:
        """Let a job's units wait."""
        with self.changed:
            self.jobs[job.number] = job
            if not self.counts["short"]:
                self.first_at = self.now()
            for place in range(len(job.sizes)):
                lane = job.lane(place)
                self.waiting[lane].setdefault(job, deque()).append(place)
                self.counts[lane] += 1
            self.changed.notify_all()

    def cancel(self, number: int) -> None:
        """Forget a job; a batch that is under way without anyone waiting for it stops by itself."""
        with self.changed:
            job = self.jobs.pop(number, None)
            if job is None:
                return
            job.gone = True
            for lane, jobs in self.waiting.items():
                self.counts[lane] -= len(jobs.pop(job, ()))
            self.changed.notify_all()

    def take(self) -> Batch | None:
        """Wait for work and return some; None when the line is closed."""
        with self.changed:
            while not self.closed:
                lane = self.next_lane()
                seconds = 0.0 if lane != "short" else self.worth_waiting()
                if lane and seconds <= 0:
                    return self.begun(lane)
                self.changed.wait(seconds if lane else None)
            return None

    def pass_by(self) -> Batch | None:
        """Return short units that nobody else is about to work on, for a thread in the middle of something longer."""
        if not self.counts["short"] or self.working["short"]:  # cheap, and asked at every step
            return None
        with self.changed:
            return self.begun("short") if self.counts["short"] and not self.working["short"] else None

    def settle(self, batch: Batch, results: Sequence[Any]) -> list[Job]:
        """Note the results of a batch; return the jobs that are complete by it and still wanted."""
        with self.changed:
            for (job, place), result in zip(batch.units, results, strict=True):
                job.results[place] = result
                job.left -= 1
            return [job for job in dict.fromkeys(job for job, _ in batch.units) if job.left == 0 and not job.gone]

    def done(self, batch: Batch) -> None:
        """Tell that a thread is done with a batch."""
        with self.changed:
            self.working[batch.lane] -= 1
            if batch.lane == "short":
                self.decoding -= len(batch.units)
            for job, _ in batch.units:
                if job.left == 0:
                    self.jobs.pop(job.number, None)
            self.changed.notify_all()

    def close(self) -> None:
        """Send everyone home."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def next_lane(self) -> Lane | None:
        """Say what a free thread should take: short units, but one thread may always be with longer ones."""
        for lane in LONGER:
            free = not self.counts["short"] or not any(self.working[each] for each in LONGER)
            if self.counts[lane] and free and not (lane == "look" and self.working[lane]):  # of looks one at a time
                return lane
        return "short" if self.counts["short"] else None

    def worth_waiting(self) -> float:
        """Return how many seconds to wait for company: a batch of two costs little more than one of one."""
        share = math.ceil(0.75 * self.lately / self.threads)
        return 0.0 if self.counts["short"] >= share else self.first_at + PATIENCE - self.now()

    def begun(self, lane: Lane) -> Batch:
        """Take a batch out of a lane."""
        inside = self.counts["short"] + self.decoding
        share = max(FAIR, math.ceil(inside / self.threads))
        most = share if lane == "short" else MANY if lane == "long" else 1
        batch = Batch(lane, self.gathered(self.waiting[lane], most))
        self.counts[lane] -= len(batch.units)
        self.working[lane] += 1
        if lane == "short":
            self.lately = max(inside, FORGETTING * self.lately)
            self.decoding += len(batch.units)
            self.first_at = self.now()
        return batch

    def gathered(self, jobs: dict[Job, deque[int]], most: int) -> list[Unit]:
        """Take units of one key, from each job in turn; a job that has more of them goes to the end."""
        leader = next(iter(jobs))
        alike = deque(job for job in jobs if job.key == leader.key)
        units: list[Unit] = []
        longest = FEWEST
        while alike and len(units) < most:
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
