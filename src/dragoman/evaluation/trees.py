"""Bracketed trees, as the Penn Treebank writes them: `(S (NP (DT the) (NN dog)) (VP (VBZ runs)))`.

Text is read as events (a bracket opens, a word in its own bracket, a bracket closes), from which a `Tree` is built, and
back. Labels and words are kept unchanged: function tags, `-LRB-`, `-NONE-`, an outer bracket without a label. No
function is recursive, so that trees of any depth can be read.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dragoman.errors import UserError

# The whitespace of C. A no-break space or a Unicode line separator is part of a word.
WHITESPACE = " \t\n\v\f\r"
_TOKEN = re.compile(rf"[()]|[^(){WHITESPACE}]+")
_MESSAGE_LENGTH = 40  # characters of a text that are quoted in a message


class TreeEvent(NamedTuple):
    """An event of reading a tree from left to right."""

    kind: Literal["open", "leaf", "close"]
    label: str = ""
    word: str = ""
    line_number: int = 0  # from 1; 0 if it was not read from a file


class MalformedTreeError(Exception):
    """Malformed brackets: the line number, from 1, and the reason."""

    def __init__(self, line_number: int, reason: str) -> None:
        super().__init__(reason)
        self.line_number = line_number
        self.reason = reason


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Tree:
    """A bracket: a label with either one word or child brackets. Trees are equal if they are written alike."""

    label: str
    children: tuple["Tree", ...] = ()
    word: str = ""

    def __post_init__(self) -> None:
        if bool(self.children) == bool(self.word):
            raise UserError(f'The bracket "{self.label}" must contain either one word or brackets, not both.')
        if self.word and not self.label:
            raise UserError(f'The word "{self.word}" has no label; expected, for example, (NN {self.word}).')
        _check_symbol(self.label)
        _check_symbol(self.word)

    @property
    def words(self) -> list[str]:
        """The words of the tree."""
        return [event.word for event in tree_events(self) if event.kind == "leaf"]

    def __str__(self) -> str:
        return _format_events(tree_events(self))

    def __repr__(self) -> str:
        return f"<Tree {self}>"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Tree) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


def _check_symbol(text: str) -> None:
    """Raise an error for a label or word that cannot be written: with a space or a bracket."""
    if re.search(rf"[{WHITESPACE}]", text):
        raise UserError(f'"{text}" contains a space; labels and words of a tree must not. Use "_" instead.')
    if "(" in text or ")" in text:
        raise UserError(f'"{text}" contains a bracket; write -LRB- for "(" and -RRB- for ")", as treebanks do.')


def read_tree(text: str) -> Tree:
    """Read one tree."""
    trees = list(read_trees([text], "The tree"))
    if len(trees) != 1:
        raise UserError(f'Expected one tree, found {len(trees)} in "{_shorten(text)}".')
    return trees[0]


def read_trees(lines: Iterable[str], name: str) -> Iterator[Tree]:
    """Yield the trees of a file, which may share a line or span several; `name` is for error messages."""
    try:
        yield from build_trees(read_events(lines))
    except MalformedTreeError as error:
        raise UserError(f"{name}: line {error.line_number:,}: {error.reason}") from None


def treebank_sentences(lines: Sequence[str], expected: int | None = None) -> list[tuple[int, str]]:
    """Return the sentences of a file with their first lines: one per line, unless trees span several lines.

    Malformed lines are returned unchanged. A line that lacks a bracket and a line with one too many could be read as
    one tree over both; `expected`, the number of sentences, resolves this.
    """
    one_a_line = list(enumerate(lines, start=1))
    if all(_find_tree_error(line) is None for line in lines):
        return one_a_line
    try:
        sentences = list(_multiline_trees(read_events(lines)))
    except MalformedTreeError:
        return one_a_line
    return sentences if expected in (None, len(sentences)) else one_a_line


def well_formed_treebank_sentences(lines: Sequence[str], name: str) -> list[tuple[int, str]]:
    """Return the sentences of a file like `treebank_sentences`, but raise an error for malformed ones."""
    sentences = treebank_sentences(lines)
    faults = [(number, fault) for number, text in sentences if (fault := _find_tree_error(text))]
    if 2 * len(faults) > len(lines):  # trees span several lines; read them together to find the error
        list(read_trees(lines, name))
    for number, fault in faults:
        raise UserError(f"{name}: line {number:,}: {fault}")
    return sentences


def _find_tree_error(text: str) -> str | None:
    """Return the error in the brackets of a text, or None; empty brackets are no error here."""
    try:
        for _ in read_events([text]):
            pass
    except MalformedTreeError as error:
        return error.reason
    return None


def _multiline_trees(row: Iterable[TreeEvent]) -> Iterator[tuple[int, str]]:
    """Yield each tree as one line, with its first line number."""
    tree: list[TreeEvent] = []
    depth = 0
    for event in row:
        tree.append(event)
        depth += {"open": 1, "leaf": 0, "close": -1}[event.kind]
        if depth == 0:
            yield tree[0].line_number, _format_events(tree)
            tree = []


def read_events(lines: Iterable[str]) -> Iterator[TreeEvent]:
    """Yield the events of a text; brackets must balance, and each word must have its own bracket."""
    open_brackets: list[TreeEvent] = []
    inside: list[str] | None = None  # the tokens since the last "(", until the kind of bracket is known
    start = 0
    for line_number, token in _tree_tokens(lines):
        if token == "(":
            if inside is not None:
                open_brackets.append(_opening_event(inside, start))
                yield open_brackets[-1]
            inside, start = [], line_number
        elif token == ")" and inside is not None:
            yield from _leaf_events(inside, start)
            inside = None
        elif token == ")":
            if not open_brackets:
                raise MalformedTreeError(line_number, 'unmatched ")". Remove it, or add the missing "(" before it.')
            yield TreeEvent("close", open_brackets.pop().label, line_number=line_number)
        elif inside is None:
            raise MalformedTreeError(line_number, _stray_word_message(token, open_brackets))
        else:
            inside.append(token)
    if inside is not None:
        open_brackets.append(TreeEvent("open", line_number=start))
    if open_brackets:
        raise MalformedTreeError(open_brackets[0].line_number, _unclosed_message(len(open_brackets)))


def _tree_tokens(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield brackets and words, each with its line."""
    for number, line in enumerate(lines, start=1):
        for token in _TOKEN.findall(line):
            yield number, token


