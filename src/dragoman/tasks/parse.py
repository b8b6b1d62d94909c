"""Parsing: the words of a sentence, its constituents as brackets (section 6.3 of the paper)."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from dragoman.data.corpus import Pair
from dragoman.errors import UserError
from dragoman.evaluation import brackets
from dragoman.recipe import Data
from dragoman.tasks.task import Example, PlainTask, Say, Scores
from dragoman.tasks.treebank import Treebank, tree_over


class Parse(PlainTask):
    """From words to a tree over them."""

    name, noun, doing, measure = "parse", "parser", "Parsing", "F1"

    def corpora(self, data: Data) -> tuple[Treebank, Treebank | None]:
        """Find the treebanks that the recipe names."""
        if not data.file:
            raise UserError("The recipe names no treebank to train on: set [data] file.")
        return Treebank(Path(data.file)), Treebank(Path(data.valid_file)) if data.valid_file else None

    def examples_of(self, pairs: Iterable[Pair]) -> list[Example]:
        """Each sentence has one tree."""
        return [Example(source, (self.shown(source, target),)) for source, target in pairs]

    def examples(self, source: str | None, reference: str | None, say: Say) -> list[Example]:
        """Read a treebank."""
        raise NotImplementedError

    def shown(self, source: str, output: str) -> str:
        """Put the words into the brackets; what is no tree is shown as nothing."""
        tree = tree_over(source.split(" "), output.split(" "))
        return str(tree) if tree else ""

    def quick(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return the F1 of the brackets."""
        return brackets.score(outputs, [example.references[0] for example in examples]).everything.f1

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> Scores:
        """Return precision, recall, F1 and more, as EVALB counts them."""
        return brackets.score(outputs, [example.references[0] for example in examples])  # type: ignore[return-value]
