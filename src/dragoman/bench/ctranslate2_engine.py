"""Decoding with CTranslate2 on an exported model with the same weights."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dragoman.bench.timing import TokenSequence

# CTranslate2 sorts and splits batches itself; the best size depends on machine, model and beam.
_BATCH_SIZES: tuple[tuple[str, int], ...] = (("examples", 32), ("tokens", 1024), ("tokens", 4096))
_TUNING_SENTENCES = 400


@dataclass(frozen=True)
class CTranslate2Options:
    """The options of CTranslate2."""

    quantization: str
    workers: int  # that translate in parallel
    threads: int  # per worker
    max_length: int  # output
    min_length: int = 1
    length_penalty: float = 0.6

    def __str__(self) -> str:
        return f"CTranslate2 {self.quantization}, {self.workers} × {self.threads}"


class CTranslate2Decoder:
    """An exported model; its vocabularies convert token ids to pieces and back."""

    def __init__(self, folder: str, source: list[str], target: list[str], options: dict[str, Any]) -> None:
        ctranslate2: Any = import_module("ctranslate2")
        self.options = CTranslate2Options(**options)
        self.engine = ctranslate2.Translator(
            folder, device="cpu", compute_type=self.options.quantization,
            inter_threads=self.options.workers, intra_threads=self.options.threads,
        )  # fmt: skip
        self.source_pieces = source
        self.target_ids = {piece: number for number, piece in enumerate(target)}
        self.best_batch_size: dict[int, tuple[str, int]] = {}  # by beam

    def prepare_inputs(self, sources: Sequence[TokenSequence]) -> list[list[str]]:
        """Return the sources as pieces without END, which the engine adds."""
        return [[self.source_pieces[token] for token in source[:-1]] for source in sources]

    def decode(self, inputs: list[list[str]], beam: int) -> list[Any]:
        """Translate with the best batch size."""
        kind, size = self.best_batch_size.get(beam, _BATCH_SIZES[0])
        results: list[Any] = self.engine.translate_batch(
            inputs, beam_size=beam, max_batch_size=size, batch_type=kind, length_penalty=self.options.length_penalty,
            min_decoding_length=self.options.min_length, max_decoding_length=self.options.max_length,
        )  # fmt: skip
        return results

    def output_tokens(self, outputs: list[Any]) -> list[TokenSequence]:
        """Return the ids of the best hypothesis of each sentence."""
        return [[self.target_ids[piece] for piece in result.hypotheses[0]] for result in outputs]

    def tune(self, inputs: list[list[str]], beam: int) -> str:
        """Measure every batch size and use the fastest."""
        sample = inputs[:_TUNING_SENTENCES]
        self.decode(sample[:32], beam)
        durations = {}
        for batch in _BATCH_SIZES:
            self.best_batch_size[beam] = batch
            began_at = time.perf_counter()
            self.decode(sample, beam)
            durations[batch] = time.perf_counter() - began_at
        kind, size = self.best_batch_size[beam] = min(durations, key=lambda batch: durations[batch])
        return f"{size:,} {kind}"
