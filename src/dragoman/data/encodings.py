"""Guessing the format or encoding of a file that is not UTF-8, so that the error can say how to convert it."""

import shlex
from pathlib import Path

SAMPLE_BYTES = 1 << 14  # read to guess an encoding
MAGIC_BYTES = 8  # at the start of a file, which identify its format

_MAGIC_NUMBERS = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF document; save its text as plain text",
    b"PK\x03\x04": "a ZIP archive (.docx, .xlsx and .odt files are); save it as plain text",
    b"\xd0\xcf\x11\xe0": "an old Office document; save it as plain text",
    b"BZh": "a bzip2 archive; unpack it with `bunzip2`",
    b"\xfd7zXZ": "an xz archive; unpack it with `unxz`",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive; unpack it with `unzstd`",
    b"7z\xbc\xaf": "a 7-Zip archive; unpack it first",
    b"\x1f\x8b": "a gzip archive inside a gzip archive; unpack it with `gunzip`",
    b"\x7fELF": "a program",
    b"SQLite": "an SQLite database",
}
_CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))

# With the names of `iconv`; of those that fit a sample equally well, the first is taken.
_ENCODINGS = {
    "cp1252": "Windows-1252",
    "cp1251": "Windows-1251",
    "cp1250": "Windows-1250",
    "cp1253": "Windows-1253",
    "cp1254": "Windows-1254",
    "koi8_r": "KOI8-R",
    "shift_jis": "SHIFT_JIS",
    "euc_jp": "EUC-JP",
    "gb18030": "GB18030",
    "big5": "BIG5",
    "euc_kr": "EUC-KR",
}


def describe_binary(opening: bytes) -> str | None:
    """Return what kind of binary file begins with these bytes, or None."""
    return next(
        (f"not text; looks like {name}." for magic, name in _MAGIC_NUMBERS.items() if opening.startswith(magic)), None
    )


def describe_encoding_error(block: bytes, error_position: int, path: Path) -> str:
    """Return what bytes that are not UTF-8 look like, and what to do about them."""
    sample = block[max(0, error_position - SAMPLE_BYTES // 2) :][:SAMPLE_BYTES]
    if len(sample.translate(None, _CONTROL_BYTES)) < 0.95 * len(sample):
        return "not text; looks like a binary file. Expected UTF-8 text, one sentence per line."
    guess = _guess_encoding(sample)
    if guess is None:
        return "not UTF-8; the file may be damaged here. Repair the line, or remove it on both sides."
    return f"not UTF-8; looks like {guess}; {conversion_command(path, guess)}"


def conversion_command(path: Path, encoding: str) -> str:
    """Return the command that converts a file to UTF-8."""
    name = shlex.quote(str(path))
    if path.suffix == ".gz":
        new = shlex.quote(str(path.with_suffix(".utf8")))
        return f"convert with `zcat {name} | iconv -f {encoding} -t UTF-8 > {new}`."
    return f"convert with `iconv -f {encoding} -t UTF-8 {name} > {shlex.quote(str(path) + '.utf8')}`."


def _guess_encoding(sample: bytes) -> str | None:
    if _is_mostly_utf8(sample):
        return None
    from charset_normalizer import from_bytes  # large tables, needed for errors only

    best = from_bytes(sample, cp_isolation=list(_ENCODINGS)).best()
    if best is not None:
        alike = {best.encoding, *best.could_be_from_charset}
        return next((name for encoding, name in _ENCODINGS.items() if encoding in alike), None)
    return _ENCODINGS["cp1252"] if _decodes_to_letters(sample, "cp1252") else None


def _is_mostly_utf8(sample: bytes) -> bool:
    # A few wrong bytes in UTF-8 are damage and not another encoding.
    text = sample.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    return len(text) - broken - sum(map(str.isascii, text)) > broken


def _decodes_to_letters(sample: bytes, encoding: str) -> bool:
    # Whether all bytes beyond ASCII are letters in this encoding: the best evidence in a short sample.
    beyond = sample.translate(None, bytes(range(128)))
    return beyond.decode(encoding, "replace").isalpha()


def detect_utf16(sample: bytes) -> str | None:
    """Return the name of a UTF-16 encoding, found by its mark or by NULs in every other byte, or None."""
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16"
    if len(sample) < 32 or b"\n" not in sample:
        return None
    if _is_utf16(sample[0::2], sample[1::2]):
        return "UTF-16LE"
    return "UTF-16BE" if _is_utf16(sample[1::2], sample[0::2]) else None


def _is_utf16(low: bytes, high: bytes) -> bool:
    mostly_narrow = high.count(0) > 0.4 * len(high) and 0 not in low
    newlines = [up for down, up in zip(low, high, strict=False) if down == ord("\n")]
    return mostly_narrow and b"\n" not in high and not any(newlines)
