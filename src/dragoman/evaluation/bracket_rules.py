"""Rules of bracket scoring: labels that are ignored, labels and words that count as equal, limits.

The rules are those of EVALB's parameter files, such as `COLLINS.prm`; `read_rules` reads them.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from dragoman.errors import UserError, did_you_mean

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
            *(f"{one} = {other}" for one, other in (*self.equal_labels, *self.equal_words)),
            f"quotes as {' '.join(self.quotes)}" if self.quotes else "",
        ]
        return "; ".join(filter(None, parts))

    def to_json(self) -> dict[str, Any]:
        """Return the rules as a JSON object."""
        return asdict(self)


def _symmetric_pairs(pairs: _SymbolPairs) -> frozenset[tuple[str, str]]:
    """Return pairs in both orders."""
    return frozenset(pairs) | {(other, one) for one, other in pairs}


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
