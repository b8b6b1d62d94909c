"""How much work is let in: so many requests, so much text, so many from one address, and no more than can be done in
time."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dragoman.server.limits import Limits
from dragoman.server.problems import Problem, busy

MEASURED_SECONDS = 0.5
REMEMBERED = 0.9


class Admission:
    """Counts what is inside."""

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.now = now
        self.counted = 0  # characters translated
        self.since = 0.0
        self.requests = 0
        self.characters = 0
        self.by_client: Counter[str] = Counter()
        self.rate = 0.0  # characters a second that the worker gets done, all clients together; 0: unknown

    def check(self, client: str | None) -> None:
        """Refuse a request for which there is no room."""
        if self.requests >= self.limits.waiting:
            raise busy(self.seconds_to_wait())
        if client is not None and self.by_client[client] >= self.limits.per_client:
            raise Problem(
                429, "too_many", f"At most {self.limits.per_client} requests at a time, please.", retry_after=1
            )

    @contextmanager
    def inside(self, client: str | None) -> Iterator[None]:
        """Let a request in until it is answered."""
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
    def working_on(self, characters: int) -> Iterator[None]:
        """Let so much text in, unless it is too much beside what is there; whoever is alone is always let in."""
        more = self.characters + characters
        if self.characters and (more > self.limits.waiting_characters or self.seconds_for(more) > self.time_for_all):
            raise busy(self.seconds_to_wait())
        if not self.characters:
            self.counted, self.since = 0, self.now()
        self.characters = more
        try:
            yield
            self.finished(characters)
        finally:
            self.characters -= characters

    def finished(self, characters: int) -> None:
        """Count text that was translated, and now and then learn from it how fast that goes."""
        self.counted += characters
        seconds = self.now() - self.since
        if seconds >= MEASURED_SECONDS:
            # Little is done where little is asked for, so a lower rate is believed only slowly.
            self.rate = max(self.counted / seconds, REMEMBERED * self.rate)
            self.counted, self.since = 0, self.now()

    @property
    def time_for_all(self) -> float:
        """Return how many seconds of work may wait: half of what a client waits for, as no guess is perfect."""
        return self.limits.deadline_seconds / 2

    def seconds_for(self, characters: int) -> float:
        """Guess how long the worker takes for so much text."""
        return characters / self.rate if self.rate else 0.0

    def seconds_to_wait(self) -> int:
        """Return when to try again."""
        return max(1, min(30, round(self.seconds_for(self.characters))))
