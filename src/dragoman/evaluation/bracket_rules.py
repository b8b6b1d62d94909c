"""What a bracket scorer overlooks: labels that do not count, labels and words that count as equal, limits.

The rules are those of EVALB's parameter files (`COLLINS.prm` and its kin), which `read_rules` reads.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from dragoman.errors import UserError, did_you_mean

_SymbolPairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BracketRules:
    """How brackets are compared; the defaults are EVALB's when it is given no file: nothing is overlooked."""

    labelled: bool = True  # or else only the extent of a bracket counts
    deleted: tuple[str, ...] = ()  # a word so labelled is left out; a bracket so labelled is, what is in it stays
    deleted_for_length: tuple[str, ...] = ()  # words so labelled do not count when a sentence is measured
    equal_labels: _SymbolPairs = ()
    equal_words: _SymbolPairs = ()
    quotes: tuple[str, ...] = ()  # tags that are easily mistaken for each other at a quotation mark
    cutoff: int = 40  # sentences up to so many words are also scored apart
    most_errors: int = 10  # more, and the files do not belong together

    def labels_match(self, label: str, other: str) -> bool:
        """Say whether two labels count as equal; this is not transitive."""
        return label == other or (label, other) in self.label_pairs

    def words_match(self, word: str, other: str) -> bool:
        """Say whether two words count as equal."""
        return word == other or (word, other) in self.word_pairs

    @cached_property
    def label_pairs(self) -> frozenset[tuple[str, str]]:
        """Labels that are equal, both ways round."""
        return _symmetric_pairs(self.equal_labels)

    @cached_property
    def word_pairs(self) -> frozenset[tuple[str, str]]:
        """Words that are equal, both ways round."""
        return _symmetric_pairs(self.equal_words)

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


def _symmetric_pairs(pairs: _SymbolPairs) -> frozenset[tuple[str, str]]:
    """Return pairs together with their mirror images."""
    return frozenset(pairs) | {(other, one) for one, other in pairs}


# What nearly all figures for the Penn Treebank were made with (COLLINS.prm): punctuation does not count, and a particle
# may be taken for an adverb phrase.
COLLINS = BracketRules(
    deleted=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    deleted_for_length=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)


def read_rules(lines: Iterable[str], name: str) -> BracketRules:
    """Read a parameter file of EVALB's; `name` is the file's, for messages."""
    rules = BracketRules()
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            try:
                rules = _apply_parameter(rules, *line.split())
            except ValueError as error:
                raise UserError(f"{name}: line {number:,}: {error}") from None
    return rules


def _apply_parameter(rules: BracketRules, keyword: str, *values: str) -> BracketRules:
    """Return the rules with what one line of a parameter file says."""
    if keyword not in _PARAMETERS:
        raise ValueError(f'there is no parameter "{keyword}".{did_you_mean(keyword, [*_PARAMETERS])}')
    expected, change = _PARAMETERS[keyword]
    if len(values) != len(expected.split()):
        raise ValueError(f'{keyword} needs {expected} after it, found "{" ".join(values)}".')
    return change(rules, *values)


def _append_to_field(field: str) -> Callable[..., BracketRules]:
    """Make a function that adds a label, or a pair, to a field."""

    def change(rules: BracketRules, *values: str) -> BracketRules:
        more: dict[str, Any] = {field: (*getattr(rules, field), values if len(values) > 1 else values[0])}
        return replace(rules, **more)

    return change


def _set_number_field(field: str, kind: Callable[[int], int] = int) -> Callable[..., BracketRules]:
    """Make a function that sets a field to a number."""

    def change(rules: BracketRules, value: str) -> BracketRules:
        if not value.isdecimal():
            raise ValueError(f'expected a whole number, found "{value}".')
        setting: dict[str, Any] = {field: kind(int(value))}
        return replace(rules, **setting)

    return change


_PARAMETERS: dict[str, tuple[str, Callable[..., BracketRules]]] = {
    "DEBUG": ("NUMBER", lambda rules, _: rules),  # what EVALB prints beside the scores; `--sentences` does it here
    "MAX_ERROR": ("NUMBER", _set_number_field("most_errors")),
    "CUTOFF_LEN": ("NUMBER", _set_number_field("cutoff")),
    "LABELED": ("NUMBER", _set_number_field("labelled", bool)),
    "DELETE_LABEL": ("LABEL", _append_to_field("deleted")),
    "DELETE_LABEL_FOR_LENGTH": ("LABEL", _append_to_field("deleted_for_length")),
    "QUOTE_LABEL": ("LABEL", _append_to_field("quotes")),
    "EQ_LABEL": ("LABEL LABEL", _append_to_field("equal_labels")),
    "EQ_WORD": ("WORD WORD", _append_to_field("equal_words")),
}
