"""Scores of parse trees: labelled precision, recall and F1 of their brackets, as EVALB computes them.

A bracket is correct if the reference has a bracket with the same label around the same words. Sentences whose words
differ from the reference are errors, sentences without words are skipped; neither is scored, both are counted. The
results equal those of EVALB to the digit (Sekine and Collins, 1997; the version that also prints the F-measure), for
sentences of any length and depth.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from dragoman.errors import UserError, did_you_mean
from dragoman.evaluation.score import Score
from dragoman.evaluation.trees import MalformedTreeError, TreeEvent, read_events

_SymbolPairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BracketRules:
    """How brackets are compared. The defaults are those of EVALB without a parameter file: nothing is ignored."""

    labelled: bool = True  # False: only the extent of a bracket counts
    deleted: tuple[str, ...] = ()  # labels of words to remove, and of brackets to remove without their contents
    deleted_for_length: tuple[str, ...] = ()  # labels of words that do not count towards the length of a sentence
    equal_labels: _SymbolPairs = ()
    equal_words: _SymbolPairs = ()
    quotes: tuple[str, ...] = ()  # tags that are easily confused at a quotation mark
    cutoff: int = 40  # sentences of up to this many words are also scored separately
    most_errors: int = 10  # more errors mean that the files do not belong together

    def labels_match(self, label: str, other: str) -> bool:
        """Return whether two labels count as equal. This is not transitive."""
        return label == other or (label, other) in self.label_pairs

    def words_match(self, word: str, other: str) -> bool:
        """Return whether two words count as equal."""
        return word == other or (word, other) in self.word_pairs

    @cached_property
    def label_pairs(self) -> frozenset[tuple[str, str]]:
        """Pairs of labels that count as equal, in both orders."""
        return _symmetric_pairs(self.equal_labels)

    @cached_property
    def word_pairs(self) -> frozenset[tuple[str, str]]:
        """Pairs of words that count as equal, in both orders."""
        return _symmetric_pairs(self.equal_words)

    @cached_property
    def deleted_brackets(self) -> frozenset[str]:
        """Labels of brackets to remove: those in `deleted` and their equals. Words are removed by `deleted` alone."""
        equals = (other for label, other in self.label_pairs if label in self.deleted)
        return frozenset([*self.deleted, *equals])

    def __str__(self) -> str:
        parts = [
            f"{'labelled' if self.labelled else 'unlabelled'} brackets",
            f"without {' '.join(self.deleted)}" if self.deleted else "",
            *(f"{left} = {right}" for left, right in (*self.equal_labels, *self.equal_words)),
            f"quotes as {' '.join(self.quotes)}" if self.quotes else "",
        ]
        return "; ".join(filter(None, parts))

    def to_json(self) -> dict[str, Any]:
        """Return the rules as a JSON object."""
        return asdict(self)


def _symmetric_pairs(pairs: _SymbolPairs) -> frozenset[tuple[str, str]]:
    """Return pairs in both orders."""
    return frozenset(pairs) | {(right, left) for left, right in pairs}


# The rules of nearly all published scores on the Penn Treebank (COLLINS.prm): punctuation is ignored, and ADVP and PRT
# count as equal.
COLLINS = BracketRules(
    deleted=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    deleted_for_length=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)


def read_rules(lines: Iterable[str], name: str) -> BracketRules:
    """Read the lines of an EVALB parameter file; `name` is the file's name for error messages."""
    rules = BracketRules()
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            try:
                rules = _apply_parameter(rules, *line.split())
            except ValueError as error:
                raise UserError(f"{name}: line {number:,}: {error}") from None
    return rules


def _apply_parameter(rules: BracketRules, keyword: str, *values: str) -> BracketRules:
    """Return the rules changed by one line of a parameter file."""
    if keyword not in _PARAMETERS:
        raise ValueError(f'unknown parameter "{keyword}".{did_you_mean(keyword, [*_PARAMETERS])}')
    expected, change = _PARAMETERS[keyword]
    if len(values) != len(expected.split()):
        raise ValueError(f'{keyword} must be followed by {expected}, found "{" ".join(values)}".')
    return change(rules, *values)


def _append_to_field(field: str) -> Callable[..., BracketRules]:
    """Return a function that appends a label, or a pair, to a field."""

    def change(rules: BracketRules, *values: str) -> BracketRules:
        more: dict[str, Any] = {field: (*getattr(rules, field), values if len(values) > 1 else values[0])}
        return replace(rules, **more)

    return change


