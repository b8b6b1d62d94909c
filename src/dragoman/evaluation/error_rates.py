"""Scores of pronunciations and inflected forms: word and phone error rates, accuracy, mean edit distance.

A word may have several references. Its output is wrong if it equals none of them. Edits are counted to the nearest
reference (the one with the fewest edits; the first of equals), whose length is the denominator of the phone error rate.
jiwer counts the edits. Every score carries a signature that makes it reproducible.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import groupby
from typing import Any, NamedTuple
from unicodedata import normalize

import jiwer
import numpy as np
import numpy.typing as npt
from jiwer.process import AlignmentChunk

from dragoman.errors import UserError, format_count
from dragoman.evaluation.score import Score

_SEED = 12345
_RESAMPLES = 1000
_UNIT_SEPARATOR = " "  # between the units that jiwer compares; never part of a unit
_SPACE_SYMBOL = "␣"  # a space that is a unit
_STRESS = re.compile(r"(?<=[A-Z])[012]$|[ˈˌ]")  # the digits of ARPAbet vowels and the marks of IPA, but not tones

_Substitution = tuple[str, str]  # expected and actual unit; empty for an insertion or a deletion


class _ErrorCounts(NamedTuple):
    """Counts over a set of words."""

    words: float
    wrong: float
    edits: float
    length: float  # of the nearest references


@dataclass(frozen=True)
class _ErrorMetric:
    """A metric as a function of the counts."""

    name: str
    compute: Callable[[_ErrorCounts], float]
    counts_template: str  # format string that shows the counts


_WORD_ERROR_RATE = _ErrorMetric("WER", lambda sums: 100 * sums.wrong / sums.words, "{wrong:,} of {words:,} words wrong")
_PHONE_ERROR_RATE = _ErrorMetric(
    "PER", lambda sums: 100 * sums.edits / sums.length, "{edits:,} edits in {length:,} {units}"
)
_ACCURACY = _ErrorMetric(
    "accuracy", lambda sums: 100 - _WORD_ERROR_RATE.compute(sums), "{right:,} of {words:,} words right"
)
_EDIT_DISTANCE = _ErrorMetric(
    "edit distance", lambda sums: sums.edits / sums.words, "{edits:,} edits in {words:,} words"
)


@dataclass(frozen=True)
class ScoringScheme:
    """The units that outputs consist of, and the metrics to compute."""

    units: str
    split_units: Callable[[str], list[str]]
    metrics: tuple[_ErrorMetric, ...]
    item: str = "word"  # what each output is for

    @property
    def unit(self) -> str:
        """The noun of one unit, without what qualifies it."""
        return self.units.partition(" ")[0].removesuffix("s")


@dataclass(frozen=True)
class WordResult:
    """One word with its output, and the edits to the nearest reference."""

    number: int  # counted from 1
    source: str
    output: str
    references: tuple[str, ...]
    nearest: str
    edits: int
    length: int  # of the nearest reference
    slips: tuple[_Substitution, ...]


@dataclass(frozen=True)
class Confusion:
    """How often one unit was produced instead of another."""

    expected: str  # empty: an insertion
    found: str  # empty: a deletion
    times: int


@dataclass(frozen=True)
class ErrorRates:
    """The scores of a set of words, and the result of each word."""

    rates: tuple[Score, ...]
    word_results: tuple[WordResult, ...]
    item: str = "word"  # what each result is for
    unit: str = "phone"  # of its length

    def __iter__(self) -> Iterator[Score]:
        return iter(self.rates)

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def worst(self, count: int = 10) -> list[WordResult]:
        """Return the wrong words with the most edits per unit, the worst first."""
        wrong = [result for result in self.word_results if result.edits]
        return sorted(wrong, key=lambda result: (-result.edits / result.length, -result.edits, result.number))[:count]

    def confusions(self, count: int = 10) -> list[Confusion]:
        """Return the most frequent confusions."""
        times = Counter(slip for result in self.word_results for slip in result.slips)
        ranked = sorted(times.items(), key=lambda item: (-item[1], item[0]))
        return [Confusion(*slip, frequency) for slip, frequency in ranked[:count]]


def _split_phones(text: str) -> list[str]:
    """Split a pronunciation, or a transcript, at spaces."""
    return normalize("NFC", text).split()


def split_unstressed_phones(text: str) -> list[str]:
    """Split a pronunciation at spaces, without stress: AH0, AH1 and AH2 become AH, ˈa becomes a."""
    return [phone for phone in (_STRESS.sub("", phone) for phone in _split_phones(text)) if phone]


def _split_letters(text: str) -> list[str]:
    """Split a form into characters, spaces included."""
    return [_SPACE_SYMBOL if letter == _UNIT_SEPARATOR else letter for letter in normalize("NFC", text)]


_TRANSCRIPT_WORD_ERROR_RATE = replace(_PHONE_ERROR_RATE, name="WER")
_TRANSCRIPT_CHARACTER_ERROR_RATE = replace(_PHONE_ERROR_RATE, name="CER")
_TRANSCRIPT_WORDS = ScoringScheme("words", _split_phones, (_TRANSCRIPT_WORD_ERROR_RATE,), "recording")
_TRANSCRIPT_CHARACTERS = ScoringScheme("characters", _split_letters, (_TRANSCRIPT_CHARACTER_ERROR_RATE,), "recording")
PRONUNCIATION = ScoringScheme("phones", _split_phones, (_WORD_ERROR_RATE, _PHONE_ERROR_RATE, _ACCURACY, _EDIT_DISTANCE))
UNSTRESSED = replace(PRONUNCIATION, units="phones without stress", split_units=split_unstressed_phones)
INFLECTION = ScoringScheme("letters", _split_letters, (_ACCURACY, _EDIT_DISTANCE))


def score_words(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    scheme: ScoringScheme = PRONUNCIATION,
    *,
    intervals: bool = True,
    seed: int = _SEED,
) -> ErrorRates:
    """Score one output per source against its references; `seed` makes the confidence intervals reproducible."""
    results = _compare_words(sources, outputs, references, scheme)
    rows = [(1, result.edits > 0, result.edits, result.length) for result in results]
    counts = np.array(rows, dtype=np.int64)  # words 4
    resamples = _bootstrap_counts(counts, seed) if intervals else None
    signature = _signature(results, scheme, seed if intervals else None)
    rates = tuple(_error_rate(metric, counts, resamples, scheme.units, signature) for metric in scheme.metrics)
    return ErrorRates(rates, results, scheme.item, scheme.unit)


def score_transcripts(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[Sequence[str]], *, intervals: bool = True
) -> ErrorRates:
    """Score transcripts by word and character error rate: edits divided by the length of the references.

    Runs of spaces count as one. The results, worst recordings and confusions are those of words.
    """
    cleaned = [" ".join(output.split()) for output in outputs]
    expected = [[" ".join(reference.split()) for reference in several] for several in references]
    words, characters = (
        score_words(sources, cleaned, expected, scheme, intervals=intervals)
        for scheme in (_TRANSCRIPT_WORDS, _TRANSCRIPT_CHARACTERS)
    )
    return replace(words, rates=(*words.rates, *characters.rates))


def _compare_words(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[Sequence[str]], scheme: ScoringScheme
) -> tuple[WordResult, ...]:
    """Compare each output with its references, and keep the nearest."""
    _check_inputs(sources, outputs, references, scheme)
    pairs = [(word, reference) for word, several in enumerate(references) for reference in several]
    alignments = _align(
        [_UNIT_SEPARATOR.join(scheme.split_units(reference)) for _, reference in pairs],
        [_UNIT_SEPARATOR.join(scheme.split_units(outputs[word])) for word, _ in pairs],
    )
    candidates = [(*pair, chunks) for pair, chunks in zip(pairs, alignments, strict=True)]
    nearest = (
        min(group, key=lambda candidate: _count_edits(candidate[2]))
        for _, group in groupby(candidates, key=lambda candidate: candidate[0])
    )
    return tuple(
        WordResult(
            number=word + 1,
            source=sources[word],
            output=outputs[word],
            references=tuple(references[word]),
            nearest=reference,
            edits=_count_edits(chunks),
            length=len(scheme.split_units(reference)),
            slips=tuple(_substitutions(chunks, scheme.split_units(reference), scheme.split_units(outputs[word]))),
        )
        for word, reference, chunks in nearest
    )


def _align(references: list[str], outputs: list[str]) -> list[list[AlignmentChunk]]:
    """Align each output with its reference, unit by unit."""
    split = jiwer.ReduceToListOfListOfWords(_UNIT_SEPARATOR)
    return jiwer.process_words(references, outputs, split, split).alignments


def _count_edits(chunks: Sequence[AlignmentChunk]) -> int:
    """Count substitutions, deletions and insertions."""
    return sum(
        max(chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx)
        for chunk in chunks
        if chunk.type != "equal"
    )


def _substitutions(
    chunks: Sequence[AlignmentChunk], reference: list[str], output: list[str]
) -> Iterator[_Substitution]:
    """Yield the expected and the actual unit of each edit."""
    for chunk in chunks:
        if chunk.type != "equal":
            expected = reference[chunk.ref_start_idx : chunk.ref_end_idx]
            actual = output[chunk.hyp_start_idx : chunk.hyp_end_idx]
            size = max(len(expected), len(actual))  # they are of one length, or one of them is empty
            yield from zip(expected or [""] * size, actual or [""] * size, strict=True)


def _check_inputs(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[Sequence[str]], scheme: ScoringScheme
) -> None:
    """Raise an error for missing outputs or empty references; an empty output is allowed."""
    if not len(sources) == len(outputs) == len(references):
        raise UserError(
            f"There are {format_count(len(sources), scheme.item)}, {len(outputs):,} outputs and references for "
            f"{format_count(len(references), scheme.item)}; each {scheme.item} needs one output and at least one "
            "reference."
        )
    if not sources:
        raise UserError(f"There are no {scheme.item}s to score.")
    for number, (source, several) in enumerate(zip(sources, references, strict=True), 1):
        where = f'{scheme.item.capitalize()} {number:,}, "{source}",'
        if not several:
            raise UserError(f"{where} has no reference; give at least one.")
        if not all(scheme.split_units(reference) for reference in several):
            raise UserError(
                f"{where} has an empty reference; expected {scheme.units}. Remove the reference, or fill it in."
            )


def _bootstrap_counts(counts: npt.NDArray[np.int64], seed: int) -> list[_ErrorCounts]:
    """Return the counts of bootstrap resamples (Efron, 1979)."""
    generator, words = np.random.default_rng(seed), len(counts)
    resamples = (np.bincount(generator.integers(words, size=words), minlength=words) for _ in range(_RESAMPLES))
    return [_ErrorCounts(*(times @ counts).tolist()) for times in resamples]


def _error_rate(
    metric: _ErrorMetric,
    counts: npt.NDArray[np.int64],
    resamples: list[_ErrorCounts] | None,
    units: str,
    signature: str,
) -> Score:
    """Compute one score, with its confidence interval if there are resamples."""
    sums = _ErrorCounts(*counts.sum(axis=0).tolist())
    counted = metric.counts_template.format(**sums._asdict(), right=sums.words - sums.wrong, units=units)
    interval = None
    if resamples is not None:
        low, high = np.percentile([metric.compute(resample) for resample in resamples], [2.5, 97.5])
        interval = float(high - low) / 2
    return Score(metric.name, float(metric.compute(sums)), interval, counted, signature)


def _signature(results: Sequence[WordResult], scheme: ScoringScheme, seed: int | None) -> str:
    """Return the signature: everything besides the texts that the scores depend on."""
    reference_counts = [len(result.references) for result in results]
    references = (
        f"{min(reference_counts)}"
        if min(reference_counts) == max(reference_counts)
        else f"{min(reference_counts)}-{max(reference_counts)}"
    )
    resampling = [] if seed is None else [f"bs:{_RESAMPLES}", f"seed:{seed}"]
    return "|".join([f"nrefs:{references}", *resampling, f"unit:{scheme.units}", f"jiwer:{version('jiwer')}"])


def to_json(scores: ErrorRates, *, worst: int = 0, confusions: int = 10) -> dict[str, Any]:
    """Return the scores as a JSON object, with the worst words and the most frequent confusions."""
    return {
        **{rate.name.lower().replace(" ", "_"): rate.to_json() for rate in scores},
        "words": len(scores.word_results),
        "confusions": [asdict(item) for item in scores.confusions(confusions)],
        "worst": [asdict(item) for item in scores.worst(worst)],
    }
