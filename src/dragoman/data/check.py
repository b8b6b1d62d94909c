"""Looking a corpus over before an hour is spent on it: what is odd, how often, and where.

One pass, in memory of a few bytes a line. Nothing is changed, and only what cannot be read as pairs is an error.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from dragoman.data.corpus import Corpus
from dragoman.data.split import pair_hash
from dragoman.errors import UserError

Severity = Literal["error", "warning", "note"]
Profile = Counter[str]

EXAMPLES = 3
EXAMPLE_LENGTH = 60
LARGEST_RATIO = 9
LONG_LINE = 1000  # characters
PROFILE_LINES = 2000
PROFILE_CHARACTERS = 1000  # of a line
# How much better the crossed comparison must fit. Two halves of one text differ by less.
MARGIN = 0.1
OFTEN = 0.2  # share of pairs from which on a sign is no accident any more

# Also the directional overrides, zero-width space and inner byte-order marks; joiners have their use in many scripts.
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")


@dataclass(frozen=True)
class Finding:
    """Something odd about the data, how often it occurs, and where first."""

    severity: Severity
    what: str
    count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """What was found, the worst first."""

    findings: tuple[Finding, ...]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        return "\n".join(line for finding in self.findings for line in written(finding))

    @property
    def has_errors(self) -> bool:
        """Whether this data cannot be trained on."""
        return has_errors(self.findings)


@dataclass
class Sign:
    """Something to look for in every pair, with what it has found so far."""

    severity: Severity
    what: str
    applies: Callable[[str, str], bool]
    when_often: str | None = None  # said instead where it is no accident; "": nothing is
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def look_at(self, number: int, source: str, target: str) -> None:
        """Count the pair if the sign applies to it."""
        if self.applies(source, target):
            self.count += 1
            if len(self.examples) < EXAMPLES:
                self.examples.append(f"line {number:,}: {shortened(source)} | {shortened(target)}")

    def finding(self, name: str, total: int) -> Finding | None:
        """Return what was found among so many pairs of the text of this name."""
        what = self.what if self.when_often is None or self.count <= OFTEN * total else self.when_often
        if not self.count or not what:
            return None
        return Finding(self.severity, f"{name}: {what}", self.count, tuple(self.examples))


class Seen:
    """Remembers texts by their hashes."""

    def __init__(self, *, sources_only: bool = False) -> None:
        self.sources_only = sources_only
        self.hashes: set[int] = set()

    def has(self, source: str, target: str) -> bool:
        """Tell whether the pair was met before."""
        return self.hash(source, target) in self.hashes

    def has_then_add(self, source: str, target: str) -> bool:
        """Tell whether the pair was met before, and remember it."""
        before = len(self.hashes)
        self.hashes.add(self.hash(source, target))
        return len(self.hashes) == before

    def hash(self, source: str, target: str) -> int:
        """Return the number by which a text is remembered."""
        return pair_hash(0, source, "" if self.sources_only else target)


def check(corpus: Corpus, valid: Corpus | None = None) -> Report:
    """Look over training files, and validation files beside them."""
    pairs, sources = Seen(), Seen(sources_only=True)
    findings = checked(corpus, "training text", [*usual_signs(), *repetition_signs(pairs, sources)])
    if valid is not None:
        findings += checked(valid, "validation text", [*usual_signs(), *overlap_signs(pairs, sources)])
        findings += [] if has_errors(findings) else swapped(corpus, valid)
    order: list[Severity] = ["error", "warning", "note"]
    return Report(tuple(sorted(findings, key=lambda finding: order.index(finding.severity))))


def usual_signs() -> list[Sign]:
    """Return what is looked for in any parallel text."""
    return [
        Sign(
            "warning",
            "source and target are the same",
            lambda source, target: source == target,
            when_often="source and target are the same; was one file given twice?",
        ),
        Sign("warning", f"one side has over {LARGEST_RATIO} times the characters of the other", ratio_of_characters),
        Sign(
            "warning",
            f"one side has over {LARGEST_RATIO} times the words of the other",
            ratio_of_words,
            when_often="",  # one of the languages is written without spaces
        ),
        Sign("warning", "looks like UTF-8 that was read as Windows-1252 (\u00c3\u00a9 for é)", either(is_mojibake)),
        Sign("warning", "replacement characters (U+FFFD), left by a conversion that failed", either(is_broken)),
        Sign("note", "control or invisible characters", either(has_invisible)),
        Sign("note", f"lines of over {LONG_LINE:,} characters", either(is_long)),
    ]


def repetition_signs(pairs: Seen, sources: Seen) -> list[Sign]:
    """Return what is looked for within the training text."""
    return [
        Sign("warning", "pairs that occurred before", pairs.has_then_add),
        Sign("note", "sources that occurred before, with any target", sources.has_then_add),
    ]


def overlap_signs(pairs: Seen, sources: Seen) -> list[Sign]:
    """Return what is looked for in the validation text, knowing the training text."""
    return [
        Sign("warning", "pairs that are in the training text too, so scores will flatter", pairs.has),
        Sign("note", "sources that are in the training text too, with any target", sources.has),
    ]


def checked(corpus: Corpus, name: str, signs: list[Sign]) -> list[Finding]:
    """Look at every pair for every sign; a text that cannot be read so is an error by itself."""
    try:
        total = corpus.check_counts()
    except UserError as error:
        return [Finding("error", str(error), 1)]
    empty = Sign("warning", "empty lines; their pairs are left out of training", is_empty)
    for number, (source, target) in enumerate(corpus.pairs(), 1):
        if is_empty(source, target):
            empty.look_at(number, source, target)
            continue
        for sign in signs:
            sign.look_at(number, source, target)
    summary = Finding("note", f"{name}: {total:,} pairs in {corpus}", total)
    notices = [Finding("note", notice, 1) for notice in corpus.notices()]
    found = [sign.finding(name, total) for sign in [empty, *signs]]
    return [summary, *notices, *(finding for finding in found if finding)]


def swapped(corpus: Corpus, valid: Corpus) -> list[Finding]:
    """Say if the validation source reads like the training target, and the other way round."""
    training = [profile(side) for side in zip(*islice(corpus.pairs(), PROFILE_LINES), strict=True)]
    validation = [profile(side) for side in zip(*islice(valid.pairs(), PROFILE_LINES), strict=True)]
    if not sides_look_swapped(training[0], training[1], validation[0], validation[1]):
        return []
    what = f"{valid}: source and target look swapped, compared with {corpus}"
    return [Finding("warning", what, valid.check_counts())]


def profile(lines: Iterable[str]) -> Profile:
    """Count the trigrams of a text, by which languages are told apart without knowing them."""
    counts = Profile()
    for line in lines:
        text = f" {line[:PROFILE_CHARACTERS].lower()} "
        counts.update(text[start : start + 3] for start in range(len(text) - 2))
    return counts


def similarity(one: Profile, other: Profile) -> float:
    """Return the cosine of two profiles: 1 for the same text, near 0 for other scripts."""
    product = sum(count * other[trigram] for trigram, count in one.items())
    size = math.sqrt(sum(count**2 for count in one.values()) * sum(count**2 for count in other.values()))
    return product / size if size else 0.0


def sides_look_swapped(source: Profile, target: Profile, other_source: Profile, other_target: Profile) -> bool:
    """Tell whether another text's source is like our target, and its target like our source."""
    straight = similarity(source, other_source) + similarity(target, other_target)
    crossed = similarity(source, other_target) + similarity(target, other_source)
    return crossed > straight + MARGIN