def _set_number_field(field: str, kind: Callable[[int], int] = int) -> Callable[..., BracketRules]:
    """Return a function that sets a field to a number."""

    def change(rules: BracketRules, value: str) -> BracketRules:
        if not value.isdecimal():
            raise ValueError(f'expected a whole number, found "{value}".')
        setting: dict[str, Any] = {field: kind(int(value))}
        return replace(rules, **setting)

    return change


_PARAMETERS: dict[str, tuple[str, Callable[..., BracketRules]]] = {
    "DEBUG": ("NUMBER", lambda rules, _: rules),  # EVALB's verbosity; `--sentences` replaces it here
    "MAX_ERROR": ("NUMBER", _set_number_field("most_errors")),
    "CUTOFF_LEN": ("NUMBER", _set_number_field("cutoff")),
    "LABELED": ("NUMBER", _set_number_field("labelled", bool)),
    "DELETE_LABEL": ("LABEL", _append_to_field("deleted")),
    "DELETE_LABEL_FOR_LENGTH": ("LABEL", _append_to_field("deleted_for_length")),
    "QUOTE_LABEL": ("LABEL", _append_to_field("quotes")),
    "EQ_LABEL": ("LABEL LABEL", _append_to_field("equal_labels")),
    "EQ_WORD": ("WORD WORD", _append_to_field("equal_words")),
}


_FUNCTION_TAG = re.compile("[-=].*", re.DOTALL)  # NP-SBJ-1 and NP=2 are NP
_QUOTATION_MARKS = ("'", '"', "/")
_LEAF = re.compile(r"\(([^()\s]*)\s+[^()\s]+\)", re.ASCII)


@dataclass
class Bracket:
    """A bracket around the words from `start` up to, but excluding, `end`."""

    label: str
    start: int
    end: int = -1


@dataclass
class _Quote:
    """A word that may be an apostrophe or a quotation mark, with its position even if it was deleted."""

    tag: str
    word: str
    index: int  # how many words stand before it
    bracket: int  # how many brackets were opened before it
    around: list[Bracket]  # those that are still open


