"""Translation: two files of sentences, line by line, or one with a tab between source and target."""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from dragoman.data.check import check, written
from dragoman.data.corpus import Corpus, Pair, Pairs
from dragoman.data.lines import read_lines
from dragoman.errors import UserError
from dragoman.evaluation import scores
from dragoman.recipe import Data
from dragoman.tasks.task import Example, PlainTask, Remark, Say


class Translate(PlainTask):
    """From sentences to sentences; a text that is too long for the model is translated in parts."""

    name, noun, doing, measure = "translate", "translator", "Translating", "BLEU"
    usage = ('dragoman translate {run} "…"', "dragoman evaluate {run} --source FILE --reference FILE")
    whole = False
    languages = True

    def corpora(self, data: Data) -> tuple[Corpus, Corpus | None]:
        """Find the files that the recipe names."""
        if not (data.source or data.pairs):
            raise UserError("The recipe names no text to train on: set [data] source and target, or pairs.")
        given = bool(data.valid_source or data.valid_pairs)
        valid = Corpus.of(data.valid_source, data.valid_target, data.valid_pairs) if given else None
        return Corpus.of(data.source, data.target, data.pairs), valid

    def look_over(self, corpus: Pairs, valid: Pairs | None) -> Iterator[Remark]:
        """Pass on what `dragoman check` finds serious."""
        for finding in check(cast(Corpus, corpus), cast("Corpus | None", valid)):
            if finding.severity != "note":
                yield Remark("\n".join(written(finding)))

    def examples_of(self, pairs: Iterable[Pair]) -> list[Example]:
        """Each pair is a sentence with one translation."""
        return [Example(source, (target,)) for source, target in pairs]

    def examples(self, source: str | None, reference: str | None, say: Say) -> list[Example]:
        """Read a text and its translation."""
        if source is None or reference is None:
            raise UserError("Give --source, a text to translate, and --reference, what it should become line by line.")
        sources, references = list(read_lines(source, say)), list(read_lines(reference, say))
        if len(sources) != len(references):
            raise UserError(
                f"{source} has {len(sources):,} lines but {reference} has {len(references):,}; line n of one must "
                "translate line n of the other."
            )
        return self.examples_of(zip(sources, references, strict=True))

    def quick(self, examples: Sequence[Example], outputs: Sequence[str]) -> float:
        """Return cased BLEU."""
        return scores.bleu(outputs, [example.references[0] for example in examples])

    def score(self, examples: Sequence[Example], outputs: Sequence[str]) -> scores.Scores:
        """Return BLEU, chrF and TER."""
        return scores.score(outputs, [example.references[0] for example in examples])
