"""Reading lines of text, plain or gzipped, in bounded memory; and saying exactly where a file is not text.

Only b"\\n" ends a line. U+2028, U+0085, form feeds, NUL and carriage returns inside a line are content: counting lines
in any other way (`str.splitlines`, universal newlines) puts two files out of step that belong together.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Protocol

from dragoman.data.encodings import OPENING, SAMPLE, how_to_convert, utf16_name, what_kind_of_binary, why_not_text
from dragoman.errors import UserError

BLOCK = 1 << 20  # bytes read at a time
# Of a longer line only the beginning is kept. It is over-long for every use, and a file may be one line of gigabytes.
LONGEST_LINE = 64 << 20  # bytes
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = "\ufeff"

Notice = Callable[[str], None]


class Stream(Protocol):
    """What bytes are read from: a file, or what unpacks one."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""


def read_lines(path: str | PathLike[str], notice: Notice | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, gzipped or not; `notice` hears once of a byte-order mark and of CRLF."""
    for lines in read_blocks(path, notice):
        yield from lines


def read_blocks(path: str | PathLike[str], notice: Notice | None = None) -> Iterator[list[str]]:
    """Yield the lines of a file, many at a time."""
    place = Path(path)
    said = Said(place, notice)
    count, opening = 0, b""
    with opened(place) as stream:
        for start, block in whole_lines(stream):
            opening = opening or block[:OPENING]
            text = decoded(block, Spot(place, opening, isinstance(stream, gzip.GzipFile), count, start))
            if start == 0 and text.startswith(BYTE_ORDER_MARK):
                said.once("a byte-order mark at its start was removed")
                text = text[1:]
            lines = text.removesuffix("\n").split("\n") if text else []
            if "\r" in text:
                lines = [without_carriage_return(line, said) for line in lines]
            count += len(lines)
            yield lines
    if not count:
        raise UserError(f"{place}: the file is empty; expected text, one sentence a line.")


class Said:
    """Passes each notice on once."""

    def __init__(self, place: Path, notice: Notice | None) -> None:
        self.place = place
        self.notice = notice
        self.already: set[str] = set()

    def once(self, words: str) -> None:
        """Say it, unless it has been said."""
        if self.notice and words not in self.already:
            self.notice(f"{self.place}: {words}.")
        self.already.add(words)


def without_carriage_return(line: str, said: Said) -> str:
    """Take one CR off the end of a line that ended in CRLF."""
    if not line.endswith("\r"):
        return line
    said.once("lines end in CRLF; the CR was removed")
    return line[:-1]


@contextmanager
def opened(place: Path) -> Iterator[Stream]:
    """Open a file for reading bytes, unpacked if it begins as gzip does, whatever its name."""
    if "\0" in str(place):
        raise UserError(f"{str(place)!r}: no possible name of a file, with a NUL in it.")
    try:
        with place.open("rb") as raw:
            if raw.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield unpacked
            else:
                yield raw
    except FileNotFoundError:
        raise UserError(f"{place}: no such file.{neighbours(place)}") from None
    except IsADirectoryError:
        raise UserError(f"{place}: is a directory; expected a file of text.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{place}: damaged gzip file ({sentence(error)}). Copy or download it again.") from None
    except OSError as error:
        raise UserError(f"{place}: cannot be read ({error.strerror or error}).") from None


def sentence(error: BaseException) -> str:
    """Return what a library complained of, to be put in brackets."""
    words = str(error).rstrip(".")
    return words[:1].lower() + words[1:]


def neighbours(place: Path) -> str:
    """Say which file was perhaps meant, where the name differs in the ending .gz only."""
    other = place.with_name(place.name.removesuffix(".gz") if place.suffix == ".gz" else place.name + ".gz")
    return f' Did you mean "{other}"?' if other.name and other.is_file() else ""


def whole_lines(stream: Stream) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines, each with its place in the file; only the last may lack its newline."""
    begun: list[bytes] = []  # the parts of a line that is not yet complete
    start = position = 0  # of that line, and of what is read next
    while chunk := stream.read(BLOCK):
        head, newline, rest = chunk.rpartition(b"\n")
        position += len(chunk)
        if newline:
            yield from closed(start, begun, head + newline, position - len(rest))
            begun, start = [], position - len(rest)
        if rest and position - start <= LONGEST_LINE + BLOCK:
            begun.append(rest)
    if begun:
        yield start, kept(begun)


def closed(start: int, begun: list[bytes], lines: bytes, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the line that had begun together with the lines that follow, or alone if it is cut short."""
    if end - start - len(lines) <= LONGEST_LINE:
        yield start, b"".join([*begun, lines])
        return
    first = lines.index(b"\n") + 1
    yield start, kept(begun) + b"\n"
    if lines[first:]:
        yield end - len(lines) + first, lines[first:]


def kept(parts: list[bytes]) -> bytes:
    """Join the parts of a line; of a very long one, keep as many whole characters as fit."""
    line = b"".join(parts)
    if len(line) <= LONGEST_LINE:
        return line
    end = LONGEST_LINE
    while line[end] & 0xC0 == 0x80 and end > LONGEST_LINE - 4:  # inside a character
        end -= 1
    return line[:end]


@dataclass(frozen=True)
class Spot:
    """A place in a file: how the file begins, and what was read of it before."""

    file: Path
    opening: bytes
    packed: bool
    lines: int
    offset: int


def decoded(block: bytes, spot: Spot) -> str:
    """Return a block of lines as text, or say where and why it is none."""
    if spot.offset == 0:
        refuse_utf16(block, spot.file)
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        line = spot.lines + block.count(b"\n", 0, error.start) + 1
        why = what_kind_of_binary(spot.opening) or why_not_text(block, error.start, spot.file)
        byte = f"byte {spot.offset + error.start:,}{' of the unpacked text' if spot.packed else ''}"
        raise UserError(f"{spot.file}: line {line:,}, {byte}: {why}") from None


def refuse_utf16(block: bytes, place: Path) -> None:
    """Object to UTF-16, which without its mark can pass for UTF-8 full of NULs."""
    name = utf16_name(block[:SAMPLE])
    if name:
        raise UserError(f"{place}: line 1, byte 0: not UTF-8; looks like {name}; {how_to_convert(place, name)}")
