"""Pronunciation: from the letters of a word to its phones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from unicodedata import normalize

from dragoman.data.corpus import Pair
from dragoman.evaluation.error_rates import PRONUNCIATION, ScoringScheme
from dragoman.tasks.lexicon import LexiconLayout, join_letters, spell_word, split_cmudict
from dragoman.tasks.sequence_model import SequenceModel
from dragoman.tasks.word_task import WordTask


def _read_entry(columns: Sequence[str]) -> Pair:
    """Return the letters and the phones of a line."""
    word, phones = columns
    return spell_word(word), _normalize_phones(phones)


def _normalize_phones(phones: str) -> str:
    """Return phones in NFC, separated by single spaces."""
    return " ".join(normalize("NFC", phones).split())


class Pronouncer(SequenceModel):
    """A model of pronunciation: `pronounce` returns the phones of a word, or of each word of a list."""

    pronounce = SequenceModel.predict


@dataclass(frozen=True)
class PronunciationTask(WordTask):
    """From the letters of a word to its phones."""

    labels: tuple[str, ...] = ()
    scheme: ScoringScheme = PRONUNCIATION

    name, noun, gerund, validation_metric = "pronounce", "pronouncer", "Pronouncing", "WER"
    model_class = "dragoman.tasks.pronounce:Pronouncer"
    input_hint = "Type words, one per line"
    usage_examples = ('dragoman pronounce {run} "word"', "dragoman evaluate {run} --reference LEXICON")
    layout: ClassVar[LexiconLayout] = LexiconLayout(
        ("word", "phones"), _read_entry, split_untabbed=split_cmudict, comments=(";;;",)
    )
    input_columns: ClassVar[tuple[str, ...]] = ("word",)
    input_example: ClassVar[str] = "word"

    def encode_columns(self, columns: Sequence[str]) -> str:
        """Return the letters of the word."""
        (word,) = columns
        return spell_word(word)

    def decode_columns(self, source: str) -> str:
        """Join the letters."""
        return join_letters(source)

    def to_model_target(self, source: str, answer: str) -> str:
        """Normalise the phones as those of lexicons."""
        del source
        return _normalize_phones(answer)
