"""Reading lines of text, plain or gzipped, in bounded memory, with exact errors where a file is not text.

Only b"\\n" ends a line. U+2028, U+0085, form feeds, NUL and carriage returns inside a line are content: with any other
rule (`str.splitlines`, universal newlines) the lines of two parallel files could get out of step.
"""

import gzip
import re
import shlex
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Protocol

from dragoman.data.file_kinds import OPENING_BYTES, describe_binary
from dragoman.errors import UserError, did_you_mean_path

BLOCK_BYTES = 1 << 20  # read at a time
# Only the beginning of a longer line is kept: no use needs more, and a file may be one line of gigabytes.
MAX_LINE_BYTES = 64 << 20
_GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = "\ufeff"
_SAMPLE_BYTES = 1 << 14  # read to guess an encoding

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

_BREAK = re.compile(r" *[\t\n\r][\t\n\r ]*")

OnFileNotice = Callable[[str], None]
Entry = tuple[int, str, str]  # the line where a pair begins, its source and its target


class ByteStream(Protocol):
    """A source of bytes: a file, or a decompressor."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, and no bytes at the end."""


def read_lines(path: str | PathLike[str], on_notice: OnFileNotice | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, gzipped or not; `on_notice` reports a byte-order mark and CRLF, once each."""
    for lines in read_line_blocks(path, on_notice):
        yield from lines


def read_line_blocks(path: str | PathLike[str], on_notice: OnFileNotice | None = None) -> Iterator[list[str]]:
    """Yield the lines of a file in blocks."""
    file = Path(path)
    notices = NoticeFilter(file, on_notice)
    count = 0
    with open_bytes(file) as stream:
        for start, block in _whole_line_blocks(stream):
            text = decode_block(block, FilePosition(file, isinstance(stream, gzip.GzipFile), count, start))
            if start == 0 and text.startswith(BYTE_ORDER_MARK):
                notices.send_once("the byte-order mark at the start was removed")
                text = text[1:]
            lines = text.removesuffix("\n").split("\n") if text else []
            if "\r" in text:
                lines = [_strip_carriage_return(line, notices) for line in lines]
            count += len(lines)
            yield lines
    if not count:
        raise UserError(f"{file}: the file is empty; expected text, one sentence per line.")


class NoticeFilter:
    """Sends each notice once."""

    def __init__(self, path: Path, on_notice: OnFileNotice | None) -> None:
        self.path = path
        self.on_notice = on_notice
        self.sent: set[str] = set()

    def send_once(self, text: str) -> None:
        """Send a notice unless it was sent before."""
        if self.on_notice and text not in self.sent:
            self.on_notice(f"{self.path}: {text}.")
        self.sent.add(text)


def put_on_one_line(text: str) -> str:
    """Return a text with line breaks and tabs, and the spaces around them, replaced by single spaces."""
    if not _BREAK.search(text):
        return text
    return " ".join(part for part in _BREAK.split(text) if part)


def _strip_carriage_return(line: str, notices: NoticeFilter) -> str:
    if not line.endswith("\r"):
        return line
    notices.send_once("lines end in CRLF; the CR was removed")
    return line[:-1]


@contextmanager
def open_bytes(path: Path) -> Iterator[ByteStream]:
    """Open a file for reading bytes; decompress it if it starts with the gzip magic number, whatever its name."""
    if "\0" in str(path):
        raise UserError(f"{str(path)!r}: a file name cannot contain NUL characters.")
    try:
        with path.open("rb") as raw:
            if raw.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield unpacked
            else:
                yield raw
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.{did_you_mean_path(path)}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a directory; expected a text file.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: damaged gzip file ({_lowercase_first(error)}). Copy or download it again.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _lowercase_first(error: BaseException) -> str:
    message = str(error).rstrip(".")
    return message[:1].lower() + message[1:]


def _whole_line_blocks(stream: ByteStream) -> Iterator[tuple[int, bytes]]:
    # Yields blocks of whole lines with their offsets in the file; only the last may lack its newline.
    begun: list[bytes] = []  # the parts of a line that is not complete yet
    start = position = 0  # the offset of that line, and of the next read
    while chunk := stream.read(BLOCK_BYTES):
        head, newline, rest = chunk.rpartition(b"\n")
        position += len(chunk)
        if newline:
            yield from _finish_line(start, begun, head + newline, position - len(rest))
            begun, start = [], position - len(rest)
        if rest and position - start <= MAX_LINE_BYTES + BLOCK_BYTES:
            begun.append(rest)
    if begun:
        yield start, _join_and_truncate(begun)


def _finish_line(start: int, begun: list[bytes], lines: bytes, end: int) -> Iterator[tuple[int, bytes]]:
    # Yields the begun line together with the lines that follow, or alone if it is truncated.
    if end - start - len(lines) <= MAX_LINE_BYTES:
        yield start, b"".join([*begun, lines])
        return
    first = lines.index(b"\n") + 1
    yield start, _join_and_truncate(begun) + b"\n"
    if lines[first:]:
        yield end - len(lines) + first, lines[first:]


def _join_and_truncate(parts: list[bytes]) -> bytes:
    line = b"".join(parts)
    if len(line) <= MAX_LINE_BYTES:
        return line
    end = MAX_LINE_BYTES
    while line[end] & 0xC0 == 0x80 and end > MAX_LINE_BYTES - 4:  # inside a character
        end -= 1
    return line[:end]


@dataclass(frozen=True)
class FilePosition:
    """A position in a file, for error messages."""

    file: Path
    is_gzipped: bool
    lines: int  # before this position
    offset: int


def decode_block(block: bytes, position: FilePosition) -> str:
    """Decode a block of lines; raise an error that says where and why it is not UTF-8, or what kind of file it is."""
    if position.offset == 0:
        kind = describe_binary(block[:OPENING_BYTES], position.file)
        if kind:
            raise UserError(f"{position.file} is {kind}")
        _check_not_utf16(block, position.file)
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        line = position.lines + block.count(b"\n", 0, error.start) + 1
        reason = _describe_encoding_error(block, error.start, position.file)
        byte = f"byte {position.offset + error.start:,}{' of the unpacked text' if position.is_gzipped else ''}"
        raise UserError(f"{position.file}: line {line:,}, {byte}: {reason}") from None


def _check_not_utf16(block: bytes, path: Path) -> None:
    # UTF-16 without a byte-order mark can be valid UTF-8 full of NULs.
    name = _detect_utf16(block[:_SAMPLE_BYTES])
    if name:
        raise UserError(f"{path}: line 1, byte 0: not UTF-8; looks like {name}; {_conversion_command(path, name)}")


# What a file is that is not UTF-8, so that the error can say how to convert it


def _describe_encoding_error(block: bytes, error_position: int, path: Path) -> str:
    """Return what bytes that are not UTF-8 look like, and what to do about them."""
    sample = block[max(0, error_position - _SAMPLE_BYTES // 2) :][:_SAMPLE_BYTES]
    if len(sample.translate(None, _CONTROL_BYTES)) < 0.95 * len(sample):
        return "not text; looks like a binary file. Expected UTF-8 text, one sentence per line."
    guess = _guess_encoding(sample)
    if guess is None:
        return (
            "not UTF-8; the file may be damaged here. Repair or remove the line (in a parallel corpus, in both files)."
        )
    return f"not UTF-8; looks like {guess}; {_conversion_command(path, guess)}"


def _conversion_command(path: Path, encoding: str) -> str:
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


def _detect_utf16(sample: bytes) -> str | None:
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
