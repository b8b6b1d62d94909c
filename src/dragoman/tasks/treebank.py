"""Treebanks: bracketed trees, as the model reads and writes them.

A model reads the words of a sentence and writes its tree without them: "(NP DT NN )NP", a tag for each word, and every
closing bracket with the label of what it closes.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dragoman.data.corpus import Pair, refuse_pipe
from dragoman.data.lines import read_lines
from dragoman.evaluation.trees import Event, Malformed, Tree, built, events_of, read_trees


@dataclass(frozen=True)
class Treebank:
    """The trees of a file."""

    file: Path

    def __str__(self) -> str:
        return str(self.file)

    def check_counts(self) -> int:
        """Read everything once, refuse what is not a tree, and return the number of trees."""
        return self.survey[0]

    def fingerprint(self) -> str:
        """Return the SHA-256 of the trees, however they are laid out."""
        return self.survey[1]

    def notices(self) -> tuple[str, ...]:
        """Return what was taken off the text on the way in, one sentence each."""
        return self.survey[2]

    @cached_property
    def survey(self) -> tuple[int, str, tuple[str, ...]]:
        """The number of trees, their hash and what there is to say about the file; found once."""
        refuse_pipe(self.file)
        notices: list[str] = []
        digest, count = hashlib.sha256(), 0
        for tree in read_trees(read_lines(self.file, notices.append), str(self.file)):
            digest.update(f"{tree}\n".encode())
            count += 1
        return count, digest.hexdigest(), tuple(dict.fromkeys(notices))

    def pairs(self) -> Iterator[Pair]:
        """Yield the words and the brackets of every tree."""
        for tree in read_trees(read_lines(self.file), str(self.file)):
            yield " ".join(tree.words), " ".join(linearised(tree))


def linearised(tree: Tree) -> Iterator[str]:
    """Yield the brackets and tags of a tree, without its words."""
    forms = {"open": "({0.label}", "leaf": "{0.label}", "close": "){0.label}"}
    return (forms[event.kind].format(event) for event in events_of(tree))


def tree_over(words: Sequence[str], brackets: Sequence[str]) -> Tree | None:
    """Put words back into the brackets and tags that were written for them; None if they make no tree together."""
    waiting = iter(words)
    row = [as_event(part, waiting) for part in brackets]
    try:
        trees = list(built(event for event in row if event))
    except Malformed:
        return None
    return trees[0] if len(trees) == 1 and next(waiting, None) is None else None


def as_event(part: str, words: Iterator[str]) -> Event | None:
    """Read one bracket, or one tag with the word that it is for."""
    if part.startswith("("):
        return Event("open", part[1:])
    if part.startswith(")"):
        return Event("close", part[1:])
    word = next(words, None)
    return Event("leaf", part, word) if word else None
