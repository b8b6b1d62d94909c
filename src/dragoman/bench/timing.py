"""Time a decoder. This module imports no engine, so that an engine process imports only its own.

The time is measured from the inputs to the outputs of an engine; converting them from and to token ids is not included.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from dragoman.bench.workers import EngineSpec, build_engine

TokenSequence = list[int]  # a source with END, an output without
TurnMode = Literal["warm-up", "bulk", "one at a time"]


class _DecodingEngine(Protocol):
    """What a decoding engine implements."""

    def prepare_inputs(self, sources: Sequence[TokenSequence]) -> Any:
        """Return the sources in the format of the engine."""
        ...

    def decode(self, inputs: Any, beam: int) -> Any:
        """Translate; this call is timed."""
        ...

    def output_tokens(self, outputs: Any) -> list[TokenSequence]:
        """Return the outputs as token ids."""
        ...

    def tune(self, inputs: Any, beam: int) -> str:
        """Warm up, and return the fastest batch size for this beam."""
        ...


@dataclass(frozen=True)
class TimedOutputs:
    """The outputs of a decoder, and the time for all sentences or for each of them."""

    seconds: list[float]
    outputs: list[TokenSequence]
    batch_size: str = ""


class TimedDecoder:
    """A decoder with the sentences that it translates in every turn."""

    def __init__(self, decoder: EngineSpec, sources: list[TokenSequence], singles: int) -> None:
        self.decoder: _DecodingEngine = build_engine(decoder)
        self.bulk = self.decoder.prepare_inputs(sources)
        self.singles = [self.decoder.prepare_inputs([source]) for source in sources[:singles]]

    def run_turn(self, mode: TurnMode, beam: int) -> TimedOutputs:
        """Translate all sentences together, or some of them one by one."""
        if mode == "warm-up":
            batch_size = self.decoder.tune(self.bulk, beam)
            self.time_decoding(self.singles[:1], beam)
            return TimedOutputs([], [], batch_size)
        return self.time_decoding([self.bulk] if mode == "bulk" else self.singles, beam)

    def time_decoding(self, batches: list[Any], beam: int) -> TimedOutputs:
        """Decode one batch after another."""
        seconds, outputs = [], []
        for batch in batches:
            began_at = time.perf_counter()
            result = self.decoder.decode(batch, beam)
            seconds.append(time.perf_counter() - began_at)
            outputs += self.decoder.output_tokens(result)
        return TimedOutputs(seconds, outputs)