def has_errors(findings: Iterable[Finding]) -> bool:
    """Tell whether a text could not be read as pairs."""
    return any(finding.severity == "error" for finding in findings)


def is_empty(source: str, target: str) -> bool:
    """Tell whether a side has nothing but white space."""
    return not source.strip() or not target.strip()


def ratio_of_characters(source: str, target: str) -> bool:
    """Tell whether the sides differ so much in characters that they can hardly be translations."""
    return too_different(len(source), len(target))


def ratio_of_words(source: str, target: str) -> bool:
    """Tell whether the sides differ so much in words."""
    return too_different(source.count(" ") + 1, target.count(" ") + 1)


def too_different(one: int, other: int) -> bool:
    """Tell whether one number is many times the other."""
    return one > LARGEST_RATIO * other or other > LARGEST_RATIO * one


def either(test: Callable[[str], bool]) -> Callable[[str, str], bool]:
    """Make of a test for a line one for a pair."""
    return lambda source, target: test(source) or test(target)


def is_mojibake(text: str) -> bool:
    """Tell whether the text makes sense as UTF-8 once it is written as Windows-1252 again."""
    if text.isascii():
        return False
    try:
        text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return False
    return True


def is_broken(text: str) -> bool:
    """Tell whether something was lost in a conversion."""
    return "\ufffd" in text


def has_invisible(text: str) -> bool:
    """Tell whether the text holds characters that cannot be seen and hardly are meant."""
    return INVISIBLE.search(text) is not None


def is_long(text: str) -> bool:
    """Tell whether the line is more than a sentence or two."""
    return len(text) > LONG_LINE


def shortened(text: str) -> str:
    """Return the beginning of a text, safe to print."""
    start = text if len(text) <= EXAMPLE_LENGTH else text[: EXAMPLE_LENGTH - 1] + "…"
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in start)


def written(finding: Finding) -> list[str]:
    """Return a finding as lines of plain text."""
    count = f"{finding.count:,} × " if finding.examples else ""
    return [
        f"{finding.severity + ':':<9}{count}{finding.what}",
        *(f"{'':<11}{example}" for example in finding.examples),
    ]
