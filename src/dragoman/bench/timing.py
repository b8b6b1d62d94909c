"""A decoder with a stopwatch. It knows neither torch nor any engine: each worker imports only its own.

All decoders are measured from token ids, or the pieces they stand for, to token ids or pieces. Turning ids into what an
engine wants, and its answer into ids, is not timed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

TokenSequence = list[int]  # a source with its END, an output without
TurnMode = Literal["warm-up", "bulk", "one at a time"]


class _DecodingEngine(Protocol):
    """An engine as the stopwatch asks it."""

    def prepare_inputs(self, sources: Sequence[TokenSequence]) -> Any:
        """Return the sources in the engine's own form."""
        ...

    def decode(self, inputs: Any, beam: int) -> Any:
        """Translate. This is what is timed."""
        ...

    def output_tokens(self, outputs: Any) -> list[TokenSequence]:
        """Return what came out as token ids."""
        ...

    def tune(self, inputs: Any, beam: int) -> str:
        """Warm up, choose the best size of a batch for this beam, and say which it is."""
        ...


@dataclass(frozen=True)
class TimedOutputs:
    """What a decoder said, and how long it took: one duration for all sentences, or one for each."""

    seconds: list[float]
    outputs: list[TokenSequence]
    batch_size: str = ""  # their size


class TimedDecoder:
    """A contender: a decoder with the sentences that it is asked to translate again and again."""

    def __init__(
        self,
        make: Callable[..., _DecodingEngine],
        arguments: tuple[Any, ...],
        sources: list[TokenSequence],
        singles: int,
    ) -> None:
        self.decoder = make(*arguments)
        self.bulk = self.decoder.prepare_inputs(sources)
        self.singles = [self.decoder.prepare_inputs([source]) for source in sources[:singles]]

    def run_turn(self, mode: TurnMode, beam: int) -> TimedOutputs:
        """Translate all sentences together, or some of them one by one."""
        if mode == "warm-up":
            batches = self.decoder.tune(self.bulk, beam)
            self.time_decoding(self.singles[:1], beam)
            return TimedOutputs([], [], batches)
        return self.time_decoding([self.bulk] if mode == "bulk" else self.singles, beam)

    def time_decoding(self, batches: list[Any], beam: int) -> TimedOutputs:
        """Ask one question after the other."""
        seconds, outputs = [], []
        for question in batches:
            began_at = time.perf_counter()
            found = self.decoder.decode(question, beam)
            seconds.append(time.perf_counter() - began_at)
            outputs += self.decoder.output_tokens(found)
        return TimedOutputs(seconds, outputs)
