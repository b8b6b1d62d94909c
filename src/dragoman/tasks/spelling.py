"""What tasks share whose input is one word: lexicons, labels, several right answers, error rates."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from dragoman.data.corpus import Pair, Pairs
from dragoman.data.lines import read_lines
from dragoman.data.split import Split, split_held_out
from dragoman.errors import UserError, nearest
from dragoman.evaluation import error_rates
from dragoman.evaluation.error_rates import ErrorRates, Manner
from dragoman.recipe import Data, Recipe
from dragoman.tasks.lexicon import Layout, Lexicon, label, lexicons, named, tabbed, visible
from dragoman.tasks.task import Example, PlainTask, Remark, Say

SHOWN = 12  # letters that a remark lists, at most


@dataclass(frozen=True)
class SpelledTask(PlainTask, ABC):
    """From the letters of a word to something else; with labels, one model for several kinds of word."""

    labels: tuple[str, ...]  # of which each word has one; none, if the model has learned from one file
    manner: Manner  # of scoring

    scored_at_most = 20_000  # words are short, and a model of ten languages should tell about all of them
    layout: ClassVar[Layout]
    question: ClassVar[tuple[str, ...]]  # what a person gives, with tabs between
    sample: ClassVar[str]  # an example of that
    answer: ClassVar[int] = 1  # the column of the files that the model writes

    def of(self, data: Data) -> Self:
        """Return the task with the labels that a recipe gives its files."""
        return replace(self, labels=tuple(dict.fromkeys(name for name, _ in named(None, data.labelled))))

    @abstractmethod
    def asked(self, columns: Sequence[str]) -> str:
        """Write what a person gives, column by column, as the model reads it."""

    @abstractmethod
    def as_given(self, source: str) -> str:
        """Write what the model reads as a person gives it."""

    def corpora(self, data: Data) -> tuple[Lexicon, Lexicon | None]:
        """Find the lexicons that the recipe names."""
        return lexicons(data, self.layout)

    def look_over(self, corpus: Pairs, valid: Pairs | None) -> Iterator[Remark]:
        """Compare what there is to validate with to what there is to learn from."""
        if valid is None:
            return
        learned, others = ({source for source, _ in pairs.pairs()} for pairs in (corpus, valid))
        both = len(others & learned)
        if both:
            yield Remark(
                f"{valid}: {both:,} of {len(others):,} words are also trained on; on those a score means little."
            )
        unseen = sorted(pieces(others) - pieces(learned))
        if unseen:
            listed = " ".join(map(visible, unseen[:SHOWN])) + (" …" if len(unseen) > SHOWN else "")
            yield Remark(f"{valid}: never seen in training, so read as unknown: {listed}", serious=False)

    def split(self, corpus: Pairs, recipe: Recipe) -> Split:
        """Hold some words out, each with all of its answers."""
        return split_held_out(corpus, recipe.data.held_out, recipe.training.seed, by_source=True)

    def examples_of(self, pairs: Iterable[Pair]) -> list[Example]:
        """Several lines of one word are one example with several answers."""
        answers: dict[str, list[str]] = {}
        for source, target in pairs:
            answers.setdefault(source, []).append(self.shown(source, target))
        return [Example(self.with_label(source), tuple(targets)) for source, targets in answers.items()]

    def with_label(self, source: str) -> str:
        """Write what the model reads as a person gives it, the label first."""
        if not self.labels:
            return self.as_given(source)
        name, _, rest = source.partition(" ")
        return f"{name[1:-1]}\t{self.as_given(rest)}"

    def examples(self, source: str | None, reference: str | None, say: Say) -> list[Example]:
        """Read a lexicon; of a model with labels one or more, each with its own, as in fre=french.tsv,dut=dutch.tsv."""
        if source is not None or reference is None:
            raise UserError(
                f"Give --reference alone, a file with {', '.join(self.layout.columns)} on each line: it has what to do "
                "and what should become of it."
            )
        lexicon = Lexicon(self.files(reference), self.layout)
        for notice in lexicon.notices():
            say(notice)
        return self.examples_of(lexicon.pairs())

    def files(self, reference: str) -> tuple[tuple[str, Path], ...]:
        """Return the labels and paths of a reference; a comma before a known label begins another."""
        if not self.labels:
            return (("", Path(reference)),)
        another = f",(?=(?:{'|'.join(map(re.escape, self.labels))})=)"
        return tuple(self.file(part) for part in re.split(another, reference))

    def file(self, reference: str) -> tuple[str, Path]:
        """Return the label and the path of a part of a reference."""
        name, _, path = reference.partition("=")
        if not path or Path(reference).exists():
            raise UserError(
                f"{reference}: which label has it? Write {self.labels[0]}={reference}, or another of: {self.known}."
            )
        self.refuse_unknown(name)
        return name, Path(path)

    def read(self, text: str) -> str:
        """Turn a word, or what else there is to it, into what the model reads; nothing stays nothing."""
        if not text.strip():
            return ""
        columns = tabbed(text)
        wanted = (*(("label",) if self.labels else ()), *self.question)
        if len(columns) != len(wanted) or not all(columns):
            raise self.misread(text)
        if not self.labels:
            return self.asked(columns)
        self.refuse_unknown(columns[0])
        return f"{label(columns[0])} {self.asked(columns[1:])}"

    def misread(self, text: str) -> UserError:
        """Say what is missing or too much."""
        sample = f"{self.labels[0]}\t{self.sample}" if self.labels else self.sample
        shape = " and ".join((*(("a label",) if self.labels else ()), *(f"the {name}" for name in self.question)))
        tabs = ", with a tab between" if "\t" in sample else ", without tabs"
        options = (" or give --label" if self.labels else "") + (" or give --tags" if "tags" in self.question else "")
        known = f" The model's labels are {self.known}." if self.labels else ""
        return UserError(f'"{shown(text)}" is not {shape}{tabs}. Write "{shown(sample)}"{options}.{known}')

    def refuse_unknown(self, name: str) -> None:
        """Object to a label that the model has not learned."""
        if name not in self.labels:
            raise UserError(f'The model has no label "{name}"; it has {self.known}.{nearest(name, [*self.labels])}')

    @property
    def known(self) -> str:
        """The labels, to be named in a message."""
        return ", ".join(self.labels)

    def outputs(self, path: str, examples: Sequence[Example], say: Say) -> list[str]:
        """Read answers made elsewhere: one a line for each word in turn, or beside the words, as in a lexicon."""
        lines = list(read_lines(path, say))
        if not any("\t" in line for line in lines):
            if len(lines) != len(examples):
                raise UserError(
                    f"{path} has {len(lines):,} lines but there are {len(examples):,} different words; give each word "
                    "one line, or put the word and a tab before its answer."
                )
            return lines
        answers: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            columns = tabbed(line)
            if len(columns) != len(self.layout.columns):
                raise UserError(f"{path}: line {number:,} is not {', '.join(self.layout.columns)}: {line[:60]!r}.")
            answer = columns.pop(self.answer)
            answers.setdefault(self.as_given(self.asked(columns)), answer)
        missing = [one.source for one in examples if one.source not in answers]
        if missing:
            raise UserError(f'{path} has no line for {len(missing):,} words; the first is "{shown(missing[0])}".')
        return [answers[one.source] for one in examples]

    def written(self, example: Example, output: str) -> str:
        """Write an answer as a line of a lexicon, behind its label if there are labels."""
        columns = example.source.split("\t")
        columns.insert(self.answer + bool(self.labels), output)
        return "\t".join(columns)

    def quick(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return the task's own measure."""
        found = self.rates(examples, outputs, intervals=False)
        return next(rate.value for rate in found if rate.name == self.measure)

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> ErrorRates:
        """Return error rates with their intervals."""
        return self.rates(examples, outputs, intervals=True)

    def by_label(self, examples: Sequence[Example], outputs: Sequence[str]) -> dict[str, ErrorRates]:
        """Score the examples of each label by themselves; without labels there is nothing to take apart."""
        if not self.labels:
            return {}
        parts: dict[str, list[tuple[Example, str]]] = {}
        for example, output in zip(examples, outputs, strict=True):
            parts.setdefault(example.source.partition("\t")[0], []).append((example, output))
        return {name: self.score(*zip(*part, strict=True)) for name, part in parts.items()}

    def rates(self, examples: Sequence[Example], outputs: Sequence[str], *, intervals: bool) -> ErrorRates:
        """Have the edits to the nearest right answer counted."""
        sources, references = [one.source for one in examples], [one.references for one in examples]
        return error_rates.score(sources, outputs, references, self.manner, intervals=intervals)


def pieces(sources: Iterable[str]) -> set[str]:
    """Return every letter, tag and label."""
    return {piece for source in sources for piece in source.split(" ")}


def shown(text: str) -> str:
    """Write a text so that its tabs can be seen."""
    return text.replace("\t", "⇥")
