"""Running text on disk: one stream of characters, read in bounded memory however long its lines are.

A file is one stream, gzipped or not; line ends are characters like any other (CRLF becomes LF). For those who work on
some of it at a time it is cut into chunks, where a cut changes nothing: joined they are the text, and cut into pieces
each for itself they are the pieces of the text.
"""

import gzip
import hashlib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dragoman.data.corpus import CorpusScan, FilePath, Pair, ScannedCorpus, check_regular_file
from dragoman.data.encodings import MAGIC_BYTES
from dragoman.data.lines import (
    BLOCK_BYTES,
    BYTE_ORDER_MARK,
    ByteStream,
    FilePosition,
    NoticeFilter,
    OnFileNotice,
    decode_block,
    open_bytes,
)
from dragoman.errors import UserError

CHUNK_CHARACTERS = (
    2000  # characters: less than vocabularies are learned from at a time, so nothing of a chunk is overlooked
)
LOOKAHEAD = 16  # characters looked at on both sides of a cut


@dataclass(frozen=True)
class RunningText(ScannedCorpus):
    """A file of running text. As pairs: nothing to read, and a chunk of the text to write."""

    file: Path
    overlap: int = 1  # how many of the stretches that a model is trained on a token is in

    @classmethod
    def from_file(cls, file: FilePath, overlap: int = 1) -> "RunningText":
        """Name the file."""
        return cls(Path(file), overlap)

    def __str__(self) -> str:
        return str(self.file)

    def pairs(self) -> Iterator[Pair]:
        """Yield every chunk, in order, each with nothing to read before it."""
        return (("", chunk) for chunk in text_chunks(read_text_blocks(self.file)))

    @cached_property
    def scan(self) -> CorpusScan:
        """The number of chunks, and the SHA-256 of the text."""
        check_regular_file(self.file)
        notices: list[str] = []
        digest, count, blank = hashlib.sha256(), 0, True
        for chunk in text_chunks(read_text_blocks(self.file, notices.append)):
            digest.update(chunk.encode())
            count, blank = count + 1, blank and chunk.isspace()
        if blank:
            raise UserError(f"{self.file}: {'nothing but blanks' if count else 'the file is empty'}; expected text.")
        return CorpusScan(count, digest.hexdigest(), tuple(notices))


def read_text_blocks(path: FilePath, on_notice: OnFileNotice | None = None) -> Iterator[str]:
    """Yield a UTF-8 file, gzipped or not, block by block; `notice` hears once of a byte-order mark and of CRLF."""
    place = Path(path)
    said, lines, opening, held = NoticeFilter(place, on_notice), 0, b"", ""
    with open_bytes(place) as stream:
        for start, block in _whole_character_blocks(stream):
            opening = opening or block[:MAGIC_BYTES]
            text = held + decode_block(
                block, FilePosition(place, opening, isinstance(stream, gzip.GzipFile), lines, start)
            )
            lines += block.count(b"\n")
            if start == 0 and text.startswith(BYTE_ORDER_MARK):
                said.send_once("a byte-order mark at its start was removed")
                text = text[1:]
            held = "\r" if text.endswith("\r") else ""  # its LF may come with the next block
            text = text.removesuffix(held)
            if "\r\n" in text:
                said.send_once("lines end in CRLF; the CR was removed")
            yield text.replace("\r\n", "\n")
    yield held


def _whole_character_blocks(stream: ByteStream) -> Iterator[tuple[int, bytes]]:
    """Yield blocks that end with a whole character, each with its place in the file."""
    cut, start = b"", 0
    while more := stream.read(BLOCK_BYTES):
        block = cut + more
        end = len(block) - incomplete_bytes(block)
        yield start, block[:end]
        cut, start = block[end:], start + end
    if cut:
        yield start, cut


def incomplete_bytes(block: bytes) -> int:
    """Return how many bytes at the end of a block begin a character of UTF-8 and do not finish it."""
    for back in range(1, min(4, len(block) + 1)):
        byte = block[-back]
        if byte & 0xC0 != 0x80:  # the first byte of a character, which tells its length
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return back if back < length else 0
    return 0


def text_chunks(blocks: Iterable[str]) -> Iterator[str]:
    """Cut a text, whatever blocks it comes in, into chunks of up to CHUNK characters."""
    rest = ""
    for block in blocks:
        rest, first = rest + block, 0
        while len(rest) - first > CHUNK_CHARACTERS + LOOKAHEAD:
            end = _cut_position(rest, first)
            yield rest[first:end]
            first = end
        rest = rest[first:]
    if rest:
        yield rest


def _cut_position(text: str, first: int) -> int:
    """Return where to end the chunk that begins at `first`: at a line end, else at a space, else between characters.

    The line end or space goes to the next chunk, and words follow it: so tokenizers cut everywhere, and so nothing is
    cut otherwise for having been cut here.
    """
    last = first + CHUNK_CHARACTERS
    for mark in ("\n", " "):
        place = text.rfind(mark, first + 1, last)
        while place > first and text[place + 1].isspace():
            place = text.rfind(mark, first + 1, place)
        if place > first:
            return place
    return next((place for place in range(last, last - CHUNK_CHARACTERS // 2, -1) if _can_cut_at(text, place)), last)


def _can_cut_at(text: str, position: int) -> bool:
    """Say whether what stands before and after a place has the same normal form (NFC) apart as together."""
    before, after = text[position - LOOKAHEAD : position], text[position : position + LOOKAHEAD]
    together = unicodedata.normalize("NFC", before + after)
    return not unicodedata.combining(after[0]) and together == "".join(
        unicodedata.normalize("NFC", part) for part in (before, after)
    )
