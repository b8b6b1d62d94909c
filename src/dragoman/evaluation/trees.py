"""Bracketed trees, as the Penn Treebank writes them: `(S (NP (DT the) (NN dog)) (VP (VBZ runs)))`.

Text becomes a row of events (a bracket opens, a word stands in its own bracket, a bracket closes), events become a
`Tree`, and back. Labels and words are kept as they are: function tags, `-LRB-`, `-NONE-`, an outer bracket without a
label. Nothing here calls itself, so that a tree may be as deep as it likes. Files are read elsewhere.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dragoman.errors import UserError

# Only these six end a word, as in C. A no-break space, or a line separator of Unicode's, is part of one.
WHITESPACE = " \t\n\v\f\r"
_TOKEN = re.compile(rf"[()]|[^(){WHITESPACE}]+")
_MESSAGE_LENGTH = 40  # characters of a text that are repeated in a message


class TreeEvent(NamedTuple):
    """What is met when a tree is read from left to right."""

    kind: Literal["open", "leaf", "close"]
    label: str = ""
    word: str = ""
    line: int = 0  # where it stands, counted from 1; 0 if it was not read from a file


class MalformedTreeError(Exception):
    """Brackets that are no tree: the line, counted from 1, and what is wrong with it."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Tree:
    """A bracket: a label with either one word, or other brackets. Two trees are equal if they are written alike."""

    label: str
    children: tuple["Tree", ...] = ()
    word: str = ""

    def __post_init__(self) -> None:
        if bool(self.children) == bool(self.word):
            raise UserError(f'A bracket "{self.label}" needs either a word or other brackets in it, and not both.')
        if self.word and not self.label:
            raise UserError(f'The word "{self.word}" needs a label, as in (NN {self.word}).')
        _check_symbol(self.label)
        _check_symbol(self.word)

    @property
    def words(self) -> list[str]:
        """Return the sentence."""
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
    """Object to a label or a word that would be read back as something else."""
    if re.search(rf"[{WHITESPACE}]", text):
        raise UserError(f'"{text}" has a space in it; a label or a word of a tree has none. Join it with "_".')
    if "(" in text or ")" in text:
        raise UserError(f'"{text}" has a bracket in it; write -LRB- for "(" and -RRB- for ")", as treebanks do.')


def read_tree(text: str) -> Tree:
    """Read one tree."""
    trees = list(read_trees([text], "The tree"))
    if len(trees) != 1:
        raise UserError(f'Expected one tree, found {len(trees)} in "{_shorten(text)}".')
    return trees[0]


def read_trees(lines: Iterable[str], name: str) -> Iterator[Tree]:
    """Yield the trees of a file, one or more a line or one over several; `name` is the file's, for messages."""
    try:
        yield from build_trees(read_events(lines))
    except MalformedTreeError as error:
        raise UserError(f"{name}: line {error.line:,}: {error.reason}") from None


def treebank_sentences(lines: Sequence[str], expected: int | None = None) -> list[tuple[int, str]]:
    """Return the sentences of a file, each with the line it begins on: a line is one, unless trees go over several.

    What is malformed stays in its line. Lines of which one lacks a bracket that another has too many could pass for a
    tree over both; `expected`, the number of sentences that there should be, tells the two apart.
    """
    one_a_line = list(enumerate(lines, start=1))
    if all(_find_tree_error(line) is None for line in lines):
        return one_a_line
    try:
        found = list(_multiline_trees(read_events(lines)))
    except MalformedTreeError:
        return one_a_line
    return found if expected in (None, len(found)) else one_a_line


def well_formed_treebank_sentences(lines: Sequence[str], name: str) -> list[tuple[int, str]]:
    """Return the sentences of a file as `sentences` does, but refuse malformed ones."""
    found = treebank_sentences(lines)
    faults = [(line, fault) for line, text in found if (fault := _find_tree_error(text))]
    if 2 * len(faults) > len(lines):  # trees over several lines were meant, and only together they show their fault
        list(read_trees(lines, name))
    for line, fault in faults:
        raise UserError(f"{name}: line {line:,}: {fault}")
    return found


def _find_tree_error(text: str) -> str | None:
    """Return what is wrong with the brackets of a text, or nothing; empty brackets are not wrong here."""
    try:
        for _ in read_events([text]):
            pass
    except MalformedTreeError as error:
        return error.reason
    return None


def _multiline_trees(row: Iterable[TreeEvent]) -> Iterator[tuple[int, str]]:
    """Yield each tree, written on one line, with the line it began on."""
    tree: list[TreeEvent] = []
    depth = 0
    for event in row:
        tree.append(event)
        depth += {"open": 1, "leaf": 0, "close": -1}[event.kind]
        if depth == 0:
            yield tree[0].line, _format_events(tree)
            tree = []


