"""Text as it is written, token by token: what can be shown already, and never half a character."""

from codecs import getincrementaldecoder
from collections.abc import Generator, Iterable

from dragoman.text.tokenizer import BYTE, Tokenizer
from dragoman.text.vocabulary import NAMES
from dragoman.tokens import RESERVED, UNKNOWN


class Writing:
    """Turns tokens into text one at a time; all that it returns is together what `Tokenizer.decode` returns.

    A text that is gone on with, rather than begun, keeps the space before its first word.
    """

    def __init__(self, tokenizer: Tokenizer, *, begun: bool = False) -> None:
        self.tokenizer = tokenizer
        # Tokenizers put a space before a text, except those of characters.
        self.space_to_drop = not begun and (tokenizer.byte_level or tokenizer.splits_at_spaces)
        self.decoder = getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """Return what can be shown now that `token` is there; nothing while a character lacks some of its bytes."""
        if token < RESERVED and token != UNKNOWN:
            return ""
        piece = self.tokenizer.stored[token]
        if self.tokenizer.byte_level:
            piece = self.decoder.decode(bytes_of(piece))
        return self.shown(f" {piece}" if self.tokenizer.splits_at_spaces else piece)

    def end(self) -> str:
        """Return what is left when no more tokens come: the sign for a character that stayed unfinished."""
        return self.shown(self.decoder.decode(b"", final=True))

    def shown(self, text: str) -> str:
        """Leave out the space that a tokenizer has put before the text."""
        if text and self.space_to_drop:
            self.space_to_drop = False
            return text.removeprefix(" ")
        return text


def bytes_of(piece: str) -> bytes:
    """Return the bytes that a byte-level piece stands for."""
    return piece.encode() if piece == NAMES[UNKNOWN] else bytes(BYTE[letter] for letter in piece)


def up_to(stop: str, pieces: Iterable[str]) -> Generator[str, None, bool]:
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
