"""Files of pairs in any format, recognised by their content: tab-separated text, CSV, JSON Lines, TMX."""

import re
from collections.abc import Iterator
from pathlib import Path

from dragoman.data.delimited import read_delimited
from dragoman.data.file_kinds import OPENING_BYTES, describe_binary, describe_markup, is_tmx
from dragoman.data.jsonl import read_jsonl
from dragoman.data.lines import Entry, OnFileNotice, open_bytes
from dragoman.data.tmx import read_tmx
from dragoman.errors import UserError
from dragoman.text.languages import Languages

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_JSON_OBJECT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:[^"\\]|\\.)*"\s*:')


def read_pair_file(file: Path, languages: Languages | None, on_notice: OnFileNotice | None = None) -> Iterator[Entry]:
    """Yield every pair of a file with the line where it begins; `languages` choose columns, keys or languages."""
    opening = read_opening(file)
    if is_tmx(opening):
        return read_tmx(file, languages, on_notice)
    check_is_text(file, opening)
    if file.name.lower().removesuffix(".gz").endswith(_JSON_SUFFIXES) or _JSON_OBJECT.match(opening):
        return read_jsonl(file, languages, on_notice)
    return read_delimited(file, languages, on_notice)


def read_opening(file: Path) -> bytes:
    """Return the first bytes of a file, unpacked."""
    with open_bytes(file) as stream:
        return stream.read(OPENING_BYTES)


def check_is_text(file: Path, opening: bytes) -> None:
    """Raise an error that names the kind of a file that begins with these bytes, if it is not plain text."""
    kind = describe_binary(opening, file) or describe_markup(opening)
    if kind:
        raise UserError(f"{file} is {kind}")