@dataclass
class _SentenceSpans:
    """A sentence without its ignored words; deleted quotation marks can be restored."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    brackets: list[Bracket] = field(default_factory=list)  # in the order of their opening, empty ones included
    quotes: list[_Quote] = field(default_factory=list)
    length: int = 0  # in words, including ignored ones
    fault: str | None = None  # the error if the brackets are malformed

    def scored_brackets(self, rules: BracketRules) -> list[Bracket]:
        """Return the brackets to score, without function tags: not empty, not deleted."""
        stripped = [
            Bracket(_FUNCTION_TAG.sub("", bracket.label), bracket.start, bracket.end)
            for bracket in self.brackets
            if bracket.start < bracket.end
        ]
        return [bracket for bracket in stripped if bracket.label not in rules.deleted_brackets]


def _read_spans(text: str, rules: BracketRules) -> _SentenceSpans:
    """Read the trees of one line; several trees form one sentence."""
    spans = _SentenceSpans()
    open_brackets: list[Bracket] = []
    try:
        for event in read_events([text]):
            if event.kind == "leaf":
                _add_word(spans, event, open_brackets, rules)
            elif event.kind == "open":
                open_brackets.append(Bracket(event.label, start=len(spans.words)))
                spans.brackets.append(open_brackets[-1])
            else:
                open_brackets.pop().end = len(spans.words)
    except MalformedTreeError as error:
        return _SentenceSpans(words=_malformed_words(text, rules), fault=error.reason)
    return spans


def _add_word(spans: _SentenceSpans, leaf: TreeEvent, around: list[Bracket], rules: BracketRules) -> None:
    """Add a word unless its label is ignored."""
    spans.length += leaf.label not in rules.deleted_for_length
    if leaf.label in rules.quotes and leaf.word in _QUOTATION_MARKS:
        quote = _Quote(leaf.label, leaf.word, len(spans.words), len(spans.brackets), list(around))
        spans.quotes.append(quote)
    if leaf.label not in rules.deleted:
        spans.words.append(leaf.word)
        spans.tags.append(leaf.label)


def _malformed_words(text: str, rules: BracketRules) -> list[str]:
    """Return the words that can be recognised in a line with malformed brackets."""
    return [leaf[0] for leaf in _LEAF.finditer(text) if leaf[1] not in rules.deleted]


def _restore_quotes(hypothesis: _SentenceSpans, reference: _SentenceSpans, rules: BracketRules) -> None:
    """Restore quotation marks that were deleted on one side because an apostrophe was mistagged.

    The order and the positions are those of EVALB, also for several adjacent marks.
    """
    for number, mark in enumerate(hypothesis.quotes):
        index = mark.index
        for other_number, other in enumerate(reference.quotes):
            if other.index == index and other.tag != mark.tag:
                if other.tag in rules.deleted and mark.tag not in rules.deleted:
                    _restore_quote(reference, other_number)
                elif mark.tag in rules.deleted and other.tag not in rules.deleted:
                    _restore_quote(hypothesis, number)


def _restore_quote(side: _SentenceSpans, number: int) -> None:
    """Insert a deleted quotation mark, and shift the brackets after it and the ends of those around it."""
    mark = side.quotes[number]
    side.words.insert(mark.index, mark.word)
    side.tags.insert(mark.index, mark.tag)
    for bracket in side.brackets[mark.bracket :]:
        bracket.start += 1
        bracket.end += 1
    for bracket in mark.around:
        bracket.end += 1
    for later in side.quotes[number:]:
        later.index += 1


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
class BracketScores:
    """The scores of a set of trees: overall, for sentences up to the cut-off, and the counts of each sentence."""

    overall: BracketSummary
    short: BracketSummary
    sentences: tuple[SentenceCounts, ...]
    rules: BracketRules

    def __iter__(self) -> Iterator[Score]:
        overall = self.overall
        unscored = f" ({overall.sentences - overall.scored:,} of {overall.sentences:,} not scored)"
        rules = str(self.rules) + (unscored if overall.scored < overall.sentences else "")
        for name in ("f1", "precision", "recall", "exact_match", "no_crossing", "tagging_accuracy"):
            yield Score(name.replace("_", " ").replace("f1", "F1"), getattr(overall, name), signature=rules)

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
        _compare_sentence(_read_spans(hypothesis, rules), _reference_spans(number, reference, rules), rules)
        for number, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True), start=1)
    )
    short = [sentence for sentence in counts if sentence.length <= rules.cutoff]
    return BracketScores(_summarise(counts), _summarise(short), counts, rules)


def _reference_spans(number: int, text: str, rules: BracketRules) -> _SentenceSpans:
    """Read a reference; a malformed one raises."""
    reference = _read_spans(text, rules)
    if reference.fault:
        raise UserError(f"Reference {number:,}: {reference.fault}")
    return reference


def _compare_sentence(hypothesis: _SentenceSpans, reference: _SentenceSpans, rules: BracketRules) -> SentenceCounts:
    """Count matches in one sentence, if both sides have the same words."""
    if not hypothesis.words:
        return SentenceCounts("skipped", reference.length, why=hypothesis.fault or "it has no scored words.")
    if len(hypothesis.words) != len(reference.words):
        _restore_quotes(hypothesis, reference, rules)
    error = hypothesis.fault or _word_difference(hypothesis.words, reference.words, rules)
    if error:
        return SentenceCounts("error", reference.length, why=error)
    hypothesis_brackets, reference_brackets = hypothesis.scored_brackets(rules), reference.scored_brackets(rules)
    return SentenceCounts(
        "scored",
        reference.length,
        matched=_count_matches(hypothesis_brackets, reference_brackets, rules),
        in_reference=len(reference_brackets),
        in_hypothesis=len(hypothesis_brackets),
        crossing=_count_crossings(hypothesis_brackets, reference_brackets),
        words=len(reference.words),
        right_tags=sum(map(rules.labels_match, hypothesis.tags, reference.tags)),
    )


def _word_difference(words: Sequence[str], reference: Sequence[str], rules: BracketRules) -> str | None:
    """Return how the words of two trees differ, or None."""
    if len(words) != len(reference):
        return f"it has {len(words):,} scored words, but the reference has {len(reference):,}."
    for number, (word, expected) in enumerate(zip(words, reference, strict=True), start=1):
        if not rules.words_match(word, expected):
            return f'word {number:,} is "{word}", but the reference has "{expected}".'
    return None


def _count_matches(ours: Sequence[Bracket], theirs: Sequence[Bracket], rules: BracketRules) -> int:
    """Count the brackets of the reference that match a bracket of the hypothesis, each at most once."""
    unmatched = defaultdict(list)
    for bracket in ours:
        unmatched[bracket.start, bracket.end].append(bracket.label)
    matches = 0
    for bracket in theirs:
        labels = unmatched[bracket.start, bracket.end]
        # The first match, as in EVALB: equality is not transitive, so the order matters.
        partner = next(
            (label for label in labels if not rules.labelled or rules.labels_match(bracket.label, label)), None
        )
        if partner is not None:
            labels.remove(partner)
            matches += 1
    return matches


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
