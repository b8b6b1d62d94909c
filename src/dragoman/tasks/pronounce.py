"""Pronunciation: a word in letters, its pronunciation in phones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from unicodedata import normalize

from dragoman.data.corpus import Pair
from dragoman.evaluation.error_rates import PRONUNCIATION, Manner
from dragoman.tasks.lexicon import Layout, cmudict, joined, spelled
from dragoman.tasks.spelling import SpelledTask


def entry(columns: Sequence[str]) -> Pair:
    """Return the letters and the phones of a line."""
    word, phones = columns
    return spelled(word), spaced(phones)


def spaced(phones: str) -> str:
    """Write phones with a single space between them, each in one way."""
    return " ".join(normalize("NFC", phones).split())


@dataclass(frozen=True)
class Pronounce(SpelledTask):
    """From spelling to sound."""

    labels: tuple[str, ...] = ()
    manner: Manner = PRONUNCIATION

    name, noun, doing, measure = "pronounce", "pronouncer", "Pronouncing", "WER"
    asks = "Type a word, or several, each on a line of its own"
    usage = ('dragoman pronounce {run} "word"', "dragoman evaluate {run} --reference LEXICON")
    layout: ClassVar[Layout] = Layout(("word", "phones"), entry, without_tabs=cmudict, comments=(";;;",))
    question: ClassVar[tuple[str, ...]] = ("word",)
    sample: ClassVar[str] = "word"

    def asked(self, columns: Sequence[str]) -> str:
        """Spell the word."""
        (word,) = columns
        return spelled(word)

    def as_given(self, source: str) -> str:
        """Join the letters."""
        return joined(source)

    def expected(self, source: str, answer: str) -> str:
        """Put the phones as lexicons are read."""
        del source
        return spaced(answer)
