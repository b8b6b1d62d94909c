"""Dragoman's decoder, by the same path as `dragoman translate`."""

from collections.abc import Sequence
from pathlib import Path

import torch

from dragoman.bench.timing import TokenSequence
from dragoman.decoding.hypothesis import Hypothesis
from dragoman.malloc import keep_freed_memory
from dragoman.recipe import DecodingPrecision
from dragoman.tasks.translate import Translator

_WARMUP_SENTENCES = 64


class DragomanDecoder:
    """The translator of a run, from source tokens to target tokens."""

    def __init__(self, run: str, threads: int, precision: DecodingPrecision) -> None:
        torch.set_num_threads(threads)
        keep_freed_memory()
        self.translator = Translator.load(Path(run), device="cpu")
        self.precision = precision

    def prepare_inputs(self, sources: Sequence[TokenSequence]) -> list[TokenSequence]:
        """Return the sources unchanged."""
        return list(sources)

    def decode(self, inputs: list[TokenSequence], beam: int) -> list[list[Hypothesis]]:
        """Search as `Translator.search` does."""
        translator = self.translator
        return translator.build_engine(translator.decoding_config(beam, precision=self.precision)).search(inputs)

    def output_tokens(self, outputs: list[list[Hypothesis]]) -> list[TokenSequence]:
        """Return the best hypothesis of each sentence."""
        return [list(row[0].tokens) for row in outputs]

    def tune(self, inputs: list[TokenSequence], beam: int) -> str:
        """Warm up; the batch size is that of the recipe."""
        self.decode(inputs[:_WARMUP_SENTENCES], beam)
        return f"{self.translator.recipe.decoding.batch_tokens:,} tokens"
