"""How good translations are: BLEU, chrF and TER, as sacrebleu counts them.

sacrebleu does all the counting; this file asks it, keeps the signature beside every number, and makes the resampling
repeatable. It takes lists of detokenised sentences and knows nothing of models and files.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from dragoman.errors import UserError

_SEED = 12345  # sacrebleu's own default, so that its command line gives the same intervals
_RESAMPLES = 1000
_SIGNIFICANCE_LEVEL = 0.05
_LENGTH_RANGES = ((0, 0), (1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, None))

MetricName = Literal["bleu", "chrf", "ter"]


@dataclass(frozen=True)
class MetricScore:
    """A number, how far it may be off, and the signature that says how to get it again."""

    name: str
    value: float
    interval: float | None  # half the width of the 95 % interval; None if it was not asked for
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.number}  {self.signature}"

    @property
    def number(self) -> str:
        """Return the value, and the interval if there is one, with one decimal."""
        return f"{self.value:.1f}" if self.interval is None else f"{self.value:.1f} ± {self.interval:.1f}"


@dataclass(frozen=True)
class TranslationScores:
    """What one set of hypotheses scored; more is better, except for TER."""

    bleu: MetricScore
    bleu_lowercase: MetricScore
    chrf: MetricScore
    ter: MetricScore
    sentences: int

    def __iter__(self) -> Iterator[MetricScore]:
        yield from (self.bleu, self.bleu_lowercase, self.chrf, self.ter)

    def __str__(self) -> str:
        return "\n".join(map(str, self))


@dataclass(frozen=True)
class LengthRangeScores:
    """How well the sentences of one range of source lengths did."""

    words: str  # "6–10"
    sentences: int
    bleu: float
    chrf: float
    ratio: float  # length of the hypotheses over that of the references, in BLEU's tokens


@dataclass(frozen=True)
class SentenceScore:
    """One sentence and how it was translated."""

    line: int  # counted from 1, as editors do
    chrf: float
    source: str
    hypothesis: str
    reference: str


@dataclass(frozen=True)
class SystemComparison:
    """Two sets of hypotheses for the same references, and whether their difference means anything."""

    ours: MetricScore
    theirs: MetricScore
    p_value: float  # how often chance alone makes a difference like this one
    verdict: str

    def __str__(self) -> str:
        return self.verdict


def score_translations(
    hypotheses: Sequence[str], references: Sequence[str], *, intervals: bool = True, seed: int = _SEED
) -> TranslationScores:
    """Score `hypotheses` with BLEU (cased and lower-cased), chrF and TER."""
    _check_counts(hypotheses=hypotheses, references=references)

    def ask(metric: Metric) -> MetricScore:
        if intervals:
            return _bootstrap_scores(metric, [hypotheses], references)[0][0]
        result = metric.corpus_score(hypotheses, [references])
        return MetricScore(result.name, float(result.score), None, str(metric.get_signature()))

    with _sacrebleu_seed(seed):
        return TranslationScores(
            bleu=ask(BLEU()),
            # `force` does not change the score; it keeps sacrebleu from repeating its advice to detokenise.
            bleu_lowercase=replace(ask(BLEU(lowercase=True, force=True)), name="BLEU lower-cased"),
            chrf=ask(CHRF()),
            ter=ask(TER()),
            sentences=len(hypotheses),
        )


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return cased BLEU alone, without an interval: quick enough to ask during training."""
    _check_counts(hypotheses=hypotheses, references=references)
    return float(BLEU(force=True).corpus_score(hypotheses, [references]).score)


