"""Streaming detokenization: the text of tokens as they arrive, never half a character."""

from codecs import getincrementaldecoder
from collections.abc import Generator, Iterable

from dragoman.text.tokenizer import Tokenizer
from dragoman.text.vocabulary import BYTE_VALUES, RESERVED_NAMES
from dragoman.tokens import RESERVED_TOKENS, UNKNOWN


class StreamingDecoder:
    """Converts tokens to text one at a time; the concatenated pieces equal the result of `Tokenizer.decode`.

    The continuation of a text keeps the space before its first word.
    """

    def __init__(self, tokenizer: Tokenizer, *, is_continuation: bool = False) -> None:
        self.tokenizer = tokenizer
        # All tokenizers except those of characters put a space before a text.
        self.space_to_drop = not is_continuation and (
            tokenizer.is_byte_level or tokenizer.is_word_level or tokenizer.has_space_marks
        )
        self.decoder = getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """Return the text that `token` completes; an empty string while a character lacks some of its bytes."""
        if token < RESERVED_TOKENS and token != UNKNOWN:
            return ""
        piece = self.tokenizer.with_spaces(self.tokenizer.vocabulary_pieces[token])
        if self.tokenizer.is_byte_level:
            piece = self.decoder.decode(_piece_bytes(piece))
        return self._strip_prefix_space(f" {piece}" if self.tokenizer.is_word_level else piece)

    def end(self) -> str:
        """Return the rest after the last token: a replacement character for an incomplete one."""
        return self._strip_prefix_space(self.decoder.decode(b"", final=True))

    def _strip_prefix_space(self, text: str) -> str:
        """Remove the space that the tokenizer put before the text."""
        if text and self.space_to_drop:
            self.space_to_drop = False
            return text.removeprefix(" ")
        return text


def _piece_bytes(piece: str) -> bytes:
    """Return the bytes of a byte-level piece."""
    return piece.encode() if piece == RESERVED_NAMES[UNKNOWN] else bytes(BYTE_VALUES[letter] for letter in piece)


def text_until_stop(stop: str, pieces: Iterable[str]) -> Generator[str, None, bool]:
    """Yield pieces of text up to the beginning of `stop`, if it is not empty; return whether it was found.

    A possible beginning of `stop` is held back until the next piece.
    """
    waiting = ""
    for piece in pieces:
        waiting += piece
        if stop and stop in waiting:
            yield waiting[: waiting.index(stop)]
            return True
        longest = min(max(len(stop) - 1, 0), len(waiting))
        overlap = next(size for size in range(longest, -1, -1) if waiting.endswith(stop[:size]))
        yield waiting[: len(waiting) - overlap]
        waiting = waiting[len(waiting) - overlap :]
    yield waiting
    return False
