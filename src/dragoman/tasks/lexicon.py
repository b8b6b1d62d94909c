"""Lexicons: files with a word and what becomes of it on each line, several files for one model.

Columns have tabs between them. A file of pronunciations without tabs is read as CMUdict is written: the word, spaces,
its phones; `WORD(2)` is another pronunciation of WORD. Several lines of a word are alternatives, and all are kept.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unicodedata import combining, normalize

from dragoman.data.corpus import CorpusScan, Pair, ScannedCorpus, check_regular_file
from dragoman.data.lines import OnFileNotice, read_lines
from dragoman.errors import UserError
from dragoman.recipe import CorpusConfig, DataConfig

SPACE_SYMBOL = "␣"  # a space inside a word, where spaces stand between letters
_CMUDICT_LINE = re.compile(r"(\S+?)(?:\(\d+\))?\s+(.*?)(?:\s+#.*)?\s*")  # word, number of the variant, phones, remark
_MESSAGE_LENGTH = 60  # characters of a line that is objected to


def spell_word(word: str) -> str:
    """Write a word with spaces between its letters; an accent, or a sound of a Korean syllable, is one of its own."""
    return " ".join(SPACE_SYMBOL if letter.isspace() else letter for letter in normalize("NFD", word))


def join_letters(letters: str) -> str:
    """Write letters as the word that they spell."""
    return normalize("NFC", letters.replace(" ", "").replace(SPACE_SYMBOL, " "))


def visible_letter(piece: str) -> str:
    """Write a letter for a message, an accent on a circle of its own."""
    return f"◌{piece}" if combining(piece[:1] or " ") else piece


def label_token(name: str) -> str:
    """Write a label as the model reads it, before a word."""
    return f"<{name}>"


def split_tabs(line: str) -> list[str]:
    """Cut a line at its tabs."""
    return [column.strip() for column in line.split("\t")]


def split_cmudict(line: str) -> list[str]:
    """Cut a line of CMUdict; one without phones has one column."""
    found = _CMUDICT_LINE.fullmatch(line)
    return [found[1], found[2]] if found else [line.strip()]


@dataclass(frozen=True)
class LexiconLayout:
    """How a task's files are laid out, and what its model reads and writes of a line."""

    columns: tuple[str, ...]  # what stands in each: "word", "phones"
    to_pair: Callable[[Sequence[str]], Pair]
    split_untabbed: Callable[[str], list[str]] = split_tabs  # cuts the lines of a file whose first has no tab
    comments: tuple[str, ...] = ()  # how lines begin that are none

    def read_rows(self, path: Path, on_notice: OnFileNotice | None = None) -> Iterator[list[str]]:
        """Yield the columns of every line that has some, after seeing that all are there."""
        cut = None
        for number, line in enumerate(read_lines(path, on_notice), 1):
            if line.strip() and not line.startswith(self.comments):
                cut = cut or (split_tabs if "\t" in line else self.split_untabbed)
                columns = cut(line)
                self._check_row(columns, f"{path}: line {number:,}", line)
                yield columns

    def _check_row(self, columns: Sequence[str], where: str, line: str) -> None:
        """Object to a line that is no entry."""
        wanted, text = self.columns, repr(line if len(line) <= _MESSAGE_LENGTH else line[:_MESSAGE_LENGTH] + "…")
        if len(columns) == 1:
            raise UserError(f"{where} has no tab between {wanted[0]} and {wanted[1]}: {text}.")
        if len(columns) != len(wanted):
            raise UserError(
                f"{where} has {len(columns)} columns; expected {len(wanted)}, {', '.join(wanted)}, with a tab between "
                f"them: {text}."
            )
        for name, column in zip(wanted, columns, strict=True):
            if not column.strip():
                raise UserError(f"{where} has nothing for {name}: {text}. Fill it in, or take the line out.")


@dataclass(frozen=True)
class Lexicon(ScannedCorpus):
    """The entries of one file, or of several with a label each."""

    files: tuple[tuple[str, Path], ...]  # label, which is empty if there is one file, and path
    layout: LexiconLayout

    def __str__(self) -> str:
        return " and ".join(str(path) for _, path in self.files)

    def pairs(self, on_notice: OnFileNotice | None = None) -> Iterator[Pair]:
        """Yield what the model reads and writes, each entry once."""
        for name, path in self.files:
            before, seen, repeated = f"{label_token(name)} " if name else "", set[Pair](), 0
            for columns in self.layout.read_rows(path, on_notice):
                source, target = self.layout.to_pair(columns)
                if (source, target) in seen:
                    repeated += 1
                    continue
                seen.add((source, target))
                yield before + source, target
            if on_notice and repeated:
                on_notice(f"{path}: {repeated:,} lines repeat an earlier one; each entry is read once.")

    @cached_property
    def scan(self) -> CorpusScan:
        """The number of entries, and the SHA-256 of what the model reads and writes."""
        for _, path in self.files:
            check_regular_file(path)
        notices, digest, count = list[str](), hashlib.sha256(), 0
        for source, target in self.pairs(notices.append):
            digest.update(f"{source}\t{target}\n".encode())
            count += 1
        if not count:
            raise UserError(f"{self}: no entries; expected {', '.join(self.layout.columns)} on each line.")
        return CorpusScan(count, digest.hexdigest(), tuple(dict.fromkeys(notices)))


def open_lexicons(config: DataConfig, layout: LexiconLayout) -> tuple[Lexicon, Lexicon | None]:
    """Name the files that a recipe trains on and validates with."""
    train = _labelled_files(config.file, config.corpora)
    valid = _labelled_files(config.valid_file, config.valid_corpora)
    if not train:
        raise UserError("The recipe names no lexicon to train on: set [data] file, or write [[data.corpora]] tables.")
    known = {name for name, _ in train}
    for name, path in valid:
        if name not in known:
            expected = f"one of the labels {', '.join(sorted(known))}" if any(known) else "valid_file, without a label"
            raise UserError(f'{path}: to be validated with the label "{name}", but training has {expected}.')
    return Lexicon(train, layout), Lexicon(valid, layout) if valid else None


def _labelled_files(file: str | None, corpora: tuple[CorpusConfig, ...]) -> tuple[tuple[str, Path], ...]:
    if file:
        return (("", Path(file)),)
    return tuple((corpus.label, Path(corpus.file)) for corpus in corpora)
