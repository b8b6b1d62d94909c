"""Pieces put together to the words that a reader sees.

A word is a run of letters, digits and their marks; each punctuation mark or symbol is a word of its own, and so, where
a script writes no spaces, is each piece. Words are counted like this in alignments too.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.viewer.record import END_PIECE, START_PIECE, WORD_MARKS, Span

# Han, kana, Thai, Lao, Myanmar, Khmer
WITHOUT_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")
JOINING = "'’-\u2011\u200c\u200d"  # between two letters they belong to the word


@dataclass(frozen=True)
class Word:
    """A word, the pieces it is made of, and the characters of the text that it stands for."""

    label: str
    first: int  # its first piece
    end: int  # one past its last
    special: bool = False  # START or END: not a word of the text
    span: Span | None = None


def words(text: str, pieces: Sequence[str], spans: Sequence[Span] = ()) -> list[Word]:
    """Group `pieces` to words: by where they stand in the text if that is known, else by the mark before a word."""
    if spans:
        return words_in(text, pieces, spans)
    starts = [i for i in range(len(pieces)) if begins_word(pieces, i)]
    groups = list(zip(starts, [*starts[1:], len(pieces)], strict=False))  # of no pieces there are none
    labels = ["".join(pieces[first:end]).lstrip("".join(WORD_MARKS)) for first, end in groups]
    found = [Word(labels[i], first, end, is_special(pieces[first])) for i, (first, end) in enumerate(groups)]
    return renamed(found, text.split())


def words_in(text: str, pieces: Sequence[str], spans: Sequence[Span]) -> list[Word]:
    """Group pieces whose places in the text are known."""
    place = places(text)
    trimmed = [trim(text, span) for span in spans]
    starts, last = [], -1  # the word that the piece before ended in
    for i, (start, stop) in enumerate(trimmed):
        apart = i == 0 or is_special(pieces[i]) or is_special(pieces[i - 1])
        if apart or at(place, start) > last or new_sign(text, trimmed[i]):
            starts.append(i)
        last = at(place, max(start, stop - 1))
    ends = [*starts[1:], len(pieces)]
    return [word_of(text, pieces, trimmed, first, end) for first, end in zip(starts, ends, strict=True)]


def word_of(text: str, pieces: Sequence[str], spans: Sequence[Span], first: int, end: int) -> Word:
    """Make a word of consecutive pieces."""
    if is_special(pieces[first]):
        return Word(pieces[first], first, end, special=True)
    start, stop = spans[first][0], max(stop for _, stop in spans[first:end])
    return Word(text[start:stop] or "".join(pieces[first:end]).strip(), first, end, span=(start, stop))


def places(text: str) -> list[int]:
    """Return for each character the number of its word; a space has that of the word after it."""
    found, number = [], 0
    for i in range(len(text)):
        goes_on = i > 0 and in_word(text, i) and in_word(text, i - 1)
        number += i > 0 and not goes_on and not text[i - 1].isspace()
        found.append(number)
    return found


def in_word(text: str, i: int) -> bool:
    """Tell whether a character is part of a word rather than a space, a punctuation mark or a symbol."""
    if text[i] in JOINING:
        return 0 < i < len(text) - 1 and text[i - 1].isalnum() and text[i + 1].isalnum()
    return not text[i].isspace() and unicodedata.category(text[i])[0] not in "PS"


def at(place: Sequence[int], i: int) -> int:
    """Return the word at a character; behind the last one there is another."""
    return place[i] if i < len(place) else (place[-1] if place else 0) + 1


def new_sign(text: str, span: Span) -> bool:
    """Tell whether a piece begins with a sign of a script without spaces."""
    return span[1] > span[0] and bool(WITHOUT_SPACES.match(text, span[0]))


def trim(text: str, span: Span) -> Span:
    """Take the spaces before a piece out of its span."""
    start, stop = span
    return min(stop, start + len(text[start:stop]) - len(text[start:stop].lstrip())), stop


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
