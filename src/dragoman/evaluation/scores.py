"""Scores of translations: BLEU, chrF and TER, computed by sacrebleu.

Every score carries sacrebleu's signature, and resampling is reproducible. Inputs are lists of detokenised sentences.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from dragoman.errors import UserError
from dragoman.evaluation.score import Score

_SEED = 12345  # sacrebleu's own default, so that its command line gives the same intervals
_RESAMPLES = 1000
_SIGNIFICANCE_LEVEL = 0.05
_LENGTH_RANGES = ((0, 0), (1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, None))

MetricName = Literal["bleu", "chrf", "ter"]


@dataclass(frozen=True)
class TranslationScores:
    """The scores of a set of translations; higher is better, except for TER."""

    bleu: Score
    bleu_lowercase: Score
    chrf: Score
    ter: Score
    sentences: int

    def __iter__(self) -> Iterator[Score]:
        yield from (self.bleu, self.bleu_lowercase, self.chrf, self.ter)

    def __str__(self) -> str:
        return "\n".join(map(str, self))


@dataclass(frozen=True)
class LengthRangeScores:
    """The scores of the sentences in one range of source lengths."""

    words: str  # "6–10"
    sentences: int
    bleu: float
    chrf: float
    ratio: float  # length of the hypotheses divided by that of the references, in BLEU's tokens


@dataclass(frozen=True)
class SentenceScore:
    """One sentence with its translation and its chrF."""

    line: int  # from 1
    chrf: float
    source: str
    hypothesis: str
    reference: str


@dataclass(frozen=True)
class SystemComparison:
    """The comparison of two systems on the same references, with a significance test."""

    ours: Score
    theirs: Score
    p_value: float  # probability of such a difference by chance
    verdict: str

    def __str__(self) -> str:
        return self.verdict


def score_translations(
    hypotheses: Sequence[str], references: Sequence[str], *, intervals: bool = True, seed: int = _SEED
) -> TranslationScores:
    """Score `hypotheses` with BLEU (cased and lower-cased), chrF and TER."""
    _check_counts(hypotheses=hypotheses, references=references)

    def compute(metric: Metric) -> Score:
        if intervals:
            return _bootstrap_scores(metric, [hypotheses], references)[0][0]
        result = metric.corpus_score(hypotheses, [references])
        return _to_score(result.name, result.score, None, str(metric.get_signature()))

    with _sacrebleu_seed(seed):
        return TranslationScores(
            bleu=compute(BLEU()),
            # `force` does not change the score; it keeps sacrebleu from repeating its advice to detokenise.
            bleu_lowercase=replace(compute(BLEU(lowercase=True, force=True)), name="BLEU lower-cased"),
            chrf=compute(CHRF()),
            ter=compute(TER()),
            sentences=len(hypotheses),
        )


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return cased BLEU without a confidence interval, which is fast enough for validation during training."""
    _check_counts(hypotheses=hypotheses, references=references)
    return float(BLEU(force=True).corpus_score(hypotheses, [references]).score)


def score_by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> list[LengthRangeScores]:
    """Score the sentences by the length of their source in words; empty ranges are left out."""
    _check_counts(sources=sources, hypotheses=hypotheses, references=references)
    lengths = [len(source.split()) for source in sources]
    rows = []
    for least, most in _LENGTH_RANGES:
        indices = [i for i, length in enumerate(lengths) if least <= length and (most is None or length <= most)]
        if indices:
            rows.append(
                _length_range_scores(
                    _length_range(least, most), [hypotheses[i] for i in indices], [references[i] for i in indices]
                )
            )
    return rows


def worst_sentences(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], count: int = 10
) -> list[SentenceScore]:
    """Return the `count` sentences with the lowest chrF, the lowest first."""
    _check_counts(sources=sources, hypotheses=hypotheses, references=references)
    metric = CHRF()
    lines = zip(sources, hypotheses, references, strict=True)
    sentences = [
        SentenceScore(line, float(metric.sentence_score(hypothesis, [reference]).score), source, hypothesis, reference)
        for line, (source, hypothesis, reference) in enumerate(lines, start=1)
    ]
    return sorted(sentences, key=lambda sentence: (sentence.chrf, sentence.line))[:count]


