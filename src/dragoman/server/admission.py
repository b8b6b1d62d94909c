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
SLOWEST = 100.0  # characters a second: less is a stall, from which nothing is to be learned


class Admission:
    """Counts what is inside."""

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.now = now
        self.counted = 0  # characters translated
        self.since = 0.0
        self.requests = 0
        self.sizes: Counter[int] = Counter()  # of the texts inside, in characters
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
        if self.sizes and (
            self.too_much(characters) or self.seconds_for(characters) > self.limits.deadline_seconds / 2
        ):
            raise busy(self.seconds_to_wait())
        if not self.sizes:
            self.counted, self.since = 0, self.now()
        self.sizes[characters] += 1
        try:
            yield
            self.finished(characters)
        finally:
            self.sizes[characters] -= 1
            if not self.sizes[characters]:
                del self.sizes[characters]

    @property
    def characters(self) -> int:
        """Return how much text is inside."""
        return sum(size * count for size, count in self.sizes.items())

    def too_much(self, characters: int) -> bool:
        """Say whether a text is more than its share of all that may wait, and more than there is room for."""
        share = self.limits.waiting_characters // self.limits.waiting
        return characters > share and self.characters + characters > self.limits.waiting_characters

    def finished(self, characters: int) -> None:
        """Count text that was translated, and now and then learn from it how fast that goes."""
        self.counted += characters
        seconds = self.now() - self.since
        if seconds >= MEASURED_SECONDS:
            # Little is done where little is asked for, so a lower rate is believed only slowly.
            self.rate = max(self.counted / seconds, REMEMBERED * self.rate, SLOWEST)
            self.counted, self.since = 0, self.now()

    def seconds_for(self, characters: int) -> float:
        """Guess when so much more text would be done: all take turns, so nobody waits for the rest of a longer text."""
        before = sum(min(size, characters) * count for size, count in self.sizes.items())
        return (before + characters) / self.rate if self.rate else 0.0

    def seconds_to_wait(self) -> int:
        """Return when to try again."""
        return max(1, min(30, round(self.characters / self.rate))) if self.rate else 1