def read_events(lines: Iterable[str]) -> Iterator[TreeEvent]:
    """Yield what is met in a text; brackets must balance at its end, and each word must have a bracket of its own."""
    open_brackets: list[TreeEvent] = []
    inside: list[str] | None = None  # what was found since the last "(", until it is known what bracket this is
    start = 0
    for line, token in _tree_tokens(lines):
        if token == "(":
            if inside is not None:
                open_brackets.append(_opening_event(inside, start))
                yield open_brackets[-1]
            inside, start = [], line
        elif token == ")" and inside is not None:
            yield from _leaf_events(inside, start)
            inside = None
        elif token == ")":
            if not open_brackets:
                raise MalformedTreeError(
                    line, 'a ")" closes no bracket. Remove it, or add the "(" that is missing before it.'
                )
            yield TreeEvent("close", open_brackets.pop().label, line=line)
        elif inside is None:
            raise MalformedTreeError(line, _stray_word_message(token, open_brackets))
        else:
            inside.append(token)
    if inside is not None:
        open_brackets.append(TreeEvent("open", line=start))
    if open_brackets:
        raise MalformedTreeError(open_brackets[0].line, _unclosed_message(len(open_brackets)))


def _tree_tokens(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield brackets, and what stands between brackets and spaces, each with its line."""
    for number, line in enumerate(lines, start=1):
        for token in _TOKEN.findall(line):
            yield number, token


def _opening_event(inside: Sequence[str], line: int) -> TreeEvent:
    """Return the event of a bracket that has brackets in it."""
    if len(inside) > 1:
        raise MalformedTreeError(line, _stray_word_message(inside[1], [TreeEvent("open", inside[0])]))
    return TreeEvent("open", "".join(inside), line=line)


def _leaf_events(inside: Sequence[str], line: int) -> Iterator[TreeEvent]:
    """Yield the events of a bracket without brackets in it: a word with its label, or nothing."""
    if len(inside) > 2:
        whole = _shorten(" ".join(inside))
        raise MalformedTreeError(
            line,
            f'the bracket "({whole})" has {len(inside) - 1} words in it; a word has no spaces. Give each word a '
            f'bracket of its own, or join them with "_".',
        )
    if len(inside) == 2:
        yield TreeEvent("leaf", inside[0], inside[1], line)
    else:
        yield TreeEvent("open", "".join(inside), line=line)
        yield TreeEvent("close", "".join(inside), line=line)


def _stray_word_message(token: str, open_brackets: Sequence[TreeEvent]) -> str:
    """Say what is wrong with a word that stands where no word may stand."""
    where = f"beside the brackets in ({open_brackets[-1].label} …)" if open_brackets else "outside of all brackets"
    return f'"{_shorten(token)}" stands {where}. Give it a bracket and a label of its own, as in (NN dog).'


def _unclosed_message(count: int) -> str:
    """Say how many brackets are missing."""
    missing = 'a ")" is' if count == 1 else f'{count:,} ")" are'
    return f"the tree that begins here is not closed; {missing} missing before the end."


def _shorten(text: str) -> str:
    """Return a text, or its beginning, to be put in a message."""
    return text if len(text) <= _MESSAGE_LENGTH else f"{text[:_MESSAGE_LENGTH]}…"


def build_trees(row: Iterable[TreeEvent]) -> Iterator[Tree]:
    """Put events together into trees; a bracket with nothing in it is none."""
    unfinished: list[list[Tree]] = []  # for each open bracket, what is in it so far
    for event in row:
        if event.kind == "open":
            unfinished.append([])
            continue
        if event.kind == "close" and not unfinished[-1]:
            raise MalformedTreeError(event.line, _empty_bracket_message(event.label))
        children = tuple(unfinished.pop()) if event.kind == "close" else ()
        tree = Tree(event.label, children, event.word)
        if unfinished:
            unfinished[-1].append(tree)
        else:
            yield tree


def _empty_bracket_message(label: str) -> str:
    """Say what is wrong with a bracket that has nothing in it."""
    return f'the bracket "({label})" is empty. Remove it, or write a label and a word, as in (NN dog).'


def tree_events(tree: Tree) -> Iterator[TreeEvent]:
    """Yield what is met in a tree, as if it had been read."""
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
    """Write events as brackets on one line."""
    forms = {"open": " ({0.label}", "leaf": " ({0.label} {0.word})", "close": ")"}
    return "".join(forms[event.kind].format(event) for event in row)[1:]


def indent_tree(tree: Tree) -> str:
    """Write a tree over several lines, each bracket below the one it is in; brackets of words only stay on one."""
    parts: list[str] = []
    flat: list[bool] = []  # for each open bracket, whether it has words only and stays on one line
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
