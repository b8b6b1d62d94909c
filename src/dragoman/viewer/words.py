"""Pieces put together to the words that a reader sees.

A word is a run of letters, digits and their marks; each punctuation mark or symbol is a word of its own, and so, where
a script writes no spaces, is each piece. Words are counted like this in alignments too.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.viewer.record import END_PIECE, START_PIECE, WORD_MARKS, CharSpan

# Han, kana, Thai, Lao, Myanmar, Khmer
_UNSPACED_SCRIPTS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)
_WORD_JOINERS = "'’-\u2011\u200c\u200d"  # between two letters they belong to the word


@dataclass(frozen=True)
class WordSpan:
    """A word, the pieces it is made of, and the characters of the text that it stands for."""

    label: str
    first: int  # its first piece
    end: int  # one past its last
    special: bool = False  # START or END: not a word of the text
    span: CharSpan | None = None


def group_words(text: str, pieces: Sequence[str], spans: Sequence[CharSpan] = ()) -> list[WordSpan]:
    """Group `pieces` to words: by where they stand in the text if that is known, else by the mark before a word."""
    if spans:
        return _group_by_spans(text, pieces, spans)
    starts = [i for i in range(len(pieces)) if _begins_word(pieces, i)]
    groups = list(zip(starts, [*starts[1:], len(pieces)], strict=False))  # of no pieces there are none
    labels = ["".join(pieces[first:end]).lstrip("".join(WORD_MARKS)) for first, end in groups]
    found = [WordSpan(labels[i], first, end, is_special_piece(pieces[first])) for i, (first, end) in enumerate(groups)]
    return _relabel_words(found, text.split())


def _group_by_spans(text: str, pieces: Sequence[str], spans: Sequence[CharSpan]) -> list[WordSpan]:
    """Group pieces whose places in the text are known."""
    place = word_numbers(text)
    trimmed = [trim_span(text, span) for span in spans]
    starts, last = [], -1  # the word that the piece before ended in
    for i, (start, stop) in enumerate(trimmed):
        apart = i == 0 or is_special_piece(pieces[i]) or is_special_piece(pieces[i - 1])
        if apart or _word_number_at(place, start) > last or _starts_unspaced_script(text, trimmed[i]):
            starts.append(i)
        last = _word_number_at(place, max(start, stop - 1))
    ends = [*starts[1:], len(pieces)]
    return [_make_word(text, pieces, trimmed, first, end) for first, end in zip(starts, ends, strict=True)]


def _make_word(text: str, pieces: Sequence[str], spans: Sequence[CharSpan], first: int, end: int) -> WordSpan:
    """Make a word of consecutive pieces."""
    if is_special_piece(pieces[first]):
        return WordSpan(pieces[first], first, end, special=True)
    start, stop = spans[first][0], max(stop for _, stop in spans[first:end])
    return WordSpan(text[start:stop] or "".join(pieces[first:end]).strip(), first, end, span=(start, stop))


def word_numbers(text: str) -> list[int]:
    """Return for each character the number of its word; a space has that of the word after it."""
    found, number = [], 0
    for i in range(len(text)):
        goes_on = i > 0 and _is_word_character(text, i) and _is_word_character(text, i - 1)
        number += i > 0 and not goes_on and not text[i - 1].isspace()
        found.append(number)
    return found


def _is_word_character(text: str, i: int) -> bool:
    """Tell whether a character is part of a word rather than a space, a punctuation mark or a symbol."""
    if text[i] in _WORD_JOINERS:
        return 0 < i < len(text) - 1 and text[i - 1].isalnum() and text[i + 1].isalnum()
    return not text[i].isspace() and unicodedata.category(text[i])[0] not in "PS"


def _word_number_at(numbers: Sequence[int], i: int) -> int:
    """Return the word at a character; behind the last one there is another."""
    return numbers[i] if i < len(numbers) else (numbers[-1] if numbers else 0) + 1


def _starts_unspaced_script(text: str, span: CharSpan) -> bool:
    """Tell whether a piece begins with a sign of a script without spaces."""
    return span[1] > span[0] and bool(_UNSPACED_SCRIPTS.match(text, span[0]))


def trim_span(text: str, span: CharSpan) -> CharSpan:
    """Take the spaces before a piece out of its span."""
    start, stop = span
    return min(stop, start + len(text[start:stop]) - len(text[start:stop].lstrip())), stop


def _relabel_words(words: list[WordSpan], labels: list[str]) -> list[WordSpan]:
    """Name words as the text does, if it has as many: pieces may be normalised, or bytes that show as nonsense."""
    if len(labels) != sum(not word.special for word in words):
        return words
    left = iter(labels)
    return [word if word.special else WordSpan(next(left), word.first, word.end) for word in words]


def _begins_word(pieces: Sequence[str], i: int) -> bool:
    """Tell whether piece `i` begins a word."""
    if i == 0 or is_special_piece(pieces[i]) or is_special_piece(pieces[i - 1]):
        return True
    return pieces[i].startswith(WORD_MARKS) or not any(piece.startswith(WORD_MARKS) for piece in pieces)


def is_special_piece(piece: str) -> bool:
    """Tell whether a piece stands for the start or the end rather than for text."""
    return piece in (START_PIECE, END_PIECE)
