"""Inflection: from a lemma and tags to the inflected form."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

from dragoman.data.corpus import Pair
from dragoman.errors import UserError
from dragoman.evaluation.error_rates import INFLECTION, ScoringScheme
from dragoman.tasks.lexicon import SPACE_SYMBOL, LexiconLayout, join_letters, spell_word
from dragoman.tasks.sequence_model import SequenceModel
from dragoman.tasks.word_task import WordTask

_TAG_END = ";"  # of a tag, so that it is never taken for a letter


def _spell_with_tags(lemma: str, tags: str) -> str:
    """Return the tags and the letters of the lemma as the model reads them."""
    each = (tag.strip().replace(" ", SPACE_SYMBOL) for tag in tags.split(_TAG_END))
    return " ".join([*(tag + _TAG_END for tag in each if tag), spell_word(lemma)])


def _read_entry(columns: Sequence[str]) -> Pair:
    """Return what the model reads and writes for a line."""
    lemma, form, tags = columns
    return _spell_with_tags(lemma, tags), spell_word(form)


class Inflector(SequenceModel):
    """A model of inflection: `inflect` returns the form for "lemma⇥tags", or for each of a list."""

    inflect = SequenceModel.predict


@dataclass(frozen=True)
class InflectionTask(WordTask):
    """From a lemma to one of its forms."""

    labels: tuple[str, ...] = ()
    scheme: ScoringScheme = INFLECTION

    name, noun, gerund, validation_metric = "inflect", "morphological inflector", "Inflecting", "accuracy"
    model_class = "dragoman.tasks.inflect:Inflector"
    input_hint = "Type a lemma, a tab and its tags: lemma\tV;PST"
    usage_examples = ('dragoman inflect {run} "lemma" --tags "V;PST"', "dragoman evaluate {run} --reference TABLE")
    layout: ClassVar[LexiconLayout] = LexiconLayout(("lemma", "form", "tags"), _read_entry)
    input_columns: ClassVar[tuple[str, ...]] = ("lemma", "tags")
    input_example: ClassVar[str] = "lemma\tV;PST"

    def encode_columns(self, columns: Sequence[str]) -> str:
        """Return lemma and tags as the model reads them."""
        lemma, tags = columns
        if not tags.strip(" ;"):
            raise UserError(f'"{lemma}" has no tags; write "lemma⇥V;PST", or give --tags.')
        return _spell_with_tags(lemma, tags)

    def decode_columns(self, source: str) -> str:
        """Return lemma, tab, tags."""
        parts = source.split(" ")
        tags = list(takewhile(lambda part: len(part) > 1 and part.endswith(_TAG_END), parts))
        lemma = join_letters(" ".join(parts[len(tags) :]))
        return f"{lemma}\t{''.join(tags).removesuffix(_TAG_END).replace(SPACE_SYMBOL, ' ')}"

    def from_model_output(self, source: str, output: str) -> str:
        """Join the letters."""
        del source
        return join_letters(output)

    def to_model_target(self, source: str, answer: str) -> str:
        """Return the letters of the form."""
        del source
        return spell_word(answer)
