"""Sentences: split a text that is too long to translate at once, and join the translations again.

`split_sentences` splits at sentence ends and keeps what stands between the sentences (line breaks, blank lines,
indents). `split_long_text` splits only as far as a token limit demands: at sentence ends where possible, then at
clauses, then at spaces, then anywhere. No character is lost by either.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

CountTokens = Callable[[str], int]

# Each pattern matches the end of a part. A mark that needs a space after it is matched by a lookbehind from the space:
# searching forward from the mark would read a long run of dots again from each dot.
_CLOSING_MARKS = "[\"'”’)\\]»›」』]"
_LOWERCASE = "a-zß-öø-ÿа-яα-ω"  # a lowercase letter after a full stop continues the sentence: "i.e. so"
_SENTENCE_END = re.compile(
    rf"(?<=[.!?…؟۔]){_CLOSING_MARKS}{{0,2}}\s++(?![{_LOWERCASE}])|[。！？｡．।॥።។။།]+[”’」』）]*\s*|\n+"
)
_CLAUSE_END = re.compile(rf"(?<=[,;:،؛]){_CLOSING_MARKS}{{0,2}}\s+|[、，；：﹑､]+[”’」』）]*\s*|[—–]+\s*|(?<=[)\]])\s+")
_WHITESPACE = re.compile(r"\s+")
_BOUNDARIES = (_SENTENCE_END, _CLAUSE_END, _WHITESPACE)
_LINE_END = re.compile(r"\n+")

_CHARACTERS_PER_TOKEN = 64  # an upper bound of the average in ordinary text

# Chinese and Japanese are written without spaces, also between sentences.
_UNSPACED_SCRIPT = re.compile(
    "[\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff]"
)

# A full stop after these does not end a sentence, even before a capital letter.
_ABBREVIATION = re.compile(
    "approx|bd|bzw|ca|capt|cf|co|col|corp|d.h|dept|dr|e.g|evtl|fig|gen|ggf|gov|hr|hrn|i.e|inc|inkl|jr|lt|ltd|m.e|mio|"
    "mlle|mme|mr|mrd|mrs|ms|nr|pp|prof|rev|s.o|s.u|sen|sgt|sr|st|str|tel|u.a|u.s|vgl|vol|vs|z.b|z.t"
)
_LAST_WORD = re.compile(r"([^\s(\[\"'„“«]+)\.[\"'”’)\]»]*\s*$")
_ORDINAL = re.compile(r"\d{1,2}")  # "am 3. Mai"; a year ends a sentence more often than not


@dataclass(frozen=True)
class SegmentedText:
    """A text as its sentences, and the gaps before, between and after them."""

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]  # one more than there are sentences

    def fill(self, translations: Sequence[str]) -> str:
        """Return the text with each sentence replaced by its translation."""
        assert len(translations) == len(self.sentences), f"{len(translations)} for {len(self.sentences)} sentences"
        texts = [text.strip() for text in translations]
        gaps = (
            [self.gaps[0], *map(_separator, texts, texts[1:], self.gaps[1:-1]), self.gaps[-1]] if texts else self.gaps
        )
        return "".join(chain.from_iterable(zip(gaps, [*texts, ""], strict=True)))


def split_sentences(text: str, *, lines_only: bool = False) -> SegmentedText:
    """Split a text at sentence ends and line breaks, or at line breaks only.

    A full stop after an abbreviation, an initial or an ordinal number does not end a sentence.
    """
    sentences: list[str] = []
    gaps = [""]
    for part in _sentence_parts(text, lines_only):
        sentence = part.strip()
        first = part.find(sentence) if sentence else len(part)
        gaps[-1] += part[:first]
        if sentence:
            sentences.append(sentence)
            gaps.append(part[first + len(sentence) :])
    return SegmentedText(tuple(sentences), tuple(gaps))


def split_long_text(text: str, max_tokens: int, count: CountTokens) -> list[str]:
    """Split a text into segments of at most `max_tokens` tokens, counted by `count`; joined they are the text again."""
    if _estimate_tokens(text, max_tokens, count) <= max_tokens:
        return [text]
    return list(_chunks(text, max_tokens, count, level=0))


def join_texts(parts: Iterable[str]) -> str:
    """Join the outputs for the segments of a text, with a space between them if the script has spaces."""
    texts = [text for part in parts if (text := part.strip())]
    return SegmentedText(tuple(texts), ("", *[" "] * (len(texts) - 1), "") if texts else ("",)).fill(texts)


def _sentence_parts(text: str, lines_only: bool) -> Iterator[str]:
    """Yield each sentence with the whitespace after it; joined they are the text again."""
    first = 0
    for match in (_LINE_END if lines_only else _SENTENCE_END).finditer(text):
        if "\n" in match[0] or not _ends_with_abbreviation(text[max(first, match.start() - 16) : match.start()]):
            yield text[first : match.end()]
            first = match.end()
    if first < len(text):
        yield text[first:]


def _ends_with_abbreviation(before: str) -> bool:
    match = _LAST_WORD.search(before)
    if not match:
        return False
    word = match[1].lower()
    return len(word) == 1 or bool(_ABBREVIATION.fullmatch(word) or _ORDINAL.fullmatch(word))


def _separator(left: str, right: str, gap: str) -> str:
    """Return what to put between two translations in place of `gap`: a space only if the script has spaces."""
    if gap not in ("", " ") or not left or not right:
        return gap
    return "" if _UNSPACED_SCRIPT.match(left[-1]) or _UNSPACED_SCRIPT.match(right[0]) else " "


def _estimate_tokens(text: str, max_tokens: int, count: CountTokens) -> int:
    """Return the number of tokens; a text that must be split anyway is not counted but estimated from its length."""
    return count(text) if len(text) <= _CHARACTERS_PER_TOKEN * max_tokens else len(text) // _CHARACTERS_PER_TOKEN + 1


def _chunks(text: str, max_tokens: int, count: CountTokens, level: int) -> Iterator[str]:
    """Yield chunks split at boundaries of this level; a part that is still too long is split at the next level."""
    if level == len(_BOUNDARIES):
        yield from _split_evenly(text, max_tokens, count)
        return
    waiting: list[str] = []
    room = max_tokens
    for part in _split_after(text, _BOUNDARIES[level]):
        size = _estimate_tokens(part, max_tokens, count)
        if size > room:
            yield from _pack_parts(waiting, max_tokens, count)
            waiting, room = [], max_tokens
        if size > max_tokens:
            yield from _chunks(part, max_tokens, count, level + 1)
        else:
            waiting.append(part)
            room -= size
    yield from _pack_parts(waiting, max_tokens, count)


def _split_after(text: str, end: re.Pattern[str]) -> Iterator[str]:
    """Yield the parts of a text up to and including each match of `end`."""
    first = 0
    for match in end.finditer(text):
        yield text[first : match.end()]
        first = match.end()
    if first < len(text):
        yield text[first:]


def _pack_parts(parts: list[str], max_tokens: int, count: CountTokens) -> Iterator[str]:
    """Yield the parts as one chunk, or as several if joining them makes more tokens than the limit."""
    chunk = "".join(parts)
    if len(parts) <= 1 or count(chunk) <= max_tokens:
        yield from filter(None, [chunk])
    else:
        yield from _pack_parts(parts[: len(parts) // 2], max_tokens, count)
        yield from _pack_parts(parts[len(parts) // 2 :], max_tokens, count)


def _split_evenly(text: str, max_tokens: int, count: CountTokens) -> Iterator[str]:
    """Yield parts of about equal length of a text without boundaries; a single character is never split."""
    size = _estimate_tokens(text, max_tokens, count)
    if size <= max_tokens or len(text) == 1:
        yield text
        return
    width = -(-len(text) // -(-size // max_tokens))  # at least two parts
    for first in range(0, len(text), width):
        yield from _split_evenly(text[first : first + width], max_tokens, count)
