"""Admission control: bounds the requests and characters that are queued, per client and by what can be done in time."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dragoman.server.limits import Limits
from dragoman.server.problems import Problem, server_busy

_MEASUREMENT_SECONDS = 0.5
_RATE_DECAY = 0.9  # per measurement: with few requests the measured rate is below what is possible
_MIN_RATE = 100.0  # characters per second; a lower rate is a stall
_MAX_RETRY_SECONDS = 30


class Admission:
    """Counts queued requests and their characters, and measures how fast the worker finishes them."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self.requests = 0
        self.by_client: Counter[str] = Counter()
        self.text_sizes: Counter[int] = Counter()  # characters of each queued text
        self.rate = 0.0  # characters per second of all clients together; 0: not measured yet
        self._characters_done = 0  # in the present measurement
        self._window_started_at = 0.0

    @property
    def characters(self) -> int:
        """The number of queued characters."""
        return sum(size * count for size, count in self.text_sizes.items())

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
    def reserve(self, characters: int) -> Iterator[None]:
        """Count text as queued; refuse it if it would not be done in time, unless nothing else is queued."""
        if self.text_sizes and (
            self._exceeds_share(characters) or self.estimated_seconds(characters) > self.limits.deadline_seconds / 2
        ):
            raise server_busy(self.retry_after_seconds())
        if not self.text_sizes:
            self._characters_done, self._window_started_at = 0, self.clock()
        self.text_sizes[characters] += 1
        try:
            yield
            self._record_finished(characters)
        finally:
            self.text_sizes[characters] -= 1
            if not self.text_sizes[characters]:
                del self.text_sizes[characters]

    def estimated_seconds(self, characters: int) -> float:
        """Estimate when further text would be done; requests take turns, so it need not wait for longer ones."""
        ahead = sum(min(size, characters) * count for size, count in self.text_sizes.items())
        return (ahead + characters) / self.rate if self.rate else 0.0

    def retry_after_seconds(self) -> int:
        """Return the value of Retry-After."""
        return max(1, min(_MAX_RETRY_SECONDS, round(self.characters / self.rate))) if self.rate else 1

    def _exceeds_share(self, characters: int) -> bool:
        share = self.limits.queued_characters // self.limits.queued_requests
        return characters > share and self.characters + characters > self.limits.queued_characters

    def _record_finished(self, characters: int) -> None:
        self._characters_done += characters
        seconds = self.clock() - self._window_started_at
        if seconds >= _MEASUREMENT_SECONDS:
            self.rate = max(self._characters_done / seconds, _RATE_DECAY * self.rate, _MIN_RATE)
            self._characters_done, self._window_started_at = 0, self.clock()
