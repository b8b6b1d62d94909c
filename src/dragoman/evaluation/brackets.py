"""Scores of parse trees: labelled precision, recall and F1 of their brackets, as EVALB computes them.

A bracket is correct if the reference has a bracket with the same label around the same words. Sentences whose words
differ from the reference are errors, sentences without words are skipped; neither is scored, both are counted. The
results equal those of EVALB to the digit (Sekine and Collins, 1997; the version that also prints the F-measure), for
sentences of any length and depth.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dragoman.errors import UserError
from dragoman.evaluation.bracket_rules import COLLINS, BracketRules
from dragoman.evaluation.spans import Bracket, SentenceSpans, read_spans, restore_quotes

_FEW_CROSSINGS = 2

_SentenceStatus = Literal["scored", "error", "skipped"]


@dataclass(frozen=True)
class SentenceCounts:
    """The counts of one sentence; only its length if it was not scored."""

    status: _SentenceStatus
    length: int  # of the reference, in words
    matched: int = 0
    in_reference: int = 0
    in_hypothesis: int = 0
    crossing: int = 0  # brackets of the hypothesis that cross one of the reference
    words: int = 0
    right_tags: int = 0
    why: str = ""  # why it was not scored

    @property
    def recall(self) -> float:
        """Percentage of the reference's brackets that are in the hypothesis."""
        return percentage(self.matched, self.in_reference)

    @property
    def precision(self) -> float:
        """Percentage of the hypothesis' brackets that are correct."""
        return percentage(self.matched, self.in_hypothesis)

    @property
    def exact(self) -> bool:
        """Whether all brackets are correct; tags are ignored."""
        return self.matched == self.in_reference == self.in_hypothesis


@dataclass(frozen=True)
class BracketSummary:
    """The scores of a set of sentences; all but the average are percentages."""

    sentences: int
    errors: int
    skipped: int
    scored: int
    precision: float
    recall: float
    f1: float
    exact_match: float
    average_crossing: float
    no_crossing: float
    two_or_less_crossing: float
    tagging_accuracy: float
    matched: int
    in_reference: int
    in_hypothesis: int
    crossing: int
    words: int
    right_tags: int


@dataclass(frozen=True)
class BracketMetric:
    """One score of a set of trees, a percentage, and the rules it was computed with."""

    name: str
    value: float
    signature: str

    @property
    def number(self) -> str:
        """Return the value with two decimals, as EVALB prints it."""
        return f"{self.value:.2f}"

    def __str__(self) -> str:
        return f"{self.name} {self.number}  {self.signature}"


@dataclass(frozen=True)
class BracketScores:
    """The scores of a set of trees: overall, for sentences up to the cut-off, and the counts of each sentence."""

    overall: BracketSummary
    short: BracketSummary
    sentences: tuple[SentenceCounts, ...]
    rules: BracketRules

    def __iter__(self) -> Iterator[BracketMetric]:
        found = self.overall
        unscored = f" ({found.sentences - found.scored:,} of {found.sentences:,} not scored)"
        rules = str(self.rules) + (unscored if found.scored < found.sentences else "")
        for name in ("f1", "precision", "recall", "exact_match", "no_crossing", "tagging_accuracy"):
            yield BracketMetric(name.replace("_", " ").replace("f1", "F1"), getattr(found, name), rules)

    def __str__(self) -> str:
        return f"F1 {self.overall.f1:.2f}  {self.rules}"


def score_brackets(
    hypotheses: Sequence[str], references: Sequence[str], rules: BracketRules = COLLINS
) -> BracketScores:
    """Score trees, one sentence per string. A malformed hypothesis is an error; a malformed reference raises."""
    if len(hypotheses) != len(references):
        raise UserError(
            f"There are {len(hypotheses):,} hypotheses but {len(references):,} references; tree n of one must belong "
            "to tree n of the other."
        )
    counts = tuple(
        _compare_sentence(read_spans(hypothesis, rules), _reference_spans(number, reference, rules), rules)
        for number, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True), start=1)
    )
    short = [sentence for sentence in counts if sentence.length <= rules.cutoff]
    return BracketScores(_summarise(counts), _summarise(short), counts, rules)


def _reference_spans(number: int, text: str, rules: BracketRules) -> SentenceSpans:
    """Read a reference; a malformed one raises."""
    reference = read_spans(text, rules)
    if reference.fault:
        raise UserError(f"Reference {number:,}: {reference.fault}")
    return reference


