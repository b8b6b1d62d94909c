"""Recognising files that are not text by their first bytes, so that an error can name what was given."""

import re
import zipfile
from pathlib import Path

OPENING_BYTES = 1 << 14  # at the start of a file, which identify what it is

_EXPORT_TEXT = "export it as plain text, TMX or CSV first"
_EXPORT_TABLE = "export it as CSV or JSONL first"
_EXPECTED_TEXT = "expected a text file"

# Each begins so that no text does.
_MAGIC_NUMBERS = {
    b"\x89PNG": ("a PNG image", _EXPECTED_TEXT),
    b"\xff\xd8\xff": ("a JPEG image", _EXPECTED_TEXT),
    b"GIF87a": ("a GIF image", _EXPECTED_TEXT),
    b"GIF89a": ("a GIF image", _EXPECTED_TEXT),
    b"\x7fELF": ("a program", _EXPECTED_TEXT),
    b"%PDF-": ("a PDF document", _EXPORT_TEXT),
    b"{\\rtf": ("an RTF document", _EXPORT_TEXT),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ("an Office document (.doc, .xls, .ppt)", _EXPORT_TEXT),
    b"PAR1\x15": ("a Parquet file", _EXPORT_TABLE),
    b"SQLite format 3\0": ("an SQLite database", _EXPORT_TABLE),
    b"\x1f\x8b": ("a gzip archive inside a gzip archive", "unpack it with `gunzip` first"),
    b"BZh91AY&SY": ("a bzip2 archive", "unpack it with `bunzip2` first"),
    b"\xfd7zXZ": ("an xz archive", "unpack it with `unxz` first"),
    b"\x28\xb5\x2f\xfd": ("a Zstandard archive", "unpack it with `unzstd` first"),
    b"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", "unpack it first"),
    b"Rar!\x1a\x07": ("a RAR archive", "unpack it first"),
}
_ZIP_MAGIC = b"PK\x03\x04"
_ZIP_MEMBERS = {  # the start of the name of a member that only this kind has
    "word/": ("a Word document", _EXPORT_TEXT),
    "xl/": ("an Excel workbook", _EXPORT_TEXT),
    "ppt/": ("a PowerPoint presentation", _EXPORT_TEXT),
    "content.xml": ("an OpenDocument file", _EXPORT_TEXT),
    "META-INF/container.xml": ("an EPUB book", _EXPORT_TEXT),
}
_TAR_MAGIC, _TAR_OFFSET = b"ustar", 257

_MARKUP = {
    "tmx": re.compile(r"<tmx[\s>]"),
    "an HTML page": re.compile(r"<!doctype html|<html[\s>]", re.IGNORECASE),
    "an XLIFF file": re.compile(r"<xliff[\s>]"),
    "an XML file": re.compile(r"<\?xml\s"),
}


def describe_binary(opening: bytes, path: Path) -> str | None:
    """Return what kind of file begins with these bytes and what to do with it, or None if it may be text."""
    if opening.startswith(_ZIP_MAGIC):
        kind, advice = _describe_zip(path)
    elif opening[_TAR_OFFSET:].startswith(_TAR_MAGIC):
        kind, advice = "a tar archive", "unpack it with `tar -xf` first"
    else:
        known = (found for magic, found in _MAGIC_NUMBERS.items() if opening.startswith(magic))
        kind, advice = next(known, ("", ""))
    return f"{kind}; {advice}." if kind else None


def _describe_zip(path: Path) -> tuple[str, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        members = []  # damaged, or inside another archive
    kinds = (kind for start, kind in _ZIP_MEMBERS.items() if any(member.startswith(start) for member in members))
    return next(kinds, ("a ZIP archive", "unpack it first"))


def is_tmx(opening: bytes) -> bool:
    """Return whether a file that begins with these bytes is a translation memory (TMX)."""
    return _markup_kind(opening) == "tmx"


def describe_markup(opening: bytes) -> str | None:
    """Return what kind of marked-up text begins with these bytes and what to do with it, or None."""
    kind = _markup_kind(opening)
    if kind == "tmx":
        return "a TMX file; give it with --pairs ([data] pairs in a recipe)."
    return f"{kind}; {_EXPORT_TEXT}." if kind else None


def _markup_kind(opening: bytes) -> str | None:
    # TMX files are often UTF-16; the first characters of all markup are ASCII.
    text = opening.replace(b"\0", b"").decode("ascii", "ignore").lstrip()
    if not text.startswith("<"):
        return None
    return next((kind for kind, pattern in _MARKUP.items() if pattern.search(text)), None)
