"""Treebanks: files of bracketed trees.

A model reads the words of a sentence and writes its tree without them, as "(NP DT NN )NP": a tag per word, and closing
brackets with their labels. Annotated trees are cleaned as usual for parsers: empty elements, function tags and indices
are removed, and TOP is the root of each tree.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dragoman.data.corpus import CorpusScan, Pair, ScannedCorpus, check_regular_file
from dragoman.data.lines import OnFileNotice, read_lines
from dragoman.errors import UserError
from dragoman.evaluation.trees import MalformedTreeError, Tree, TreeEvent, build_trees, read_events, tree_events

_EMPTY_TAG = "-NONE-"  # of empty elements: traces, empty subjects
_FUNCTION_TAG = re.compile(r"(?<=.)[-=].*", re.DOTALL)  # NP-SBJ-1 and NP=2 are NP; -LRB- and -NONE- are themselves
_ROOT_LABEL = "TOP"
_CLEANED_NOTICE = "empty elements, function tags and indices are removed; for example, {tree} becomes {clean}."


@dataclass(frozen=True)
class Treebank(ScannedCorpus):
    """The cleaned trees of a file, which may share a line or span several."""

    file: Path

    def __str__(self) -> str:
        return str(self.file)

    @cached_property
    def scan(self) -> CorpusScan:
        """The number of trees and the SHA-256 of their normalised text."""
        check_regular_file(self.file)
        notices: list[str] = []
        digest, count = hashlib.sha256(), 0
        for _, tree in self.trees(notices.append):
            digest.update(f"{tree}\n".encode())
            count += 1
        if not count:
            raise UserError(f"{self.file}: contains no trees; expected brackets like (TOP (S (NP (NN dog)) …)).")
        return CorpusScan(count, digest.hexdigest(), tuple(dict.fromkeys(notices)))

    def pairs(self) -> Iterator[Pair]:
        """Yield the words and the linearised brackets of every tree."""
        for _, tree in self.trees():
            yield " ".join(tree.words), " ".join(linearise_tree(tree))

    def trees(self, on_notice: OnFileNotice | None = None) -> Iterator[tuple[int, Tree]]:
        """Yield every tree with its first line; `on_notice` is called once if something was removed."""
        notified = on_notice is None
        for line, tree in read_numbered_trees(read_lines(self.file, on_notice), str(self.file)):
            clean = clean_tree(tree)
            if clean is not None:
                check_visible_words(clean, f"{self.file}: line {line:,}")
                yield line, clean
            if on_notice and not notified and (clean is None or _label_root(tree) != clean):
                on_notice(
                    f"{self.file}: {_CLEANED_NOTICE.format(tree=_shorten_tree(tree), clean=_shorten_tree(clean))}"
                )
                notified = True


def read_numbered_trees(lines: Iterable[str], name: str) -> Iterator[tuple[int, Tree]]:
    """Yield each tree with its first line; `name` is the file's name for error messages."""
    row: list[TreeEvent] = []
    depth = 0
    try:
        for event in read_events(lines):
            row.append(event)
            depth += {"open": 1, "leaf": 0, "close": -1}[event.kind]
            if depth == 0:
                yield row[0].line_number, next(build_trees(row))
                row = []
    except MalformedTreeError as error:
        raise UserError(f"{name}: line {error.line_number:,}: {error.reason}") from None


def clean_tree(tree: Tree) -> Tree | None:
    """Return a cleaned tree with a labelled root; None if it contains only empty elements."""
    stack: list[list[TreeEvent]] = [[]]  # for each open bracket, its contents
    for event in tree_events(tree):
        if event.kind == "open":
            stack.append([])
        elif event.kind == "leaf":
            stack[-1] += [event] if event.label != _EMPTY_TAG else []
        else:
            inside, label = stack.pop(), _FUNCTION_TAG.sub("", event.label)
            stack[-1] += [TreeEvent("open", label), *inside, TreeEvent("close", label)] if inside else []
    cleaned = next(build_trees(stack[0]), None)
    return cleaned and _label_root(cleaned)


def _label_root(tree: Tree) -> Tree:
    """Return a tree whose root is a labelled bracket."""
    return Tree(_ROOT_LABEL, (tree,)) if tree.word else tree if tree.label else replace(tree, label=_ROOT_LABEL)


def _shorten_tree(tree: Tree | None) -> str:
    """Return a tree, or its beginning, for a message."""
    text = str(tree or "nothing")
    return text if len(text) <= 80 else f"{text[:80]}…"


def check_visible_words(tree: Tree, where: str) -> None:
    """Raise an error for words that consist of Unicode whitespace, such as a no-break space."""
    if any(not word.strip() for word in tree.words):
        raise UserError(f"{where}: a word of {_shorten_tree(tree)} consists of Unicode whitespace. Remove it.")


def linearise_tree(tree: Tree) -> Iterator[str]:
    """Yield the brackets and tags of a tree, without its words."""
    forms = {"open": "({0.label}", "leaf": "{0.label}", "close": "){0.label}"}
    return (forms[event.kind].format(event) for event in tree_events(tree))


def attach_words(words: Sequence[str], brackets: Sequence[str]) -> Tree | None:
    """Insert words into brackets and tags; return None if the result is not a tree."""
    remaining = iter(words)
    opened: list[str] = []
    row: list[TreeEvent] = []
    for part in brackets:
        word = "" if part[:1] in ("(", ")") else next(remaining, "")
        if part.startswith("("):
            opened.append(part[1:])
            row.append(TreeEvent("open", part[1:]))
        elif part.startswith(")") and opened and opened.pop() == part[1:]:
            row.append(TreeEvent("close", part[1:]))
        elif part and word:
            row.append(TreeEvent("leaf", part, word))
        else:
            return None
    if opened or next(remaining, None) is not None:
        return None
    try:
        trees = list(build_trees(row))
    except MalformedTreeError:
        return None
    return trees[0] if len(trees) == 1 else None
