"""What a bracket scorer overlooks: labels that do not count, labels and words that count as equal, limits.

The rules are those of EVALB's parameter files (`COLLINS.prm` and its kin), which `read_rules` reads.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from dragoman.errors import UserError, nearest

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Rules:
    """How brackets are compared; the defaults are EVALB's when it is given no file: nothing is overlooked."""

    labelled: bool = True  # or else only the extent of a bracket counts
    deleted: tuple[str, ...] = ()  # a word so labelled is left out; a bracket so labelled is, what is in it stays
    deleted_for_length: tuple[str, ...] = ()  # words so labelled do not count when a sentence is measured
    equal_labels: Pairs = ()
    equal_words: Pairs = ()
    quotes: tuple[str, ...] = ()  # tags that are easily mistaken for each other at a quotation mark
    cutoff: int = 40  # sentences up to so many words are also scored apart
    most_errors: int = 10  # more, and the files do not belong together

    def alike(self, label: str, other: str) -> bool:
        """Say whether two labels count as equal; this is not transitive."""
        return label == other or (label, other) in self.label_pairs

    def same_word(self, word: str, other: str) -> bool:
        """Say whether two words count as equal."""
        return word == other or (word, other) in self.word_pairs

    @cached_property
    def label_pairs(self) -> frozenset[tuple[str, str]]:
        """Labels that are equal, both ways round."""
        return both_ways(self.equal_labels)

    @cached_property
    def word_pairs(self) -> frozenset[tuple[str, str]]:
        """Words that are equal, both ways round."""
        return both_ways(self.equal_words)

    @cached_property
    def deleted_brackets(self) -> frozenset[str]:
        """Labels of brackets that do not count: those named, and their equals. For words only those named are meant."""
        equals = (other for label, other in self.label_pairs if label in self.deleted)
        return frozenset([*self.deleted, *equals])

    def __str__(self) -> str:
        parts = [
            f"{'labelled' if self.labelled else 'unlabelled'} brackets",
            f"without {' '.join(self.deleted)}" if self.deleted else "",
            *(f"{one} = {other}" for one, other in (*self.equal_labels, *self.equal_words)),
            f"quotes as {' '.join(self.quotes)}" if self.quotes else "",
        ]
        return "; ".join(filter(None, parts))

    def to_json(self) -> dict[str, Any]:
        """Return the rules as plain dictionaries, strings and numbers."""
        return asdict(self)


def both_ways(pairs: Pairs) -> frozenset[tuple[str, str]]:
    """Return pairs together with their mirror images."""
    return frozenset(pairs) | {(other, one) for one, other in pairs}


# What nearly all figures for the Penn Treebank were made with (COLLINS.prm): punctuation does not count, and a particle
# may be taken for an adverb phrase.
COLLINS = Rules(
    deleted=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    deleted_for_length=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)


def read_rules(lines: Iterable[str], name: str) -> Rules:
    """Read a parameter file of EVALB's; `name` is the file's, for messages."""
    rules = Rules()
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            try:
                rules = changed(rules, *line.split())
            except ValueError as error:
                raise UserError(f"{name}: line {number:,}: {error}") from None
    return rules


def changed(rules: Rules, keyword: str, *values: str) -> Rules:
    """Return the rules with what one line of a parameter file says."""
    if keyword not in KEYWORDS:
        raise ValueError(f'there is no parameter "{keyword}".{nearest(keyword, [*KEYWORDS])}')
    expected, change = KEYWORDS[keyword]
    if len(values) != len(expected.split()):
        raise ValueError(f'{keyword} needs {expected} after it, found "{" ".join(values)}".')
    return change(rules, *values)


def one_more(field: str) -> Callable[..., Rules]:
    """Make a function that adds a label, or a pair, to a field."""

    def change(rules: Rules, *values: str) -> Rules:
        more: dict[str, Any] = {field: (*getattr(rules, field), values if len(values) > 1 else values[0])}
        return replace(rules, **more)

    return change


def number_of(field: str, kind: Callable[[int], int] = int) -> Callable[..., Rules]:
    """Make a function that sets a field to a number."""

    def change(rules: Rules, value: str) -> Rules:
        if not value.isdecimal():
            raise ValueError(f'expected a whole number, found "{value}".')
        setting: dict[str, Any] = {field: kind(int(value))}
        return replace(rules, **setting)

    return change


KEYWORDS: dict[str, tuple[str, Callable[..., Rules]]] = {
    "DEBUG": ("NUMBER", lambda rules, _: rules),  # what EVALB prints beside the scores; `--sentences` does it here
    "MAX_ERROR": ("NUMBER", number_of("most_errors")),
    "CUTOFF_LEN": ("NUMBER", number_of("cutoff")),
    "LABELED": ("NUMBER", number_of("labelled", bool)),
    "DELETE_LABEL": ("LABEL", one_more("deleted")),
    "DELETE_LABEL_FOR_LENGTH": ("LABEL", one_more("deleted_for_length")),
    "QUOTE_LABEL": ("LABEL", one_more("quotes")),
    "EQ_LABEL": ("LABEL LABEL", one_more("equal_labels")),
    "EQ_WORD": ("WORD WORD", one_more("equal_words")),
}
