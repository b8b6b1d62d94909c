"""Text as it is written, token by token: what can be shown already, and never half a character."""

from codecs import getincrementaldecoder
from collections.abc import Generator, Iterable

from dragoman.text.tokenizer import BYTE_VALUES, Tokenizer
from dragoman.text.vocabulary import RESERVED_NAMES
from dragoman.tokens import RESERVED_TOKENS, UNKNOWN


class StreamingDecoder:
    """Turns tokens into text one at a time; all that it returns is together what `Tokenizer.decode` returns.

    A text that is gone on with, rather than begun, keeps the space before its first word.
    """

    def __init__(self, tokenizer: Tokenizer, *, is_continuation: bool = False) -> None:
        self.tokenizer = tokenizer
        # Tokenizers put a space before a text, except those of characters.
        self.space_to_drop = not is_continuation and (tokenizer.is_byte_level or tokenizer.is_word_level)
        self.decoder = getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """Return what can be shown now that `token` is there; nothing while a character lacks some of its bytes."""
        if token < RESERVED_TOKENS and token != UNKNOWN:
            return ""
        piece = self.tokenizer.vocabulary_pieces[token]
        if self.tokenizer.is_byte_level:
            piece = self.decoder.decode(_piece_bytes(piece))
        return self._strip_prefix_space(f" {piece}" if self.tokenizer.is_word_level else piece)

    def end(self) -> str:
        """Return what is left when no more tokens come: the sign for a character that stayed unfinished."""
        return self._strip_prefix_space(self.decoder.decode(b"", final=True))

    def _strip_prefix_space(self, text: str) -> str:
        """Leave out the space that a tokenizer has put before the text."""
        if text and self.space_to_drop:
            self.space_to_drop = False
            return text.removeprefix(" ")
        return text


def _piece_bytes(piece: str) -> bytes:
    """Return the bytes that a byte-level piece stands for."""
    return piece.encode() if piece == RESERVED_NAMES[UNKNOWN] else bytes(BYTE_VALUES[letter] for letter in piece)


def text_until_stop(stop: str, pieces: Iterable[str]) -> Generator[str, None, bool]:
    """Yield pieces of text up to where `stop` begins, if it is not empty; return whether it was found.

    What may be its beginning waits for what follows.
    """
    waiting = ""
    for piece in pieces:
        waiting += piece
        if stop and stop in waiting:
            yield waiting[: waiting.index(stop)]
            return True
        longest = min(max(len(stop) - 1, 0), len(waiting))
        held = next(size for size in range(longest, -1, -1) if waiting.endswith(stop[:size]))
        yield waiting[: len(waiting) - held]
        waiting = waiting[len(waiting) - held :]
    yield waiting
    return False