def score_by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> list[LengthRangeScores]:
    """Score the sentences apart by the length of their source, in words between spaces; leave out empty ranges."""
    _check_counts(sources=sources, hypotheses=hypotheses, references=references)
    lengths = [len(source.split()) for source in sources]
    rows = []
    for least, most in _LENGTH_RANGES:
        chosen = [i for i, length in enumerate(lengths) if least <= length and (most is None or length <= most)]
        if chosen:
            rows.append(
                _length_range_scores(
                    _length_range(least, most), [hypotheses[i] for i in chosen], [references[i] for i in chosen]
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
    """Tell by paired bootstrap resampling (Koehn, 2004) whether one of two sets of hypotheses is better."""
    _check_counts(**{"hypotheses of ours": ours, "hypotheses of theirs": theirs, "references": references})
    if seed < 1:
        raise UserError(f"The seed of a comparison is {seed}; sacrebleu needs 1 or more to give the same result twice.")
    counted = {"bleu": BLEU, "chrf": CHRF, "ter": TER}[metric]()
    with _sacrebleu_seed(seed):
        (their_score, _), (our_score, p_value) = _bootstrap_scores(counted, [theirs, ours], references)
    assert p_value is not None, "the second of two systems has a p-value"
    # For two systems that are the same sacrebleu reports its smallest p, since no resample exceeds a difference of 0.
    p_value = 1.0 if our_score.value == their_score.value else p_value
    return SystemComparison(our_score, their_score, p_value, _verdict(our_score, their_score, p_value))


def to_json(result: TranslationScores | LengthRangeScores | SentenceScore | SystemComparison) -> dict[str, Any]:
    """Return a result as plain dictionaries, strings and numbers."""
    return asdict(result)


def _check_counts(**lists: Sequence[str]) -> None:
    """Refuse lists that are empty or not of one length; their names are used in the message."""
    counts = {name: len(sentences) for name, sentences in lists.items()}
    first, *others = counts
    for other in others:
        if counts[first] != counts[other]:
            raise UserError(
                f"There are {_group_thousands(counts[first])} {first} but {_group_thousands(counts[other])} {other}; "
                "line n of one must belong to line n of the other."
            )
    if not counts[first]:
        raise UserError(f"There are no {first} to score; at least one sentence is needed.")


def _bootstrap_scores(
    metric: Metric, systems: Sequence[Sequence[str]], references: Sequence[str]
) -> list[tuple[MetricScore, float | None]]:
    """Score each system with its interval; give those after the first a p-value for being no other than the first."""
    # `corpus_score(n_bootstrap=…)` finds the same interval, but fails on mixed number types if a resample happens to
    # hold empty references only. sacrebleu's other test, approximate randomisation, calls a difference in one single
    # sentence significant at p = 0.0001: no shuffling makes it larger, and those that make it as large do not count.
    named = [(str(number), hypotheses) for number, hypotheses in enumerate(systems)]
    signatures, table = PairedTest(named, {"metric": metric}, [references], "bs", _RESAMPLES)()
    ((name, signature),) = signatures.items()
    results = [result for result in table[name] if isinstance(result, Result)]
    return [(_to_score(name, result, str(signature)), _to_float(result.p_value)) for result in results]


def _length_range_scores(words: str, hypotheses: Sequence[str], references: Sequence[str]) -> LengthRangeScores:
    """Score the sentences of one range of lengths."""
    counted = BLEU(force=True).corpus_score(hypotheses, [references])
    chrf = CHRF().corpus_score(hypotheses, [references])
    return LengthRangeScores(words, len(hypotheses), float(counted.score), float(chrf.score), float(counted.ratio))


def _length_range(least: int, most: int | None) -> str:
    """Name a range of lengths: "0", "6–10", "31+"."""
    if most is None:
        return f"{least}+"
    return f"{least}" if least == most else f"{least}–{most}"


def _to_score(name: str, result: Result, signature: str) -> MetricScore:
    """Make one result of resampling a Score."""
    return MetricScore(name, float(result.score), _to_float(result.ci), signature)


def _to_float(number: float | None) -> float | None:
    """Turn a number of numpy's, which JSON does not know, into Python's own."""
    return None if number is None else float(number)


def _verdict(ours: MetricScore, theirs: MetricScore, p_value: float) -> str:
    """Say in one sentence who is better, or that nobody can tell."""
    difference = ours.value - theirs.value
    facts = f"{ours.value:.1f} against {theirs.value:.1f} {ours.name}, p = {p_value:.3f}"
    if difference == 0:
        return f"Ours and theirs score the same ({facts})."
    if p_value >= _SIGNIFICANCE_LEVEL:
        return f"The difference of {abs(difference):.1f} {ours.name} is within the noise (ours {facts})."
    ours_is_better = (difference > 0) != (ours.name == "TER")  # TER counts errors
    better, other = ("Ours", "theirs") if ours_is_better else ("Theirs", "ours")
    return f"{better} is better than {other} by {abs(difference):.1f} {ours.name} (ours {facts})."


def _group_thousands(number: int) -> str:
    """Write a number with a space between thousands."""
    return f"{number:,}".replace(",", " ")


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Make sacrebleu draw the same resamples every time; the environment is the only way to tell it."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
