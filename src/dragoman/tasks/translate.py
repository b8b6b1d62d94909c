"""Translation: the model class, and the task of sentence-aligned files (two files, or one with tabs)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from dragoman.data.corpus import Pair, ParallelCorpus, TextPairs
from dragoman.data.corpus_check import check_corpus, format_finding
from dragoman.data.lines import read_lines
from dragoman.errors import UserError, format_count
from dragoman.evaluation import scores
from dragoman.recipe import DataConfig
from dragoman.tasks.sequence_model import SequenceModel
from dragoman.tasks.task import DataWarning, Example, OnNotice, TransductionTask


class Translator(SequenceModel):
    """A translation model: `translate` translates a text, or a list of texts. Long texts are translated in segments."""

    translate = SequenceModel.predict
    translate_lines = SequenceModel.predict_lines


class TranslationTask(TransductionTask):
    """From sentences to sentences; a text that is too long for the model is translated in segments."""

    name, noun, gerund, validation_metric = "translate", "translator", "Translating", "BLEU"
    usage_examples = ('dragoman translate {run} "…"', "dragoman evaluate {run} --source FILE --reference FILE")
    never_split = False
    has_language_pair = True

    def open_corpora(self, config: DataConfig) -> tuple[ParallelCorpus, ParallelCorpus | None]:
        """Open the files that the recipe names."""
        if not (config.source or config.pairs):
            raise UserError("The recipe has no training text: set [data] source and target, or pairs.")
        has_validation = bool(config.valid_source or config.valid_pairs)
        valid = (
            ParallelCorpus.from_files(config.valid_source, config.valid_target, config.valid_pairs)
            if has_validation
            else None
        )
        return ParallelCorpus.from_files(config.source, config.target, config.pairs), valid

    def check_data(self, corpus: TextPairs, valid: TextPairs | None) -> Iterator[DataWarning]:
        """Yield the errors and warnings of `dragoman check`."""
        for finding in check_corpus(cast(ParallelCorpus, corpus), cast("ParallelCorpus | None", valid)):
            if finding.severity != "note":
                yield DataWarning("\n".join(format_finding(finding)))

    def examples_from_pairs(self, pairs: Iterable[Pair]) -> list[Example[str]]:
        """Make an example of each pair."""
        return [Example(source, (target,)) for source, target in pairs]

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
        return self.examples_from_pairs(zip(sources, references, strict=True))

    def validation_score(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> float:
        """Return cased BLEU."""
        return scores.corpus_bleu(outputs, [example.references[0] for example in examples])

    def score(self, examples: Sequence[Example[str]], outputs: Sequence[str]) -> scores.TranslationScores:
        """Return BLEU, chrF and TER."""
        return scores.score_translations(outputs, [example.references[0] for example in examples])
