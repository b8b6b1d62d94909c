"""The rival in decoding: CTranslate2 with the same weights, by our own export."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from dragoman.bench.stopwatch import Tokens

# A batch is sorted by length and cut by the engine. Which size is best differs by machine, model and beam.
BATCHES: tuple[tuple[str, int], ...] = (("examples", 32), ("tokens", 1024), ("tokens", 4096))
TUNED_WITH = 400  # sentences


@dataclass(frozen=True)
class Options:
    """How CTranslate2 runs and searches."""

    quantization: str
    workers: int  # translating side by side
    threads: int  # of each worker
    longest: int  # output
    shortest: int = 1
    length_penalty: float = 0.6

    def __str__(self) -> str:
        return f"CTranslate2 {self.quantization}, {self.workers} × {self.threads}"


class CTranslate2:
    """An exported model; its vocabularies turn our ids into the pieces that it reads, and back."""

    def __init__(self, folder: Path, source: list[str], target: list[str], how: Options) -> None:
        ctranslate2: Any = import_module("ctranslate2")
        self.engine = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=how.quantization,
            inter_threads=how.workers, intra_threads=how.threads,
        )  # fmt: skip
        self.how = how
        self.pieces = source
        self.ids = {piece: number for number, piece in enumerate(target)}
        self.batch: dict[int, tuple[str, int]] = {}  # the best for each beam

    def given(self, sources: Sequence[Tokens]) -> list[list[str]]:
        """Return the sources as pieces, without END: the engine adds it."""
        return [[self.pieces[token] for token in source[:-1]] for source in sources]

    def decode(self, given: list[list[str]], beam: int) -> list[Any]:
        """Translate with the batch size that was best."""
        kind, size = self.batch.get(beam, BATCHES[0])
        found: list[Any] = self.engine.translate_batch(
            given, beam_size=beam, max_batch_size=size, batch_type=kind, length_penalty=self.how.length_penalty,
            min_decoding_length=self.how.shortest, max_decoding_length=self.how.longest,
        )  # fmt: skip
        return found

    def tokens(self, found: list[Any]) -> list[Tokens]:
        """Return the ids of the best hypothesis of each sentence."""
        return [[self.ids[piece] for piece in result.hypotheses[0]] for result in found]

    def tune(self, given: list[list[str]], beam: int) -> str:
        """Try every batch size and keep the fastest."""
        sample = given[:TUNED_WITH]
        self.decode(sample[:32], beam)
        durations = {}
        for batch in BATCHES:
            self.batch[beam] = batch
            began_at = time.perf_counter()
            self.decode(sample, beam)
            durations[batch] = time.perf_counter() - began_at
        kind, size = self.batch[beam] = min(durations, key=lambda batch: durations[batch])
        return f"{size:,} {kind}"
