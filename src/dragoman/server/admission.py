"""Admission control: bounds the requests and the work that are queued, per client and by what can be done in time."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dragoman.server.limits import Limits
from dragoman.server.problems import Problem, server_busy

_MEASUREMENT_SECONDS = 0.5
_RATE_DECAY = 0.9  # per measurement: with few requests the measured rate is below what is possible
_MIN_RATE = 100.0  # units of work per second; a lower rate is a stall
_MAX_RETRY_SECONDS = 30


class Admission:
    """Counts queued requests and their work, in the units of `server/work.py`, and measures how fast it is done."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self.requests = 0
        self.by_client: Counter[str] = Counter()
        self.sizes: Counter[int] = Counter()  # work of each queued request
        self.rate = 0.0  # units of work per second of all clients together; 0: not measured yet
        self._work_done = 0  # in the present measurement
        self._window_started_at = 0.0

    @property
    def work(self) -> int:
        """The queued work."""
        return sum(size * count for size, count in self.sizes.items())

    def check(self, client: str | None) -> None:
        """Raise a problem if a request of this client cannot be queued."""
        if self.requests >= self.limits.queued_requests:
            raise server_busy(self.retry_after_seconds())
        limit = self.limits.requests_per_client
        if client is not None and self.by_client[client] >= limit:
            raise Problem(429, "too_many", f"A client may have at most {limit} requests at a time.", retry_after=1)

    @contextmanager
    def admit(self, client: str | None) -> Iterator[None]:
        """Count a request as queued until it is answered."""
        self.check(client)
        self.requests += 1
        if client is not None:
            self.by_client[client] += 1
        try:
            yield
        finally:
            self.requests -= 1
            if client is not None:
                self.by_client[client] -= 1
                if not self.by_client[client]:
                    del self.by_client[client]

    @contextmanager
    def reserve(self, work: int, deadline_seconds: float | None = None) -> Iterator[None]:
        """Count work as queued; refuse it if it would not be done in time, unless nothing else is queued."""
        seconds = deadline_seconds or self.limits.deadline_seconds
        if self.sizes and (self._exceeds_share(work) or self.estimated_seconds(work) > seconds / 2):
            raise server_busy(self.retry_after_seconds())
        if not self.sizes:
            self._work_done, self._window_started_at = 0, self.clock()
        self.sizes[work] += 1
        try:
            yield
            self._record_finished(work)
        finally:
            self.sizes[work] -= 1
            if not self.sizes[work]:
                del self.sizes[work]

    def estimated_seconds(self, work: int) -> float:
        """Estimate when further work would be done; requests take turns, so it need not wait for larger ones."""
        ahead = sum(min(size, work) * count for size, count in self.sizes.items())
        return (ahead + work) / self.rate if self.rate else 0.0

    def retry_after_seconds(self) -> int:
        """Return the value of Retry-After."""
        return max(1, min(_MAX_RETRY_SECONDS, round(self.work / self.rate))) if self.rate else 1

    def _exceeds_share(self, work: int) -> bool:
        share = self.limits.queued_work // self.limits.queued_requests
        return work > share and self.work + work > self.limits.queued_work

    def _record_finished(self, work: int) -> None:
        self._work_done += work
        seconds = self.clock() - self._window_started_at
        if seconds >= _MEASUREMENT_SECONDS:
            self.rate = max(self._work_done / seconds, _RATE_DECAY * self.rate, _MIN_RATE)
            self._work_done, self._window_started_at = 0, self.clock()
