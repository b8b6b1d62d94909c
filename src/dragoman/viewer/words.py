"""Pieces put together to the words that a reader sees."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.viewer.record import END_PIECE, START_PIECE, WORD_MARKS


@dataclass(frozen=True)
class Word:
    """A word, and the pieces it is made of."""

    label: str
    first: int  # its first piece
    end: int  # one past its last
    special: bool = False  # END: not a word of the text


def words(text: str, pieces: Sequence[str]) -> list[Word]:
    """Group `pieces` to words; where no piece carries the word mark (characters, bytes), each is a word."""
    starts = [i for i in range(len(pieces)) if begins_word(pieces, i)]
    spans = list(zip(starts, [*starts[1:], len(pieces)], strict=True))
    labels = ["".join(pieces[first:end]).lstrip("".join(WORD_MARKS)) for first, end in spans]
    found = [Word(labels[i], first, end, is_special(pieces[first])) for i, (first, end) in enumerate(spans)]
    return renamed(found, text.split())


def renamed(found: list[Word], names: list[str]) -> list[Word]:
    """Name words as the text does, if it has as many: pieces may be normalised, or bytes that show as nonsense."""
    if len(names) != sum(not word.special for word in found):
        return found
    left = iter(names)
    return [word if word.special else Word(next(left), word.first, word.end) for word in found]


def begins_word(pieces: Sequence[str], i: int) -> bool:
    """Tell whether piece `i` begins a word."""
    if i == 0 or is_special(pieces[i]) or is_special(pieces[i - 1]):
        return True
    return pieces[i].startswith(WORD_MARKS) or not any(piece.startswith(WORD_MARKS) for piece in pieces)


def is_special(piece: str) -> bool:
    """Tell whether a piece stands for the start or the end rather than for text."""
    return piece in (START_PIECE, END_PIECE)