def _compare_sentence(hypothesis: SentenceSpans, reference: SentenceSpans, rules: BracketRules) -> SentenceCounts:
    """Count matches in one sentence, if both sides have the same words."""
    if not hypothesis.words:
        return SentenceCounts("skipped", reference.length, why=hypothesis.fault or "it has no words that are scored.")
    if len(hypothesis.words) != len(reference.words):
        restore_quotes(hypothesis, reference, rules)
    why = hypothesis.fault or _word_difference(hypothesis.words, reference.words, rules)
    if why:
        return SentenceCounts("error", reference.length, why=why)
    ours, theirs = hypothesis.scored_brackets(rules), reference.scored_brackets(rules)
    return SentenceCounts(
        "scored",
        reference.length,
        matched=_count_matches(ours, theirs, rules),
        in_reference=len(theirs),
        in_hypothesis=len(ours),
        crossing=_count_crossings(ours, theirs),
        words=len(reference.words),
        right_tags=sum(map(rules.labels_match, hypothesis.tags, reference.tags)),
    )


def _word_difference(words: Sequence[str], reference: Sequence[str], rules: BracketRules) -> str | None:
    """Return how the words of two trees differ, or None."""
    if len(words) != len(reference):
        return f"it has {len(words):,} words that are scored, the reference has {len(reference):,}."
    for number, (word, other) in enumerate(zip(words, reference, strict=True), start=1):
        if not rules.words_match(word, other):
            return f'word {number:,} is "{word}", in the reference it is "{other}".'
    return None


def _count_matches(ours: Sequence[Bracket], theirs: Sequence[Bracket], rules: BracketRules) -> int:
    """Count the brackets of the reference that match a bracket of the hypothesis, each at most once."""
    free = defaultdict(list)
    for bracket in ours:
        free[bracket.start, bracket.end].append(bracket.label)
    found = 0
    for bracket in theirs:
        labels = free[bracket.start, bracket.end]
        # The first match, as in EVALB: equality is not transitive, so the order matters.
        partner = next(
            (label for label in labels if not rules.labelled or rules.labels_match(bracket.label, label)), None
        )
        if partner is not None:
            labels.remove(partner)
            found += 1
    return found


def _count_crossings(ours: Sequence[Bracket], theirs: Sequence[Bracket]) -> int:
    """Count the brackets of the hypothesis that cross a bracket of the reference."""
    return sum(any(map(_is_crossing, [bracket] * len(theirs), theirs)) for bracket in ours)


def _is_crossing(one: Bracket, other: Bracket) -> bool:
    """Return whether two brackets overlap and neither contains the other."""
    return one.start < other.start < one.end < other.end or other.start < one.start < other.end < one.end


def _summarise(sentences: Sequence[SentenceCounts]) -> BracketSummary:
    """Compute the scores of a set of sentences from their counts."""
    scored = [sentence for sentence in sentences if sentence.status == "scored"]
    fields = ("matched", "in_reference", "in_hypothesis", "crossing", "words", "right_tags")
    sums = {name: sum(getattr(sentence, name) for sentence in scored) for name in fields}
    precision = percentage(sums["matched"], sums["in_hypothesis"])
    recall = percentage(sums["matched"], sums["in_reference"])
    return BracketSummary(
        sentences=len(sentences),
        errors=sum(sentence.status == "error" for sentence in sentences),
        skipped=sum(sentence.status == "skipped" for sentence in sentences),
        scored=len(scored),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if sums["matched"] else 0.0,
        exact_match=percentage(sum(sentence.exact for sentence in scored), len(scored)),
        average_crossing=sums["crossing"] / len(scored) if scored else 0.0,
        no_crossing=percentage(sum(sentence.crossing == 0 for sentence in scored), len(scored)),
        two_or_less_crossing=percentage(sum(sentence.crossing <= _FEW_CROSSINGS for sentence in scored), len(scored)),
        tagging_accuracy=percentage(sums["right_tags"], sums["words"]),
        **sums,
    )


def percentage(part: int, whole: int) -> float:
    """Return 100 * part / whole; 0 if the whole is 0."""
    return 100.0 * part / whole if whole else 0.0


def to_json(scores: BracketScores, lines: Sequence[int], *, each: bool = False) -> dict[str, Any]:
    """Return scores as a JSON object; with `each`, including the counts of every sentence and its line."""
    sentences = [
        {"line": line, **asdict(sentence), "recall": sentence.recall, "precision": sentence.precision}
        for line, sentence in zip(lines, scores.sentences, strict=True)
    ]
    return {
        "all": asdict(scores.overall),
        "short": asdict(scores.short),
        "rules": scores.rules.to_json(),
        "not_scored": [{key: row[key] for key in ("line", "status", "why")} for row in sentences if row["why"]],
        **({"sentences": sentences} if each else {}),
    }
