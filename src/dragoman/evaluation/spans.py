"""The words, tags and brackets of a sentence as a bracket scorer counts them: labelled spans of words."""

import re
from dataclasses import dataclass, field

from dragoman.evaluation.bracket_rules import BracketRules
from dragoman.evaluation.trees import MalformedTreeError, TreeEvent, read_events

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
class SentenceSpans:
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


def read_spans(text: str, rules: BracketRules) -> SentenceSpans:
    """Read the trees of one line; several trees form one sentence."""
    found = SentenceSpans()
    around: list[Bracket] = []
    try:
        for event in read_events([text]):
            if event.kind == "leaf":
                _add_word(found, event, around, rules)
            elif event.kind == "open":
                around.append(Bracket(event.label, start=len(found.words)))
                found.brackets.append(around[-1])
            else:
                around.pop().end = len(found.words)
    except MalformedTreeError as error:
        return SentenceSpans(words=_malformed_words(text, rules), fault=error.reason)
    return found


def _add_word(found: SentenceSpans, leaf: TreeEvent, around: list[Bracket], rules: BracketRules) -> None:
    """Add a word unless its label is ignored."""
    found.length += leaf.label not in rules.deleted_for_length
    if leaf.label in rules.quotes and leaf.word in _QUOTATION_MARKS:
        quote = _Quote(leaf.label, leaf.word, len(found.words), len(found.brackets), list(around))
        found.quotes.append(quote)
    if leaf.label not in rules.deleted:
        found.words.append(leaf.word)
        found.tags.append(leaf.label)


def _malformed_words(text: str, rules: BracketRules) -> list[str]:
    """Return the words that can be recognised in a line with malformed brackets."""
    return [leaf[0] for leaf in _LEAF.finditer(text) if leaf[1] not in rules.deleted]


def restore_quotes(hypothesis: SentenceSpans, reference: SentenceSpans, rules: BracketRules) -> None:
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


def _restore_quote(side: SentenceSpans, number: int) -> None:
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
