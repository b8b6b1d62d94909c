"""Running text on disk: one stream of characters, read in bounded memory however long its lines are.

A file is one stream, gzipped or not; line ends are ordinary characters (CRLF becomes LF). The stream is split into
chunks so that the chunks joined are the text, and their tokens joined are the tokens of the text.
"""

import gzip
import hashlib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dragoman.data.corpus import CorpusScan, FilePath, Pair, ScannedCorpus, check_regular_file
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

CHUNK_CHARACTERS = 2000  # less than tokenizers are trained on at a time, so that no part of a chunk is skipped
LOOKAHEAD = 16  # characters on both sides of a split that are compared


@dataclass(frozen=True)
class RunningText(ScannedCorpus):
    """A file of running text; as pairs, each has an empty source and a chunk of the text as its target."""

    file: Path
    overlap: int = 1  # training windows that each token is in

    @classmethod
    def from_file(cls, file: FilePath, overlap: int = 1) -> "RunningText":
        """Return the text of a file."""
        return cls(Path(file), overlap)

    def __str__(self) -> str:
        return str(self.file)

    def pairs(self) -> Iterator[Pair]:
        """Yield every chunk, in order, as a pair with an empty source."""
        return (("", chunk) for chunk in text_chunks(read_text_blocks(self.file)))

    @cached_property
    def scan(self) -> CorpusScan:
        """The number of chunks, and the SHA-256 digest of the text."""
        check_regular_file(self.file)
        notices: list[str] = []
        digest, count, blank = hashlib.sha256(), 0, True
        for chunk in text_chunks(read_text_blocks(self.file, notices.append)):
            digest.update(chunk.encode())
            count, blank = count + 1, blank and chunk.isspace()
        if blank:
            raise UserError(f"{self.file}: {'only white space' if count else 'the file is empty'}; expected text.")
        return CorpusScan(count, digest.hexdigest(), tuple(notices))


def read_text_blocks(path: FilePath, on_notice: OnFileNotice | None = None) -> Iterator[str]:
    """Yield a UTF-8 file in blocks, gzipped or not; `on_notice` reports a byte-order mark and CRLF, once each."""
    file = Path(path)
    notices, lines, pending = NoticeFilter(file, on_notice), 0, ""
    with open_bytes(file) as stream:
        for start, block in _whole_character_blocks(stream):
            text = pending + decode_block(block, FilePosition(file, isinstance(stream, gzip.GzipFile), lines, start))
            lines += block.count(b"\n")
            if start == 0 and text.startswith(BYTE_ORDER_MARK):
                notices.send_once("the byte-order mark at the start was removed")
                text = text[1:]
            pending = "\r" if text.endswith("\r") else ""  # its LF may come with the next block
            text = text.removesuffix(pending)
            if "\r\n" in text:
                notices.send_once("lines end in CRLF; the CR was removed")
            yield text.replace("\r\n", "\n")
    yield pending


def _whole_character_blocks(stream: ByteStream) -> Iterator[tuple[int, bytes]]:
    # Yields blocks that end with a whole character, with their offsets in the file.
    cut, start = b"", 0
    while more := stream.read(BLOCK_BYTES):
        block = cut + more
        end = len(block) - incomplete_bytes(block)
        yield start, block[:end]
        cut, start = block[end:], start + end
    if cut:
        yield start, cut


def incomplete_bytes(block: bytes) -> int:
    """Return the number of bytes at the end of a block that are an incomplete UTF-8 character."""
    for back in range(1, min(4, len(block) + 1)):
        byte = block[-back]
        if byte & 0xC0 != 0x80:  # the first byte of a character determines its length
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return back if back < length else 0
    return 0


def text_chunks(blocks: Iterable[str]) -> Iterator[str]:
    """Yield a text, given in any blocks, in chunks of up to `CHUNK_CHARACTERS` characters."""
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
    # A chunk ends at a line end, else at a space, else between characters. The line end or space goes to the next chunk
    # and a word follows it: tokenizers split there too, so the split does not change the tokens.
    last = first + CHUNK_CHARACTERS
    for mark in ("\n", " "):
        position = text.rfind(mark, first + 1, last)
        while position > first and text[position + 1].isspace():
            position = text.rfind(mark, first + 1, position)
        if position > first:
            return position
    candidates = range(last, last - CHUNK_CHARACTERS // 2, -1)
    return next((position for position in candidates if _can_cut_at(text, position)), last)


def _can_cut_at(text: str, position: int) -> bool:
    # Whether the parts before and after have the same normal form (NFC) apart as together.
    before, after = text[position - LOOKAHEAD : position], text[position : position + LOOKAHEAD]
    together = unicodedata.normalize("NFC", before + after)
    return not unicodedata.combining(after[0]) and together == "".join(
        unicodedata.normalize("NFC", part) for part in (before, after)
    )