def _opening_event(inside: Sequence[str], line_number: int) -> TreeEvent:
    """Return the event of a bracket that contains brackets."""
    if len(inside) > 1:
        raise MalformedTreeError(line_number, _stray_word_message(inside[1], [TreeEvent("open", inside[0])]))
    return TreeEvent("open", "".join(inside), line_number=line_number)


def _leaf_events(inside: Sequence[str], line_number: int) -> Iterator[TreeEvent]:
    """Yield the events of a bracket that contains no brackets: a word with its label, or nothing."""
    if len(inside) > 2:
        whole = _shorten(" ".join(inside))
        raise MalformedTreeError(
            line_number,
            f'the bracket "({whole})" contains {len(inside) - 1} words, expected one. Give each word its own '
            f'bracket, or join them with "_".',
        )
    if len(inside) == 2:
        yield TreeEvent("leaf", inside[0], inside[1], line_number)
    else:
        yield TreeEvent("open", "".join(inside), line_number=line_number)
        yield TreeEvent("close", "".join(inside), line_number=line_number)


def _stray_word_message(token: str, open_brackets: Sequence[TreeEvent]) -> str:
    """Return the error for a word outside of a bracket of its own."""
    position = (
        f"is next to brackets in ({open_brackets[-1].label} …)" if open_brackets else "is outside of all brackets"
    )
    return f'"{_shorten(token)}" {position}. Give it its own bracket and label, for example (NN dog).'


def _unclosed_message(count: int) -> str:
    """Return the error for missing closing brackets."""
    missing = 'a ")" is' if count == 1 else f'{count:,} ")" are'
    return f"the tree that begins here is not closed; {missing} missing before the end."


def _shorten(text: str) -> str:
    """Return a text, or its beginning, for a message."""
    return text if len(text) <= _MESSAGE_LENGTH else f"{text[:_MESSAGE_LENGTH]}…"


def build_trees(row: Iterable[TreeEvent]) -> Iterator[Tree]:
    """Build trees from events; an empty bracket raises an error."""
    unfinished: list[list[Tree]] = []  # for each open bracket, its children so far
    for event in row:
        if event.kind == "open":
            unfinished.append([])
            continue
        if event.kind == "close" and not unfinished[-1]:
            raise MalformedTreeError(event.line_number, _empty_bracket_message(event.label))
        children = tuple(unfinished.pop()) if event.kind == "close" else ()
        tree = Tree(event.label, children, event.word)
        if unfinished:
            unfinished[-1].append(tree)
        else:
            yield tree


def _empty_bracket_message(label: str) -> str:
    """Return the error for an empty bracket."""
    return f'the bracket "({label})" is empty. Remove it, or write a label and a word, for example (NN dog).'


def tree_events(tree: Tree) -> Iterator[TreeEvent]:
    """Yield the events of a tree."""
    ahead: list[Tree | TreeEvent] = [tree]
    while ahead:
        item = ahead.pop()
        if isinstance(item, TreeEvent):
            yield item
        elif item.word:
            yield TreeEvent("leaf", item.label, item.word)
        else:
            yield TreeEvent("open", item.label)
            ahead.append(TreeEvent("close", item.label))
            ahead.extend(reversed(item.children))


def _format_events(row: Iterable[TreeEvent]) -> str:
    """Return events as brackets on one line."""
    forms = {"open": " ({0.label}", "leaf": " ({0.label} {0.word})", "close": ")"}
    return "".join(forms[event.kind].format(event) for event in row)[1:]


def indent_tree(tree: Tree) -> str:
    """Return a tree over several indented lines; brackets that contain only words stay on one line."""
    parts: list[str] = []
    flat: list[bool] = []  # for each open bracket, whether it contains only words and stays on one line
    ahead: list[Tree | str] = [tree]
    while ahead:
        item = ahead.pop()
        if isinstance(item, str):
            parts.append(item)
            flat.pop()
            continue
        parts.append(" " if flat and flat[-1] else "\n" + "  " * len(flat))
        if item.word:
            parts.append(f"({item.label} {item.word})")
            continue
        parts.append(f"({item.label}")
        flat.append(all(child.word for child in item.children))
        ahead.append(")")
        ahead.extend(reversed(item.children))
    return "".join(parts)[1:]
