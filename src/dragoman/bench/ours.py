"""Our own decoder, by the very path of `dragoman translate`."""

from collections.abc import Sequence
from pathlib import Path

import torch

from dragoman.bench.stopwatch import Tokens
from dragoman.decoding.hypothesis import Hypothesis
from dragoman.memory import keep_freed_memory
from dragoman.recipe import Precision
from dragoman.tasks.translator import load

WARMED_UP_WITH = 64  # sentences


class OurDecoder:
    """A run's translator, from the tokens of its texts to those of their translations."""

    def __init__(self, run: Path, threads: int, precision: Precision) -> None:
        torch.set_num_threads(threads)
        keep_freed_memory()
        self.translator = load(run, device="cpu")
        self.precision = precision

    def given(self, sources: Sequence[Tokens]) -> list[Tokens]:
        """Return the sources as they are."""
        return list(sources)

    def decode(self, given: list[Tokens], beam: int) -> list[list[Hypothesis]]:
        """Search as `Translator.search` does."""
        translator = self.translator
        return translator.engine(translator.decoding(beam, precision=self.precision)).search(given)

    def tokens(self, found: list[list[Hypothesis]]) -> list[Tokens]:
        """Return the best hypothesis of each sentence."""
        return [list(row[0].tokens) for row in found]

    def tune(self, given: list[Tokens], beam: int) -> str:
        """Warm up; the size of a batch is the recipe's."""
        self.decode(given[:WARMED_UP_WITH], beam)
        return f"{self.translator.recipe.decoding.batch_tokens:,} tokens"
