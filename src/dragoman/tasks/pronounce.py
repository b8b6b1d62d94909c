"""Pronunciation: a word in letters, its pronunciation in phones."""

from collections.abc import Iterable, Sequence

from dragoman.data.corpus import Pair
from dragoman.recipe import Data
from dragoman.tasks.lexicon import Lexicon, joined, lexicons, spelled
from dragoman.tasks.task import Example, PlainTask, Say, Scores


def entry(columns: list[str]) -> Pair:
    """Return the letters and the phones of a line."""
    word, phones = columns
    return spelled(word), " ".join(phones.split())


class Pronounce(PlainTask):
    """From spelling to sound."""

    name, noun, doing, measure = "pronounce", "pronouncer", "Pronouncing", "WER"

    def corpora(self, data: Data) -> tuple[Lexicon, Lexicon | None]:
        """Find the lexicons that the recipe names."""
        return lexicons(data, ("word", "phones"), entry)

    def examples_of(self, pairs: Iterable[Pair]) -> list[Example]:
        """Several lines of one word are one example with several answers."""
        answers: dict[str, list[str]] = {}
        for source, target in pairs:
            answers.setdefault(source, []).append(target)
        return [Example(joined(source), tuple(targets)) for source, targets in answers.items()]

    def examples(self, source: str | None, reference: str | None, say: Say) -> list[Example]:
        """Read a lexicon."""
        raise NotImplementedError

    def read(self, text: str) -> str:
        """Spell the word."""
        return spelled(text.strip())

    def quick(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return the share of words, in per cent, that came out as none of their pronunciations."""
        wrong = sum(output not in example.references for example, output in zip(examples, outputs, strict=True))
        return 100 * wrong / max(1, len(examples))

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> Scores:
        """Return word and phoneme error rates."""
        return [f"WER {self.quick(examples, outputs):.2f}"]
