"""Checking a corpus before training: what is suspicious, how often, and where.

One pass. Duplicates are found by their hashes, which need about 170 bytes of memory per pair. Nothing is changed; only
files that cannot be read as pairs are an error.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, Self

from dragoman.data.corpus import AnyParallelCorpus
from dragoman.data.split import pair_hash
from dragoman.errors import UserError, format_count

Severity = Literal["error", "warning", "note"]
_TrigramCounts = Counter[str]

MAX_EXAMPLES = 3
_MAX_EXAMPLE_CHARACTERS = 60
_MAX_LENGTH_RATIO = 9
_LONG_LINE_CHARACTERS = 1000  # characters
_PROFILE_LINES = 2000
_PROFILE_CHARACTERS = 1000  # of a line
# How much better the sides must match crosswise. Two halves of one text differ by less.
_SWAP_MARGIN = 0.1
_FREQUENT_FRACTION = 0.2  # of the pairs; above it, a finding is not an accident

# Also directional overrides, zero-width spaces and inner byte-order marks; many scripts need joiners.
_INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)


@dataclass(frozen=True)
class Finding:
    """Something suspicious about the data, how often it occurs, and its first examples."""

    severity: Severity
    message: str
    count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataReport:
    """All findings, the most severe first."""

    findings: tuple[Finding, ...]

    @classmethod
    def from_findings(cls, findings: Iterable[Finding]) -> Self:
        """Make a report of findings in any order."""
        order: list[Severity] = ["error", "warning", "note"]
        return cls(tuple(sorted(findings, key=lambda finding: order.index(finding.severity))))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        return "\n".join(line for finding in self.findings for line in format_finding(finding))

    @property
    def verdict(self) -> str:
        """Whether the data can be used for training, in a sentence."""
        errors, warnings = (
            sum(finding.severity == severity for finding in self.findings) for severity in ("error", "warning")
        )
        warned = format_count(warnings, "warning")
        if errors:
            return f"{format_count(errors, 'error')}, {warned}: this data cannot be used for training."
        return f"No errors, {warned}." if warnings else "No errors, no warnings."

    @property
    def has_errors(self) -> bool:
        """Whether the data cannot be used for training."""
        return _has_errors(self.findings)


@dataclass
class _PairCheck:
    """A check of every pair, and its results so far."""

    severity: Severity
    message: str
    applies: Callable[[str, str], bool]
    message_if_frequent: str | None = None  # replaces the message if most pairs are affected; "": no finding
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def inspect(self, where: str, source: str, target: str) -> None:
        """Count a pair if the check applies to it."""
        if self.applies(source, target):
            self.count += 1
            if len(self.examples) < MAX_EXAMPLES:
                self.examples.append(f"{where}: {printable_excerpt(source)} | {printable_excerpt(target)}")

    def finding(self, name: str, total: int) -> Finding | None:
        """Return the result for a text of `total` pairs, or None if there is none."""
        is_frequent = self.count > _FREQUENT_FRACTION * total
        message = self.message_if_frequent if is_frequent and self.message_if_frequent is not None else self.message
        if not self.count or not message:
            return None
        return Finding(self.severity, f"{name}: {message}", self.count, tuple(self.examples))


class _SeenPairs:
    """A set of pairs, stored as hashes."""

    def __init__(self, *, sources_only: bool = False) -> None:
        self.sources_only = sources_only
        self.hashes: set[int] = set()

    def contains(self, source: str, target: str) -> bool:
        """Return whether a pair is in the set."""
        return self.hash(source, target) in self.hashes

    def contains_or_add(self, source: str, target: str) -> bool:
        """Return whether a pair is in the set, and add it."""
        before = len(self.hashes)
        self.hashes.add(self.hash(source, target))
        return len(self.hashes) == before

    def hash(self, source: str, target: str) -> int:
        """Return the hash of a pair, or of its source."""
        return pair_hash(0, source, "" if self.sources_only else target)


def check_corpus(corpus: AnyParallelCorpus, valid: AnyParallelCorpus | None = None) -> DataReport:
    """Check the training files and, if there are any, the validation files."""
    pairs, sources = _SeenPairs(), _SeenPairs(sources_only=True)
    findings = _run_checks(corpus, "training text", [*_common_checks(), *_duplicate_checks(pairs, sources)])
    if valid is not None:
        findings += _run_checks(valid, "validation text", [*_common_checks(), *_overlap_checks(pairs, sources)])
        findings += [] if _has_errors(findings) else _find_swapped_sides(corpus, valid)
    return DataReport.from_findings(findings)


def _common_checks() -> list[_PairCheck]:
    return [
        _PairCheck(
            "warning",
            "source and target are the same",
            lambda source, target: source == target,
            message_if_frequent="source and target are the same; was one file given twice?",
        ),
        _PairCheck(
            "warning",
            f"one side has more than {_MAX_LENGTH_RATIO} times as many characters as the other",
            _has_unlikely_character_ratio,
        ),
        _PairCheck(
            "warning",
            f"one side has more than {_MAX_LENGTH_RATIO} times as many words as the other",
            _has_unlikely_word_ratio,
            message_if_frequent="",  # then one of the languages is written without spaces
        ),
        _PairCheck(
            "warning", "looks like UTF-8 decoded as Windows-1252 (\u00c3\u00a9 for é)", _on_either_side(is_mojibake)
        ),
        _PairCheck(
            "warning",
            "replacement characters (U+FFFD) from a failed conversion",
            _on_either_side(has_replacement_character),
        ),
        _PairCheck("note", "control or invisible characters", _on_either_side(has_invisible_characters)),
        _PairCheck("note", f"lines with more than {_LONG_LINE_CHARACTERS:,} characters", _on_either_side(_is_long)),
    ]


def _duplicate_checks(pairs: _SeenPairs, sources: _SeenPairs) -> list[_PairCheck]:
    return [
        _PairCheck("warning", "duplicate pairs", pairs.contains_or_add),
        _PairCheck("note", "duplicate sources, with the same or another target", sources.contains_or_add),
    ]


def _overlap_checks(pairs: _SeenPairs, sources: _SeenPairs) -> list[_PairCheck]:
    return [
        _PairCheck("warning", "pairs that are also in the training text, so scores will be too high", pairs.contains),
        _PairCheck(
            "note", "sources that are also in the training text, with the same or another target", sources.contains
        ),
    ]


def _run_checks(corpus: AnyParallelCorpus, name: str, checks: list[_PairCheck]) -> list[Finding]:
    # A text that cannot be read as pairs is itself a finding.
    try:
        total = corpus.count_pairs()
    except UserError as error:
        return [Finding("error", str(error), 1)]
    empty = _PairCheck("warning", "empty lines; their pairs are not used for training", _is_empty)
    for where, source, target in _located_pairs(corpus):
        if _is_empty(source, target):
            empty.inspect(where, source, target)
            continue
        for check in checks:
            check.inspect(where, source, target)
    summary = Finding("note", f"{name}: {format_count(total, 'pair')} in {corpus}", total)
    notices = [Finding("note", notice, 1) for notice in corpus.notices()]
    findings = [check.finding(name, total) for check in [empty, *checks]]
    return [summary, *notices, *(finding for finding in findings if finding)]


def _located_pairs(corpus: AnyParallelCorpus) -> Iterator[tuple[str, str, str]]:
    for part in corpus.parts:
        file = f"{part.files[0]}, " if len(corpus.parts) > 1 else ""
        for number, source, target in part.entries():
            yield f"{file}line {number:,}", source, target


def _find_swapped_sides(corpus: AnyParallelCorpus, valid: AnyParallelCorpus) -> list[Finding]:
    training = [_count_trigrams(side) for side in zip(*islice(corpus.pairs(), _PROFILE_LINES), strict=True)]
    validation = [_count_trigrams(side) for side in zip(*islice(valid.pairs(), _PROFILE_LINES), strict=True)]
    if not _are_sides_swapped(training[0], training[1], validation[0], validation[1]):
        return []
    message = f"{valid}: source and target seem to be swapped compared with {corpus}"
    return [Finding("warning", message, valid.count_pairs())]


def _count_trigrams(lines: Iterable[str]) -> _TrigramCounts:
    # Languages can be distinguished by their trigrams without being known.
    counts = _TrigramCounts()
    for line in lines:
        text = f" {line[:_PROFILE_CHARACTERS].lower()} "
        counts.update(text[start : start + 3] for start in range(len(text) - 2))
    return counts


def _cosine_similarity(one: _TrigramCounts, other: _TrigramCounts) -> float:
    # 1 for the same text, near 0 for different scripts.
    product = sum(count * other[trigram] for trigram, count in one.items())
    size = math.sqrt(sum(count**2 for count in one.values()) * sum(count**2 for count in other.values()))
    return product / size if size else 0.0


def _are_sides_swapped(
    source: _TrigramCounts, target: _TrigramCounts, other_source: _TrigramCounts, other_target: _TrigramCounts
) -> bool:
    straight = _cosine_similarity(source, other_source) + _cosine_similarity(target, other_target)
    crossed = _cosine_similarity(source, other_target) + _cosine_similarity(target, other_source)
    return crossed > straight + _SWAP_MARGIN


def _has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _is_empty(source: str, target: str) -> bool:
    return not source.strip() or not target.strip()


def _has_unlikely_character_ratio(source: str, target: str) -> bool:
    return _exceeds_max_ratio(len(source), len(target))


def _has_unlikely_word_ratio(source: str, target: str) -> bool:
    return _exceeds_max_ratio(source.count(" ") + 1, target.count(" ") + 1)


def _exceeds_max_ratio(one: int, other: int) -> bool:
    return one > _MAX_LENGTH_RATIO * other or other > _MAX_LENGTH_RATIO * one


def _on_either_side(test: Callable[[str], bool]) -> Callable[[str, str], bool]:
    return lambda source, target: test(source) or test(target)


def is_mojibake(text: str) -> bool:
    """Return whether a text looks like UTF-8 that was decoded as Windows-1252."""
    # Encoded as Windows-1252 again, such text is valid UTF-8.
    if text.isascii():
        return False
    try:
        text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return False
    return True


def has_replacement_character(text: str) -> bool:
    """Return whether a conversion of a text has failed."""
    return "\ufffd" in text


def has_invisible_characters(text: str) -> bool:
    """Return whether a text has control characters, or others that are not seen."""
    return _INVISIBLE_CHARACTERS.search(text) is not None


def _is_long(text: str) -> bool:
    return len(text) > _LONG_LINE_CHARACTERS


def printable_excerpt(text: str) -> str:
    """Return the beginning of a text, with everything visible."""
    start = text if len(text) <= _MAX_EXAMPLE_CHARACTERS else text[: _MAX_EXAMPLE_CHARACTERS - 1] + "…"
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in start)


def format_finding(finding: Finding) -> list[str]:
    """Return a finding as lines of plain text."""
    count = f"{finding.count:,} × " if finding.examples else ""
    return [
        f"{finding.severity + ':':<9}{count}{finding.message}",
        *(f"{'':<11}{example}" for example in finding.examples),
    ]
