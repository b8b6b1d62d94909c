"""Tasks whose input is one word: pronunciation (letters to phones) and inflection (lemma and tags to a form).

They share lexicons, labels, several references per word, and error rates.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import ClassVar, Self
from unicodedata import normalize

from dragoman.data.corpus import Pair, TextPairs, label_token
from dragoman.data.lines import read_lines
from dragoman.data.split import CorpusSplit, split_held_out
from dragoman.errors import UserError, did_you_mean, format_count
from dragoman.evaluation import error_rates
from dragoman.evaluation.error_rates import INFLECTION, PRONUNCIATION, ErrorRates, ScoringScheme
from dragoman.recipe import DataConfig, Recipe
from dragoman.tasks.lexicon import (
    SPACE_SYMBOL,
    Lexicon,
    LexiconLayout,
    join_letters,
    open_lexicons,
    spell_word,
    split_cmudict,
    split_tabs,
    visible_letter,
)
from dragoman.tasks.sequence_model import SequenceModel
from dragoman.tasks.task import DataWarning, Example, OnNotice, TransductionTask

_MAX_LISTED_LETTERS = 12  # letters that a warning lists, at most


@dataclass(frozen=True)
class WordTask(TransductionTask):
    """A task whose source is the letters of a word; with labels, one model serves several languages or kinds."""

    labels: tuple[str, ...] = ()  # each word has one; none if the model was trained on one file
    scheme: ScoringScheme = PRONUNCIATION

    max_scored_examples = 20_000  # words are short, and a model may have ten languages
    layout: ClassVar[LexiconLayout]
    input_columns: ClassVar[tuple[str, ...]]  # what a person enters, separated by tabs
    input_example: ClassVar[str]  # an example of an input
    output_column: ClassVar[int] = 1  # the column of the files that the model writes

    def configure(self, recipe: Recipe) -> Self:
        """Return the task with the labels of the recipe's files."""
        return replace(
            self, labels=tuple(dict.fromkeys(corpus.label for corpus in recipe.data.corpora if corpus.label))
        )

    @abstractmethod
    def encode_columns(self, columns: Sequence[str]) -> str:
        """Convert the columns that a person enters to what the model reads."""

    @abstractmethod
    def decode_columns(self, source: str) -> str:
        """Convert what the model reads to what a person enters."""

    def open_corpora(self, config: DataConfig) -> tuple[Lexicon, Lexicon | None]:
        """Open the lexicons that the recipe names."""
        return open_lexicons(config, self.layout)

    def check_data(self, corpus: TextPairs, valid: TextPairs | None) -> Iterator[DataWarning]:
        """Yield warnings about validation words that are in the training data, and letters that are not."""
        if valid is None:
            return
        learned, others = ({source for source, _ in pairs.pairs()} for pairs in (corpus, valid))
        both = len(others & learned)
        if both:
            yield DataWarning(
                f"{valid}: the training data also contains {both:,} of the {format_count(len(others), 'word')}, which "
                "inflates the scores."
            )
        unseen = sorted(_distinct_symbols(others) - _distinct_symbols(learned))
        if unseen:
            listed = " ".join(map(visible_letter, unseen[:_MAX_LISTED_LETTERS])) + (
                " …" if len(unseen) > _MAX_LISTED_LETTERS else ""
            )
            yield DataWarning(
                f"{valid}: characters not in the training data are read as unknown: {listed}", serious=False
            )

    def split_validation(self, corpus: TextPairs, recipe: Recipe) -> CorpusSplit:
        """Hold out some words, each with all of its references."""
        return split_held_out(corpus, recipe.data.held_out, recipe.training.seed, by_source=True)

    def examples_from_pairs(self, pairs: Iterable[Pair]) -> list[Example[str]]:
        """Make one example of all lines of a word."""
        answers: dict[str, list[str]] = {}
        for source, target in pairs:
            answers.setdefault(source, []).append(self.from_model_output(source, target))
        return [Example(self._labelled_source(source), tuple(targets)) for source, targets in answers.items()]

    def _labelled_source(self, source: str) -> str:
        """Convert what the model reads to what a person enters, with its label first."""
        if not self.labels:
            return self.decode_columns(source)
        name, _, rest = source.partition(" ")
        return f"{name[1:-1]}\t{self.decode_columns(rest)}"

    def read_examples(self, source: str | None, reference: str | None, on_notice: OnNotice) -> list[Example[str]]:
        """Read a lexicon, or several with labels, as in fre=french.tsv,dut=dutch.tsv."""
        if source is not None or reference is None:
            raise UserError(
                f"Give --reference without --source: a file with {', '.join(self.layout.columns)} on each line, which "
                "contains the inputs and the expected outputs."
            )
        lexicon = Lexicon(self._reference_files(reference), self.layout)
        for notice in lexicon.notices():
            on_notice(notice)
        return self.examples_from_pairs(lexicon.pairs())

    def _reference_files(self, reference: str) -> tuple[tuple[str, Path], ...]:
        """Return the labels and paths of a reference; a comma before a known label starts the next file."""
        if not self.labels:
            return (("", Path(reference)),)
        separator = f",(?=(?:{'|'.join(map(re.escape, self.labels))})=)"
        return tuple(self._reference_file(part) for part in re.split(separator, reference))

    def _reference_file(self, reference: str) -> tuple[str, Path]:
        """Return the label and the path of one file of a reference."""
        name, _, path = reference.partition("=")
        if not path or Path(reference).exists():
            raise UserError(
                f"{reference}: the label is missing. Write {self.labels[0]}={reference}, or use another label of the "
                f"model: {self._label_list}."
            )
        self._check_label(name)
        return name, Path(path)

    def to_model_input(self, text: str) -> str:
        """Convert a word, with label and tags if the task has them, to what the model reads."""
        if not text.strip():
            return ""
        columns = split_tabs(text)
        expected = (*(("label",) if self.labels else ()), *self.input_columns)
        if len(columns) != len(expected) or not all(columns):
            raise self._format_error(text)
        if not self.labels:
            return self.encode_columns(columns)
        self._check_label(columns[0])
        return f"{label_token(columns[0])} {self.encode_columns(columns[1:])}"

    def _format_error(self, text: str) -> UserError:
        """Return the error for an input with missing or extra columns."""
        sample = f"{self.labels[0]}\t{self.input_example}" if self.labels else self.input_example
        *others, last = (*(["a label"] if self.labels else []), *(f"the {name}" for name in self.input_columns))
        columns = f"{', '.join(others)} and {last}" if others else last
        tabs = ", separated by tabs" if "\t" in sample else ", without tabs"
        options = [*(["--label"] if self.labels else []), *(["--tags"] if "tags" in self.input_columns else [])]
        alternative = f", or give {' and '.join(options)}" if options else ""
        known = f" The model's labels are {self._label_list}." if self.labels else ""
        return UserError(
            f'"{_show_tabs(text)}": expected {columns}{tabs}. Write "{_show_tabs(sample)}"{alternative}.{known}'
        )

    def _check_label(self, label: str) -> None:
        """Raise an error for a label that the model was not trained with."""
        if label not in self.labels:
            raise UserError(
                f'The model has no label "{label}"; it has {self._label_list}.{did_you_mean(label, [*self.labels])}'
            )

    @property
    def _label_list(self) -> str:
        """The labels, for a message."""
        return ", ".join(self.labels)

    def read_outputs(self, path: str, examples: Sequence[Example[str]], on_notice: OnNotice) -> list[str]:
        """Read outputs of another program: one line per word, or a lexicon with a word and its output per line."""
        lines = list(read_lines(path, on_notice))
        if not any("\t" in line for line in lines):
            if len(lines) != len(examples):
                raise UserError(
                    f"{path} has {format_count(len(lines), 'line')} but the reference has "
                    f"{format_count(len(examples), 'different word')}; write one line per word, or put "
                    "the word and a tab before its output."
                )
            return lines
        answers: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            columns = split_tabs(line)
            if len(columns) != len(self.layout.columns):
                raise UserError(
                    f"{path}: line {number:,}: expected {', '.join(self.layout.columns)}, found {line[:60]!r}."
                )
            answer = columns.pop(self.output_column)
            answers.setdefault(self.decode_columns(self.encode_columns(columns)), answer)
        missing = [example.source for example in examples if example.source not in answers]
        if missing:
            raise UserError(
                f'{path} has no line for {format_count(len(missing), "word")}; the first is "{_show_tabs(missing[0])}".'
            )
        return [answers[example.source] for example in examples]

    def format_entry(self, example: Example[str], output: str) -> str:
        """Return an output as a line of a lexicon, after its label if there are labels."""
        columns = example.source.split("\t")
        columns.insert(self.output_column + bool(self.labels), output)
        return "\t".join(columns)

    def validation_score(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> float:
        """Return the value of the task's validation metric."""
        rates = self._error_rates(examples, outputs, intervals=False)
        return next(rate.value for rate in rates if rate.name == self.validation_metric)

    def score(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> ErrorRates:
        """Return error rates with confidence intervals."""
        return self._error_rates(examples, outputs, intervals=True)

    def score_by_label(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> dict[str, ErrorRates]:
        """Return the scores of each label; an empty dictionary if there are no labels."""
        if not self.labels:
            return {}
        parts: dict[str, list[tuple[Example[str], str]]] = {}
        for example, output in zip(examples, outputs, strict=True):
            parts.setdefault(example.source.partition("\t")[0], []).append((example, output))
        return {name: self.score(*zip(*part, strict=True)) for name, part in parts.items()}

    def _error_rates(self, examples: Sequence[Example[str]], outputs: Sequence[str], *, intervals: bool) -> ErrorRates:
        sources, references = [example.source for example in examples], [example.references for example in examples]
        return error_rates.score_words(sources, outputs, references, self.scheme, intervals=intervals)


def _distinct_symbols(sources: Iterable[str]) -> set[str]:
    """Return all letters, tags and labels."""
    return {piece for source in sources for piece in source.split(" ")}


def _show_tabs(text: str) -> str:
    """Return a text with visible tabs."""
    return text.replace("\t", "<tab>")


def _pronunciation_pair(columns: Sequence[str]) -> Pair:
    """Return the letters and the phones of a line."""
    word, phones = columns
    return spell_word(word), _normalize_phones(phones)


def _normalize_phones(phones: str) -> str:
    """Return phones in NFC, separated by single spaces."""
    return " ".join(normalize("NFC", phones).split())


class Pronouncer(SequenceModel):
    """A model of pronunciation: `pronounce` returns the phones of a word, or of each word of a list."""

    pronounce = SequenceModel.predict


class PronunciationTask(WordTask):
    """From the letters of a word to its phones."""

    name, noun, gerund, validation_metric = "pronounce", "pronouncer", "Pronouncing", "WER"
    higher_is_better = False
    model_class = "dragoman.tasks.word_tasks:Pronouncer"
    input_hint = "Type words, one per line"
    usage_examples = ('dragoman pronounce {run} "word"', "dragoman evaluate {run} --reference LEXICON")
    layout = LexiconLayout(("word", "phones"), _pronunciation_pair, split_untabbed=split_cmudict, comments=(";;;",))
    input_columns = ("word",)
    input_example = "word"

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


_TAG_END = ";"  # of a tag, so that it is never taken for a letter


def _spell_with_tags(lemma: str, tags: str) -> str:
    """Return the tags and the letters of the lemma as the model reads them."""
    symbols = (tag.strip().replace(" ", SPACE_SYMBOL) for tag in tags.split(_TAG_END))
    return " ".join([*(tag + _TAG_END for tag in symbols if tag), spell_word(lemma)])


def _inflection_pair(columns: Sequence[str]) -> Pair:
    """Return what the model reads and writes for a line."""
    lemma, form, tags = columns
    return _spell_with_tags(lemma, tags), spell_word(form)


class Inflector(SequenceModel):
    """A model of inflection: `inflect` returns the form for "lemma<tab>tags", or for each of a list."""

    inflect = SequenceModel.predict


@dataclass(frozen=True)
class InflectionTask(WordTask):
    """From a lemma to one of its forms."""

    scheme: ScoringScheme = INFLECTION

    name, noun, gerund, validation_metric = "inflect", "morphological inflector", "Inflecting", "accuracy"
    model_class = "dragoman.tasks.word_tasks:Inflector"
    input_hint = "Type a lemma, a tab and its tags: lemma\tV;PST"
    usage_examples = ('dragoman inflect {run} "lemma" --tags "V;PST"', "dragoman evaluate {run} --reference TABLE")
    layout = LexiconLayout(("lemma", "form", "tags"), _inflection_pair)
    input_columns = ("lemma", "tags")
    input_example = "lemma\tV;PST"

    def encode_columns(self, columns: Sequence[str]) -> str:
        """Return lemma and tags as the model reads them."""
        lemma, tags = columns
        if not tags.strip(" ;"):
            raise UserError(f'"{lemma}" has no tags; write "lemma<tab>V;PST", or give --tags.')
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
