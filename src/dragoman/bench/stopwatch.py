"""A decoder with a stopwatch. It knows neither torch nor any engine: each worker imports only its own.

All decoders are measured from token ids, or the pieces they stand for, to token ids or pieces. Turning ids into what an
engine wants, and its answer into ids, is not timed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Tokens = list[int]  # a source with its END, an output without
Way = Literal["warm-up", "bulk", "one at a time"]


class Decoder(Protocol):
    """An engine as the stopwatch asks it."""

    def given(self, sources: Sequence[Tokens]) -> Any:
        """Return the sources in the engine's own form."""
        ...

    def decode(self, given: Any, beam: int) -> Any:
        """Translate. This is what is timed."""
        ...

    def tokens(self, found: Any) -> list[Tokens]:
        """Return what came out as token ids."""
        ...

    def tune(self, given: Any, beam: int) -> str:
        """Warm up, choose the best size of a batch for this beam, and say which it is."""
        ...


@dataclass(frozen=True)
class Answer:
    """What a decoder said, and how long it took: one duration for all sentences, or one for each."""

    seconds: list[float]
    outputs: list[Tokens]
    batches: str = ""  # their size


class TimedDecoder:
    """A contender: a decoder with the sentences that it is asked to translate again and again."""

    def __init__(
        self, make: Callable[..., Decoder], arguments: tuple[Any, ...], sources: list[Tokens], singles: int
    ) -> None:
        self.decoder = make(*arguments)
        self.bulk = self.decoder.given(sources)
        self.singles = [self.decoder.given([source]) for source in sources[:singles]]

    def turn(self, way: Way, beam: int) -> Answer:
        """Translate all sentences together, or some of them one by one."""
        if way == "warm-up":
            batches = self.decoder.tune(self.bulk, beam)
            self.timed(self.singles[:1], beam)
            return Answer([], [], batches)
        return self.timed([self.bulk] if way == "bulk" else self.singles, beam)

    def timed(self, questions: list[Any], beam: int) -> Answer:
        """Ask one question after the other."""
        seconds, outputs = [], []
        for question in questions:
            began_at = time.perf_counter()
            found = self.decoder.decode(question, beam)
            seconds.append(time.perf_counter() - began_at)
            outputs += self.decoder.tokens(found)
        return Answer(seconds, outputs)
