"""Translation: the model class, and the task of sentence pairs (two files, or one in any format, or several)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, cast

from dragoman.data.corpus import AnyParallelCorpus, CombinedCorpus, Pair, ParallelCorpus, TextPairs, label_token
from dragoman.data.corpus_check import DataReport, check_corpus, format_finding
from dragoman.data.lines import read_lines
from dragoman.errors import UserError, did_you_mean, format_count
from dragoman.evaluation import scores
from dragoman.recipe import DataConfig, Recipe
from dragoman.tasks.sequence_model import SequenceModel
from dragoman.tasks.task import DataWarning, Example, OnNotice, OnProgress, TransductionTask


class Translator(SequenceModel):
    """A translation model: `translate` translates a text, or a list of texts. Long texts are translated in segments."""

    translate = SequenceModel.predict
    translate_lines = SequenceModel.predict_lines


def open_parallel_corpus(config: DataConfig, prefix: Literal["", "valid_"] = "") -> AnyParallelCorpus | None:
    """Return the corpus that a recipe names for training, or with the prefix for validation; None if it names none."""
    parts = tuple(
        ParallelCorpus.from_files(
            corpus.source, corpus.target, corpus.file, languages=corpus.languages, label=corpus.label or ""
        )
        for corpus in getattr(config, f"{prefix}corpora")
    )
    if parts:
        return parts[0] if len(parts) == 1 else CombinedCorpus(parts)
    source, target, pairs = (getattr(config, prefix + name) for name in ("source", "target", "pairs"))
    if not (source or pairs):
        return None
    return ParallelCorpus.from_files(source, target, pairs, languages=config.languages)


@dataclass(frozen=True)
class TranslationTask(TransductionTask):
    """From sentences to sentences; a text that is too long for the model is translated in segments.

    A model that was trained on corpora with labels reads a label and a tab before each text.
    """

    labels: tuple[str, ...] = ()

    name, noun, gerund, validation_metric = "translate", "translator", "Translating", "BLEU"
    usage_examples = ('dragoman translate {run} "…"', "dragoman evaluate {run} --source FILE --reference FILE")
    never_split = False
    has_language_pair = True

    def configure(self, recipe: Recipe) -> Self:
        """Return the task with the labels of the recipe's corpora."""
        return replace(
            self, labels=tuple(dict.fromkeys(corpus.label for corpus in recipe.data.corpora if corpus.label))
        )

    def open_corpora(self, config: DataConfig) -> tuple[AnyParallelCorpus, AnyParallelCorpus | None]:
        """Open the files that the recipe names."""
        train, valid = open_parallel_corpus(config), open_parallel_corpus(config, "valid_")
        if train is None:
            raise UserError("The recipe has no training text: set [data] source and target, pairs, or corpora.")
        known = {part.label for part in train.parts}
        for part in valid.parts if valid else ():
            if part.label not in known:
                expected = f"one of {', '.join(sorted(known))}" if any(known) else "no label"
                raise UserError(
                    f'{part}: the validation label "{part.label}" is not in the training data; expected {expected}.'
                )
        return train, valid

    def report_data(self, corpus: TextPairs, valid: TextPairs | None, on_progress: OnProgress) -> DataReport:
        """Return what is suspicious about pairs of texts."""
        del on_progress
        return check_corpus(cast(AnyParallelCorpus, corpus), cast("AnyParallelCorpus | None", valid))

    def check_data(self, corpus: TextPairs, valid: TextPairs | None) -> Iterator[DataWarning]:
        """Yield the errors and warnings of `dragoman check`."""
        for finding in self.report_data(corpus, valid, lambda _done, _total: None):
            if finding.severity != "note":
                yield DataWarning("\n".join(format_finding(finding)))

    def examples_from_pairs(self, pairs: Iterable[Pair]) -> list[Example[str]]:
        """Make an example of each pair."""
        return [Example(self._labelled_source(source), (target,)) for source, target in pairs]

    def _labelled_source(self, source: str) -> str:
        """Convert what the model reads to what a person enters."""
        token, text = self.split_label(source)
        return f"{token.strip(' <>')}\t{text}" if token else text

    @property
    def raw_text_io(self) -> bool:
        """Whether the model reads and writes the same texts as a person: not if it reads labels."""
        return not self.labels

    def to_model_input(self, text: str) -> str:
        """Convert a label, a tab and a text to what the model reads."""
        if not self.labels or not text.strip():
            return text
        label, tab, rest = text.partition("\t")
        listed = ", ".join(self.labels)
        if not tab:
            raise UserError(
                f'"{text[:60]}": expected a label and a tab before the text. Write "{self.labels[0]}<tab>{text[:60]}", '
                f"or give --label. The model's labels are {listed}."
            )
        if label not in self.labels:
            raise UserError(f'The model has no label "{label}"; it has {listed}.{did_you_mean(label, self.labels)}')
        return f"{label_token(label)} {rest}"

    def split_label(self, text: str) -> tuple[str, str]:
        """Return the label that the model reads before each sentence, with a space, and the rest of a text."""
        token, space, rest = text.partition(" ")
        return (token + space, rest) if token in map(label_token, self.labels) else ("", text)

    def read_examples(self, source: str | None, reference: str | None, on_notice: OnNotice) -> list[Example[str]]:
        """Read a text and its translation."""
        if source is None or reference is None:
            raise UserError("Give both --source, a text to translate, and --reference, its translation line by line.")
        sources, references = list(read_lines(source, on_notice)), list(read_lines(reference, on_notice))
        if len(sources) != len(references):
            raise UserError(
                f"{source} has {format_count(len(sources), 'line')} but {reference} has {len(references):,}; the files "
                "must be aligned line by line."
            )
        return [Example(text, (translation,)) for text, translation in zip(sources, references, strict=True)]

    def validation_score(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> float:
        """Return cased BLEU."""
        return scores.corpus_bleu(outputs, [example.references[0] for example in examples])

    def score(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> scores.TranslationScores:
        """Return BLEU, chrF and TER."""
        return scores.score_translations(outputs, [example.references[0] for example in examples])
