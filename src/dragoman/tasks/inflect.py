"""Inflection: a lemma and tags, the inflected form."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

from dragoman.data.corpus import Pair
from dragoman.errors import UserError
from dragoman.evaluation.error_rates import INFLECTION, Manner
from dragoman.tasks.lexicon import SPACE, Layout, joined, spelled
from dragoman.tasks.spelling import SpelledTask

END = ";"  # of a tag, so that it is never taken for a letter


def with_tags(lemma: str, tags: str) -> str:
    """Write a question as the model reads it: the tags, then the letters."""
    each = (tag.strip().replace(" ", SPACE) for tag in tags.split(END))
    return " ".join([*(tag + END for tag in each if tag), spelled(lemma)])


def entry(columns: Sequence[str]) -> Pair:
    """Return the question and the letters of the form of a line."""
    lemma, form, tags = columns
    return with_tags(lemma, tags), spelled(form)


@dataclass(frozen=True)
class Inflect(SpelledTask):
    """From a lemma to one of its forms."""

    labels: tuple[str, ...] = ()
    manner: Manner = INFLECTION

    name, noun, doing, measure = "inflect", "morphological inflector", "Inflecting", "accuracy"
    asks = "Type a lemma and its tags, with a tab between: lemma\tV;PST"
    usage = ('dragoman inflect {run} "lemma" --tags "V;PST"', "dragoman evaluate {run} --reference TABLE")
    layout: ClassVar[Layout] = Layout(("lemma", "form", "tags"), entry)
    question: ClassVar[tuple[str, ...]] = ("lemma", "tags")
    sample: ClassVar[str] = "lemma\tV;PST"

    def asked(self, columns: Sequence[str]) -> str:
        """Write lemma and tags as the model reads them."""
        lemma, tags = columns
        if not tags.strip(" ;"):
            raise UserError(f'"{lemma}" has no tags; write "lemma⇥V;PST", or give --tags.')
        return with_tags(lemma, tags)

    def as_given(self, source: str) -> str:
        """Write lemma, tab, tags."""
        parts = source.split(" ")
        tags = list(takewhile(lambda part: len(part) > 1 and part.endswith(END), parts))
        lemma = joined(" ".join(parts[len(tags) :]))
        return f"{lemma}\t{''.join(tags).removesuffix(END).replace(SPACE, ' ')}"

    def shown(self, source: str, output: str) -> str:
        """Join the letters."""
        del source
        return joined(output)

    def expected(self, source: str, answer: str) -> str:
        """Spell the form."""
        del source
        return spelled(answer)
