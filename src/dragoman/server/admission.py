"""How much work is let in: so many requests, so much text, so many from one address, and no more than can be done in
time."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dragoman.server.limits import Limits
from dragoman.server.problems import Problem, server_busy

_MEASUREMENT_SECONDS = 0.5
_RATE_DECAY = 0.9
_MIN_RATE = 100.0  # characters a second: less is a stall, from which nothing is to be learned


class Admission:
    """Counts what is inside."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self.characters_done = 0  # characters translated
        self.window_started_at = 0.0
        self.requests = 0
        self.text_sizes: Counter[int] = Counter()  # of the texts inside, in characters
        self.by_client: Counter[str] = Counter()
        self.rate = 0.0  # characters a second that the worker gets done, all clients together; 0: unknown

    def check(self, client: str | None) -> None:
        """Refuse a request for which there is no room."""
        if self.requests >= self.limits.waiting:
            raise server_busy(self.retry_after_seconds())
        if client is not None and self.by_client[client] >= self.limits.per_client:
            raise Problem(
                429, "too_many", f"At most {self.limits.per_client} requests at a time, please.", retry_after=1
            )

    @contextmanager
    def admit(self, client: str | None) -> Iterator[None]:
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
    def reserve(self, characters: int) -> Iterator[None]:
        """Let so much text in, unless it is too much beside what is there; whoever is alone is always let in."""
        if self.text_sizes and (
            self.exceeds_share(characters) or self.estimated_seconds(characters) > self.limits.deadline_seconds / 2
        ):
            raise server_busy(self.retry_after_seconds())
        if not self.text_sizes:
            self.characters_done, self.window_started_at = 0, self.clock()
        self.text_sizes[characters] += 1
        try:
            yield
            self.record_finished(characters)
        finally:
            self.text_sizes[characters] -= 1
            if not self.text_sizes[characters]:
                del self.text_sizes[characters]

    @property
    def characters(self) -> int:
        """Return how much text is inside."""
        return sum(size * count for size, count in self.text_sizes.items())

    def exceeds_share(self, characters: int) -> bool:
        """Say whether a text is more than its share of all that may wait, and more than there is room for."""
        share = self.limits.waiting_characters // self.limits.waiting
        return characters > share and self.characters + characters > self.limits.waiting_characters

    def record_finished(self, characters: int) -> None:
        """Count text that was translated, and now and then learn from it how fast that goes."""
        self.characters_done += characters
        seconds = self.clock() - self.window_started_at
        if seconds >= _MEASUREMENT_SECONDS:
            # Little is done where little is asked for, so a lower rate is believed only slowly.
            self.rate = max(self.characters_done / seconds, _RATE_DECAY * self.rate, _MIN_RATE)
            self.characters_done, self.window_started_at = 0, self.clock()

    def estimated_seconds(self, characters: int) -> float:
        """Guess when so much more text would be done: all take turns, so nobody waits for the rest of a longer text."""
        before = sum(min(size, characters) * count for size, count in self.text_sizes.items())
        return (before + characters) / self.rate if self.rate else 0.0

    def retry_after_seconds(self) -> int:
        """Return when to try again."""
        return max(1, min(30, round(self.characters / self.rate))) if self.rate else 1