def compare_systems(
    ours: Sequence[str],
    theirs: Sequence[str],
    references: Sequence[str],
    *,
    metric: MetricName = "bleu",
    seed: int = _SEED,
) -> SystemComparison:
    """Compare two systems by paired bootstrap resampling (Koehn, 2004)."""
    _check_counts(
        **{"hypotheses of the first system": ours, "hypotheses of the second system": theirs, "references": references}
    )
    if seed < 1:
        raise UserError(f"The seed of a comparison must be at least 1, got {seed}; sacrebleu treats 0 as no seed.")
    sacrebleu_metric = {"bleu": BLEU, "chrf": CHRF, "ter": TER}[metric]()
    with _sacrebleu_seed(seed):
        (their_score, _), (our_score, p_value) = _bootstrap_scores(sacrebleu_metric, [theirs, ours], references)
    assert p_value is not None, "sacrebleu computes a p-value for the second system"
    # For two identical systems sacrebleu reports its smallest p, since no resample exceeds a difference of 0.
    p_value = 1.0 if our_score.value == their_score.value else p_value
    return SystemComparison(our_score, their_score, p_value, _verdict(our_score, their_score, p_value))


def to_json(result: TranslationScores | LengthRangeScores | SentenceScore | SystemComparison) -> dict[str, Any]:
    """Return a result as a JSON object."""
    return {name: value.to_json() if isinstance(value, Score) else value for name, value in vars(result).items()}


def _check_counts(**lists: Sequence[str]) -> None:
    """Raise an error if the lists are empty or differ in length; their names appear in the message."""
    counts = {name: len(sentences) for name, sentences in lists.items()}
    first, *others = counts
    for other in others:
        if counts[first] != counts[other]:
            raise UserError(
                f"There are {_group_thousands(counts[first])} {first} but {_group_thousands(counts[other])} {other}; "
                "they must be aligned line by line."
            )
    if not counts[first]:
        raise UserError(f"There are no {first} to score.")


def _bootstrap_scores(
    metric: Metric, systems: Sequence[Sequence[str]], references: Sequence[str]
) -> list[tuple[Score, float | None]]:
    """Score each system with its confidence interval; systems after the first get a p-value against the first."""
    # `corpus_score(n_bootstrap=…)` finds the same interval, but fails on mixed number types if a resample happens to
    # hold empty references only. sacrebleu's other test, approximate randomisation, calls a difference in one single
    # sentence significant at p = 0.0001: no shuffling makes it larger, and those that make it as large do not count.
    named = [(str(number), hypotheses) for number, hypotheses in enumerate(systems)]
    signatures, table = PairedTest(named, {"metric": metric}, [references], "bs", _RESAMPLES)()
    ((name, signature),) = signatures.items()
    results = [result for result in table[name] if isinstance(result, Result)]
    return [(_to_score(name, result.score, result.ci, str(signature)), _to_float(result.p_value)) for result in results]


def _length_range_scores(words: str, hypotheses: Sequence[str], references: Sequence[str]) -> LengthRangeScores:
    """Score the sentences of one range of lengths."""
    bleu = BLEU(force=True).corpus_score(hypotheses, [references])
    chrf = CHRF().corpus_score(hypotheses, [references])
    return LengthRangeScores(words, len(hypotheses), float(bleu.score), float(chrf.score), float(bleu.ratio))


def _length_range(least: int, most: int | None) -> str:
    """Name a range of lengths: "0", "6–10", "31+"."""
    if most is None:
        return f"{least}+"
    return f"{least}" if least == most else f"{least}–{most}"


def _to_score(name: str, value: float, interval: float | None, signature: str) -> Score:
    """Return one of sacrebleu's results as a score."""
    return Score(name, float(value), _to_float(interval), signature=signature, decimals=1)


def _to_float(number: float | None) -> float | None:
    """Convert a numpy number, which JSON does not support, to a float."""
    return None if number is None else float(number)


def _verdict(ours: Score, theirs: Score, p_value: float) -> str:
    """Return the result of a comparison as a sentence."""
    difference = ours.value - theirs.value
    facts = f"{ours.name} {ours.value:.1f} (first) and {theirs.value:.1f} (second), p = {p_value:.3f}"
    if difference == 0:
        return f"The systems have the same score: {facts}."
    if p_value >= _SIGNIFICANCE_LEVEL:
        return f"The difference of {abs(difference):.1f} {ours.name} is not significant: {facts}."
    ours_is_better = (difference > 0) != (ours.name == "TER")  # TER counts errors
    better, other = ("first", "second") if ours_is_better else ("second", "first")
    return f"The {better} system is better than the {other} by {abs(difference):.1f} {ours.name}: {facts}."


def _group_thousands(number: int) -> str:
    """Format a number with spaces between thousands."""
    return f"{number:,}".replace(",", " ")


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set the seed of sacrebleu's resampling, which can only be passed through the environment."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
