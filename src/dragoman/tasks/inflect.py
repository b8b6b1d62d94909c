"""Inflection: a lemma and tags, the inflected form."""

from collections.abc import Iterable, Sequence

from dragoman.data.corpus import Pair
from dragoman.recipe import Data
from dragoman.tasks.lexicon import Lexicon, joined, lexicons, spelled
from dragoman.tasks.task import Example, PlainTask, Say, Scores


def asked(lemma: str, tags: str) -> str:
    """Write a question as the model reads it: the tags, then the letters."""
    return " ".join([*(f"{tag.strip()};" for tag in tags.split(";") if tag.strip()), spelled(lemma)])


def entry(columns: list[str]) -> Pair:
    """Return the question and the letters of the form of a line."""
    lemma, form, tags = columns
    return asked(lemma, tags), spelled(form)


class Inflect(PlainTask):
    """From a lemma to one of its forms."""

    name, noun, doing, measure = "inflect", "inflector", "Inflecting", "accuracy"

    def corpora(self, data: Data) -> tuple[Lexicon, Lexicon | None]:
        """Find the tables of forms that the recipe names."""
        return lexicons(data, ("lemma", "form", "tags"), entry)

    def examples_of(self, pairs: Iterable[Pair]) -> list[Example]:
        """Several lines of one question are one example with several answers."""
        answers: dict[str, list[str]] = {}
        for source, target in pairs:
            answers.setdefault(source, []).append(joined(target))
        return [Example(as_given(source), tuple(targets)) for source, targets in answers.items()]

    def examples(self, source: str | None, reference: str | None, say: Say) -> list[Example]:
        """Read a table of forms."""
        raise NotImplementedError

    def read(self, text: str) -> str:
        """Write lemma and tags, with a tab between them, as the model reads them."""
        lemma, _, tags = text.strip().partition("\t")
        return asked(lemma, tags)

    def shown(self, source: str, output: str) -> str:
        """Join the letters."""
        del source
        return joined(output)

    def quick(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return the share of forms, in per cent, that are right."""
        right = sum(output in example.references for example, output in zip(examples, outputs, strict=True))
        return 100 * right / max(1, len(examples))

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> Scores:
        """Return accuracy and edit distance."""
        return [f"accuracy {self.quick(examples, outputs):.2f}"]


def as_given(source: str) -> str:
    """Write a question as a person does: lemma, tab, tags."""
    parts = source.split(" ")
    tags = [part for part in parts if part.endswith(";") and len(part) > 1]
    return f"{joined(' '.join(parts[len(tags) :]))}\t{''.join(tags).rstrip(';')}"
