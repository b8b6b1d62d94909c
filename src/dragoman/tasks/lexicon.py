"""Lexicons: files with a word and its output on each line; one model may have several.

Columns are separated by tabs. A file of pronunciations without tabs is read in the format of CMUdict: the word, spaces,
its phones; `WORD(2)` is another pronunciation of WORD. Several lines of one word are alternatives.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unicodedata import combining, normalize

from dragoman.data.corpus import CorpusScan, Pair, ScannedCorpus, check_regular_file, label_token
from dragoman.data.lines import OnFileNotice, read_lines
from dragoman.errors import UserError, format_count
from dragoman.recipe import CorpusConfig, DataConfig

SPACE_SYMBOL = "␣"  # a space inside a word, where spaces stand between letters
_CMUDICT_LINE = re.compile(r"(\S+?)(?:\(\d+\))?\s+(.*?)(?:\s+#.*)?\s*")  # word, number of the variant, phones, remark
_MESSAGE_LENGTH = 60  # characters of a line that an error quotes


def spell_word(word: str) -> str:
    """Return a word with spaces between its letters; accents and the parts of Korean syllables are letters (NFD)."""
    return " ".join(SPACE_SYMBOL if letter.isspace() else letter for letter in normalize("NFD", word))


def join_letters(letters: str) -> str:
    """Return the word that letters spell."""
    return normalize("NFC", letters.replace(" ", "").replace(SPACE_SYMBOL, " "))


def visible_letter(piece: str) -> str:
    """Return a letter for a message; an accent is put on a dotted circle."""
    return f"◌{piece}" if combining(piece[:1] or " ") else piece


def split_tabs(line: str) -> list[str]:
    """Split a line at its tabs."""
    return [column.strip() for column in line.split("\t")]


def split_cmudict(line: str) -> list[str]:
    """Split a line of CMUdict; a line without phones has one column."""
    match = _CMUDICT_LINE.fullmatch(line)
    return [match[1], match[2]] if match else [line.strip()]


@dataclass(frozen=True)
class LexiconLayout:
    """The columns of a task's files, and how a line becomes a training pair."""

    columns: tuple[str, ...]  # their names: "word", "phones"
    to_pair: Callable[[Sequence[str]], Pair]
    split_untabbed: Callable[[str], list[str]] = split_tabs  # for a file whose first line has no tab
    comments: tuple[str, ...] = ()  # prefixes of comment lines

    def read_rows(self, path: Path, on_notice: OnFileNotice | None = None) -> Iterator[list[str]]:
        """Yield the columns of every line that is not empty; raise an error if some are missing."""
        split = None
        for number, line in enumerate(read_lines(path, on_notice), 1):
            if line.strip() and not line.startswith(self.comments):
                split = split or (split_tabs if "\t" in line else self.split_untabbed)
                columns = split(line)
                self._check_row(columns, f"{path}: line {number:,}", line)
                yield columns

    def _check_row(self, columns: Sequence[str], where: str, line: str) -> None:
        """Raise an error for a line with missing or empty columns."""
        names, text = self.columns, repr(line if len(line) <= _MESSAGE_LENGTH else line[:_MESSAGE_LENGTH] + "…")
        if len(columns) == 1:
            raise UserError(f"{where} has no tab between {names[0]} and {names[1]}: {text}.")
        if len(columns) != len(names):
            raise UserError(
                f"{where} has {len(columns)} columns; expected {len(names)} columns separated by tabs "
                f"({', '.join(names)}): {text}."
            )
        for name, column in zip(names, columns, strict=True):
            if not column.strip():
                raise UserError(f"{where} has an empty column {name}: {text}. Fill it in, or remove the line.")


@dataclass(frozen=True)
class Lexicon(ScannedCorpus):
    """The entries of one file, or of several files with a label each."""

    files: tuple[tuple[str, Path], ...]  # label, which is empty if there is one file, and path
    layout: LexiconLayout

    def __str__(self) -> str:
        return " and ".join(str(path) for _, path in self.files)

    def pairs(self, on_notice: OnFileNotice | None = None) -> Iterator[Pair]:
        """Yield what the model reads and writes for each entry, without duplicates."""
        for name, path in self.files:
            prefix, seen, repeated = f"{label_token(name)} " if name else "", set[Pair](), 0
            for columns in self.layout.read_rows(path, on_notice):
                source, target = self.layout.to_pair(columns)
                if (source, target) in seen:
                    repeated += 1
                    continue
                seen.add((source, target))
                yield prefix + source, target
            if on_notice and repeated:
                on_notice(f"{path}: {format_count(repeated, 'duplicate line')} ignored.")

    @cached_property
    def scan(self) -> CorpusScan:
        """The number of entries and the SHA-256 of what the model reads and writes."""
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
    """Return the lexicons that a recipe names for training and validation."""
    train = _labelled_files(config.file, config.corpora)
    valid = _labelled_files(config.valid_file, config.valid_corpora)
    if not train:
        raise UserError("The recipe has no training lexicon: set [data] file, or add [[data.corpora]] tables.")
    known = sorted({name for name, _ in train})
    for name, path in valid:
        if name not in known:
            raise UserError(f"{path}: {_describe_wrong_label(name, known)}.")
    return Lexicon(train, layout), Lexicon(valid, layout) if valid else None


def _describe_wrong_label(name: str, known: Sequence[str]) -> str:
    """Say why a validation file's label does not match those of the training files; no label is an empty string."""
    if not name:
        return (
            "the validation file has no label, but the training files have labels; use [[data.valid_corpora]] tables "
            f"instead of valid_file, with labels from: {', '.join(known)}"
        )
    if not any(known):
        return (
            f'the validation file has the label "{name}", but the training file has no label; set [data] valid_file '
            "instead of [[data.valid_corpora]]"
        )
    return f'the validation label "{name}" is not in the training data; expected one of {", ".join(known)}'


def _labelled_files(file: str | None, corpora: tuple[CorpusConfig, ...]) -> tuple[tuple[str, Path], ...]:
    if file:
        return (("", Path(file)),)
    return tuple((corpus.label or "", Path(corpus.file or "")) for corpus in corpora)
