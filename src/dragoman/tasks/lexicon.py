"""Lexicons: files with a tab between a word and what becomes of it, one word a line, several files for one model."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dragoman.data.corpus import Pair, read_through, refuse_pipe
from dragoman.data.lines import read_lines
from dragoman.errors import UserError
from dragoman.recipe import Data

Entry = Callable[[list[str]], Pair]  # from the columns of a line to what the model reads and writes
SPACE = "␣"  # a space inside a word, where spaces stand between letters


def spelled(word: str) -> str:
    """Write a word with spaces between its letters."""
    return " ".join(word.replace(" ", SPACE))


def joined(letters: str) -> str:
    """Write letters as the word that they spell."""
    return letters.replace(" ", "").replace(SPACE, " ")


def label(name: str) -> str:
    """Write a label as the model reads it, before a word."""
    return f"<{name}>"


@dataclass(frozen=True)
class Lexicon:
    """The entries of one file, or of several with a label each."""

    files: tuple[tuple[str, Path], ...]  # label, which is empty if there is one file, and path
    columns: tuple[str, ...]  # what stands in each column: "word", "phones"
    entry: Entry

    def __str__(self) -> str:
        return " and ".join(str(path) for _, path in self.files)

    def check_counts(self) -> int:
        """Read everything once, refuse lines that are no entries, and return the number of entries."""
        return self.survey[0]

    def fingerprint(self) -> str:
        """Return the SHA-256 of the labels and lines."""
        return self.survey[1]

    def notices(self) -> tuple[str, ...]:
        """Return what was taken off the text on the way in, one sentence each."""
        return self.survey[2]

    @cached_property
    def survey(self) -> tuple[int, str, tuple[str, ...]]:
        """The number of entries, their hash and what there is to say about them; found once."""
        notices: list[str] = []
        digest = hashlib.sha256(repr(self.columns).encode())
        for name, path in self.files:
            refuse_pipe(path)
            digest.update(f"{name} {read_through(path, notices.append)[1]}".encode())
        return sum(1 for _ in self.pairs()), digest.hexdigest(), tuple(dict.fromkeys(notices))

    def pairs(self) -> Iterator[Pair]:
        """Yield what the model reads and writes, entry by entry."""
        for name, path in self.files:
            before = f"{label(name)} " if name else ""
            for number, line in enumerate(read_lines(path), 1):
                if line.strip():
                    source, target = self.entry(self.cut(line, path, number))
                    yield before + source, target

    def cut(self, line: str, path: Path, number: int) -> list[str]:
        """Return the columns of a line, each with something in it."""
        columns = line.split("\t")
        if len(columns) != len(self.columns) or not all(column.strip() for column in columns):
            found, expected = sum(bool(column.strip()) for column in columns), ", tab, ".join(self.columns)
            raise UserError(
                f"{path}: line {number:,} has {found} columns that are not empty; expected {expected}: {line[:60]!r}."
            )
        return columns


def lexicons(data: Data, columns: tuple[str, ...], entry: Entry) -> tuple[Lexicon, Lexicon | None]:
    """Name the files that a recipe trains on and validates with."""
    train, valid = named(data.file, data.labelled), named(data.valid_file, data.valid_labelled)
    if not train:
        raise UserError('The recipe names no lexicon to train on: set [data] file, or labelled = ["label=file", …].')
    return Lexicon(train, columns, entry), Lexicon(valid, columns, entry) if valid else None


def named(file: str | None, labelled: tuple[str, ...]) -> tuple[tuple[str, Path], ...]:
    """Return files with their labels."""
    if file:
        return (("", Path(file)),)
    for text in labelled:
        if not all(text.partition("=")) or set(text.partition("=")[0]) & set(" \t<>"):
            raise UserError(f'[data] labelled: "{text}" is not label=file, as in "fre=french.tsv".')
    return tuple((text.partition("=")[0], Path(text.partition("=")[2])) for text in labelled)
