"""Group pieces into words.

A word is a sequence of letters, digits and their marks; each punctuation mark or symbol is a word, and in scripts
without spaces each piece is. Word alignments use the same words.
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
_WORD_JOINERS = "'’-\u2011\u200c\u200d"  # part of a word between two letters


@dataclass(frozen=True)
class WordSpan:
    """A word with its range of pieces and its span in the text."""

    label: str
    first: int  # its first piece
    end: int  # one past its last
    special: bool = False  # START or END
    span: CharSpan | None = None


def group_words(text: str, pieces: Sequence[str], spans: Sequence[CharSpan] = ()) -> list[WordSpan]:
    """Group `pieces` into words by their spans if given, otherwise by their word marks."""
    if spans:
        return _group_by_spans(text, pieces, spans)
    starts = [i for i in range(len(pieces)) if _begins_word(pieces, i)]
    groups = list(zip(starts, [*starts[1:], len(pieces)], strict=False))
    labels = ["".join(pieces[first:end]).lstrip("".join(WORD_MARKS)) for first, end in groups]
    words = [WordSpan(labels[i], first, end, is_special_piece(pieces[first])) for i, (first, end) in enumerate(groups)]
    return _relabel_words(words, text.split())


def _group_by_spans(text: str, pieces: Sequence[str], spans: Sequence[CharSpan]) -> list[WordSpan]:
    numbers = word_numbers(text)
    trimmed = [trim_span(text, span) for span in spans]
    starts, last = [], -1  # the word in which the previous piece ended
    for i, (start, stop) in enumerate(trimmed):
        is_separate = i == 0 or is_special_piece(pieces[i]) or is_special_piece(pieces[i - 1])
        if is_separate or _word_number_at(numbers, start) > last or _starts_unspaced_script(text, trimmed[i]):
            starts.append(i)
        last = _word_number_at(numbers, max(start, stop - 1))
    ends = [*starts[1:], len(pieces)]
    return [_make_word(text, pieces, trimmed, first, end) for first, end in zip(starts, ends, strict=True)]


def _make_word(text: str, pieces: Sequence[str], spans: Sequence[CharSpan], first: int, end: int) -> WordSpan:
    if is_special_piece(pieces[first]):
        return WordSpan(pieces[first], first, end, special=True)
    start, stop = spans[first][0], max(stop for _, stop in spans[first:end])
    return WordSpan(text[start:stop] or "".join(pieces[first:end]).strip(), first, end, span=(start, stop))


def word_numbers(text: str) -> list[int]:
    """Return the word number of each character; a space has the number of the following word."""
    numbers, number = [], 0
    for i in range(len(text)):
        continues = i > 0 and _is_word_character(text, i) and _is_word_character(text, i - 1)
        number += i > 0 and not continues and not text[i - 1].isspace()
        numbers.append(number)
    return numbers


def _is_word_character(text: str, i: int) -> bool:
    """Return whether a character is part of a word rather than a space, a punctuation mark or a symbol."""
    if text[i] in _WORD_JOINERS:
        return 0 < i < len(text) - 1 and text[i - 1].isalnum() and text[i + 1].isalnum()
    return not text[i].isspace() and unicodedata.category(text[i])[0] not in "PS"


def _word_number_at(numbers: Sequence[int], i: int) -> int:
    """Return the word number at a character; the end of the text has a new number."""
    return numbers[i] if i < len(numbers) else (numbers[-1] if numbers else 0) + 1


def _starts_unspaced_script(text: str, span: CharSpan) -> bool:
    """Return whether a piece begins with a character of a script without spaces."""
    return span[1] > span[0] and bool(_UNSPACED_SCRIPTS.match(text, span[0]))


def trim_span(text: str, span: CharSpan) -> CharSpan:
    """Remove leading spaces from the span of a piece."""
    start, stop = span
    return min(stop, start + len(text[start:stop]) - len(text[start:stop].lstrip())), stop


def _relabel_words(words: list[WordSpan], labels: list[str]) -> list[WordSpan]:
    """Label words as in the text if their number is equal: pieces may be normalised, or single bytes."""
    if len(labels) != sum(not word.special for word in words):
        return words
    remaining = iter(labels)
    return [word if word.special else WordSpan(next(remaining), word.first, word.end) for word in words]


def _begins_word(pieces: Sequence[str], i: int) -> bool:
    if i == 0 or is_special_piece(pieces[i]) or is_special_piece(pieces[i - 1]):
        return True
    return pieces[i].startswith(WORD_MARKS) or not any(piece.startswith(WORD_MARKS) for piece in pieces)


def is_special_piece(piece: str) -> bool:
    """Return whether a piece is START or END."""
    return piece in (START_PIECE, END_PIECE)
