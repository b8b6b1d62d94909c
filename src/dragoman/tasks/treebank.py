"""Treebanks: bracketed trees, as the model reads and writes them.

A model reads the words of a sentence and writes its tree without them: "(NP DT NN )NP", a tag for each word, and every
closing bracket with the label of what it closes. Trees as they were annotated are brought to the form that parsers are
trained on: without empty elements, function tags and indices, and with TOP around each.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dragoman.data.corpus import Pair, Survey, Surveyed, refuse_pipe
from dragoman.data.lines import Notice, read_lines
from dragoman.errors import UserError
from dragoman.evaluation.trees import Event, Malformed, Tree, built, events, events_of

EMPTY = "-NONE-"  # the tag of what is not said: traces, empty subjects
FUNCTION = re.compile(r"(?<=.)[-=].*", re.DOTALL)  # NP-SBJ-1 and NP=2 are NP; -LRB- and -NONE- are themselves
ROOT = "TOP"
CLEANED = "empty elements, function tags and indices were left out: of {tree} the parser learns {clean}."


@dataclass(frozen=True)
class Treebank(Surveyed):
    """The trees of a file, one or more a line or one over several, without what a parser does not learn."""

    file: Path

    def __str__(self) -> str:
        return str(self.file)

    @cached_property
    def survey(self) -> Survey:
        """The number of trees, and the SHA-256 of them, however they are laid out."""
        refuse_pipe(self.file)
        notices: list[str] = []
        digest, count = hashlib.sha256(), 0
        for _, tree in self.trees(notices.append):
            digest.update(f"{tree}\n".encode())
            count += 1
        if not count:
            raise UserError(f"{self.file}: has no trees in it; expected brackets like (TOP (S (NP (NN dog)) …)).")
        return Survey(count, digest.hexdigest(), tuple(dict.fromkeys(notices)))

    def pairs(self) -> Iterator[Pair]:
        """Yield the words and the brackets of every tree."""
        for _, tree in self.trees():
            yield " ".join(tree.words), " ".join(linearised(tree))

    def trees(self, notice: Notice | None = None) -> Iterator[tuple[int, Tree]]:
        """Yield every tree with the line that it begins on; `notice` is told, once, if something is left out."""
        told = notice is None
        for line, tree in numbered_trees(read_lines(self.file, notice), str(self.file)):
            clean = cleaned(tree)
            if clean is not None:
                refuse_invisible(clean, f"{self.file}: line {line:,}")
                yield line, clean
            if notice and not told and (clean is None or renamed(tree) != clean):
                notice(f"{self.file}: {CLEANED.format(tree=shown(tree), clean=shown(clean))}")
                told = True


def numbered_trees(lines: Iterable[str], name: str) -> Iterator[tuple[int, Tree]]:
    """Yield each tree with the line that it begins on; `name` is the file's, for messages."""
    row: list[Event] = []
    depth = 0
    try:
        for event in events(lines):
            row.append(event)
            depth += {"open": 1, "leaf": 0, "close": -1}[event.kind]
            if depth == 0:
                yield row[0].line, next(built(row))
                row = []
    except Malformed as error:
        raise UserError(f"{name}: line {error.line:,}: {error.fault}") from None


def cleaned(tree: Tree) -> Tree | None:
    """Return a tree as a parser learns it, with a bracket at its root; None if nothing but empty elements is in it."""
    kept: list[list[Event]] = [[]]  # for each open bracket, what is in it
    for event in events_of(tree):
        if event.kind == "open":
            kept.append([])
        elif event.kind == "leaf":
            kept[-1] += [event] if event.label != EMPTY else []
        else:
            inside, label = kept.pop(), FUNCTION.sub("", event.label)
            kept[-1] += [Event("open", label), *inside, Event("close", label)] if inside else []
    found = next(built(kept[0]), None)
    return found and renamed(found)


def renamed(tree: Tree) -> Tree:
    """Return a tree whose root is a bracket with a label."""
    return Tree(ROOT, (tree,)) if tree.word else tree if tree.label else replace(tree, label=ROOT)


def shown(tree: Tree | None) -> str:
    """Return a tree, or its beginning, to be put in a message."""
    text = str(tree or "nothing")
    return text if len(text) <= 80 else f"{text[:80]}…"


def refuse_invisible(tree: Tree, where: str) -> None:
    """Object to words that nobody can see: a no-break space and its kin, of which only treebanks could make words."""
    if any(not word.strip() for word in tree.words):
        raise UserError(f"{where}: a word of {shown(tree)} is nothing but a space of Unicode's. Remove it.")


def linearised(tree: Tree) -> Iterator[str]:
    """Yield the brackets and tags of a tree, without its words."""
    forms = {"open": "({0.label}", "leaf": "{0.label}", "close": "){0.label}"}
    return (forms[event.kind].format(event) for event in events_of(tree))


def tree_over(words: Sequence[str], brackets: Sequence[str]) -> Tree | None:
    """Put words back into the brackets and tags that were written for them; None if they make no tree together."""
    waiting = iter(words)
    opened: list[str] = []
    row: list[Event] = []
    for part in brackets:
        word = "" if part[:1] in ("(", ")") else next(waiting, "")
        if part.startswith("("):
            opened.append(part[1:])
            row.append(Event("open", part[1:]))
        elif part.startswith(")") and opened and opened.pop() == part[1:]:
            row.append(Event("close", part[1:]))
        elif part and word:
            row.append(Event("leaf", part, word))
        else:
            return None
    if opened or next(waiting, None) is not None:
        return None
    try:
        trees = list(built(row))
    except Malformed:
        return None
    return trees[0] if len(trees) == 1 else None
