"""Sentences: split a text into what a model reads at once, and join the translations again.

`split_sentences` splits at sentence ends and keeps what stands between the sentences (line breaks, blank lines,
indents). `split_long_text` splits only as far as a token limit demands: at sentence ends where possible, then at
clauses, then at spaces, then anywhere. No character is lost by either.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

CountTokens = Callable[[str], int]

# Each pattern matches the end of a part. A mark that needs a space after it is matched by a lookbehind from the space:
# searching forward from the mark would read a long run of dots again from each dot.
_CLOSING_MARKS = "(?:[\"'”’“‘)\\]»›«‹」』]|\\s[»›](?=[\\s,.;:]|$)){0,2}"  # French puts a space before the closing mark
_UNSPACED = "\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff"
_CJK_CLOSING = "(?:[”’」』）]++(?![とっ、，])|(?![”’」』）]))"  # a quotation may be followed by と: 「なぜ？」と聞いた
_SENTENCE_END = re.compile(
    rf"(?<=[.!?…؟۔]){_CLOSING_MARKS}\s++(?![»›](?:[\s,.;:]|$))|[。！？｡．।॥።፧՜՞։།။។៕]++{_CJK_CLOSING}\s*|(?<=[{_UNSPACED}][!?])(?=[{_UNSPACED}])|\n+"
)
_CLAUSE_END = re.compile(rf"(?<=[,;:،؛]){_CLOSING_MARKS}\s+|[、，；：﹑､]+[”’」』）]*\s*|[—–]+\s*|(?<=[)\]])\s+")
_WHITESPACE = re.compile(r"\s+")
_LINE_END = re.compile(r"\n+")

_CHARACTERS_PER_TOKEN = 64  # an upper bound of the average in ordinary text

_UNSPACED_SCRIPT = re.compile(f"[{_UNSPACED}]")  # Chinese and Japanese have no spaces, also between sentences

# A full stop after these does not end a sentence, even before a capital letter.
_ABBREVIATION = re.compile(
    r"approx|bd|bzw|ca|capt|cf|co|col|corp|d\.h|dept|det|dr|e\.g|ee|evtl|fig|gen|ggf|gov|hr|hrn|i\.e|inc|inkl|jr|kpt|lt|"
    r"ltd|m|m\.e|mio|mlle|mme|mr|mrd|mrs|ms|mt|nr|pp|prof|reps?|rev|s\.o|s\.u|sens?|sgt|sra?|srta|st|str|sv|tel|u\.a|vgl|"
    r"vol|vs|z\.b|z\.t"
)
_MONTH = re.compile("jan|febr?|mär|mar|apr|mai|may|jun|jul|aug|sept?|o[ck]t|nov|de[cz]")  # "Oct. 2", "3. Mai"
# Numbers are ordinals after these words ("am 3. Mai"); elsewhere a full stop after a number ends a sentence.
_BEFORE_ORDINAL = re.compile(
    "ab|am|ans|beim|bis|das|de[mnrs]|die|diese[mnr]|im|ins|mein|seine[mnr]?|ihre?[mnr]?|jede[mnrs]?|vom|zu[mr]|und"
)
# After "U.S." or "George W." these words begin a sentence; other capitalised words continue it.
_SENTENCE_STARTER = re.compile(
    "a|but|he|her|his|i|if|in|it|it's|my|our|she|that|the|there|these|they|this|those|we|what|when|where|who|you|"
    "aber|das|der|die|er|es|ich|ihr|sie|und|was|wenn|wer|wie|wir|wo|"
    "c'est|elles?|et|ils?|je|la|les?|nous|on|tu|une?|vous"
)
_WORD = re.compile(r"[^\s(\[\"'„“«‚‘]\S*")  # without an opening mark
_FIRST_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
_LOWERCASE_INITIAL = re.compile(r"[a-z]\.")
_ORDINAL = re.compile(r"\d{1,2}")
_CONTEXT = 48  # characters that are examined before a full stop


@dataclass(frozen=True)
class SegmentedText:
    """A text as its sentences, and the gaps before, between and after them."""

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]  # one more than there are sentences
    long_sentences: int = 0  # that `split_long` has split

    def fill(self, translations: Sequence[str]) -> str:
        """Return the text with each sentence replaced by its translation."""
        assert len(translations) == len(self.sentences), (
            f"{len(translations)} translations of {len(self.sentences)} sentences"
        )
        texts = [text.strip() for text in translations]
        gaps = (
            [self.gaps[0], *map(_separator, texts, texts[1:], self.gaps[1:-1]), self.gaps[-1]] if texts else self.gaps
        )
        return "".join(chain.from_iterable(zip(gaps, [*texts, ""], strict=True)))

    def split_long(self, max_tokens: int, count: CountTokens) -> "SegmentedText":
        """Return the text with its sentences split further where they have more than `max_tokens` tokens."""
        parts = [split_long_text(sentence, max_tokens, count) for sentence in self.sentences]
        segments = chain.from_iterable((gap, *row) for gap, row in zip(self.gaps, [*parts, []], strict=True))
        return replace(_segmented_text(segments), long_sentences=sum(len(row) > 1 for row in parts))


def split_sentences(text: str, *, lines_only: bool = False) -> SegmentedText:
    """Split a text at sentence ends and line breaks, or at line breaks only.

    A full stop after an abbreviation, an initial or an ordinal number does not end a sentence.
    """
    ends = (match.end() for match in _LINE_END.finditer(text)) if lines_only else _sentence_ends(text)
    return _segmented_text(_split_at(text, ends))


def _segmented_text(parts: Iterable[str]) -> SegmentedText:
    """Return consecutive parts of a text as segments; whitespace around them becomes gaps."""
    sentences: list[str] = []
    gaps = [""]
    for part in parts:
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


def _split_at(text: str, ends: Iterable[int]) -> Iterator[str]:
    """Yield the parts of a text between consecutive ends; joined they are the text again."""
    first = 0
    for end in chain(ends, [len(text)]):
        if first < end:
            yield text[first:end]
            first = end


def _sentence_ends(text: str) -> Iterator[int]:
    """Yield the offset after each sentence and the whitespace that follows it."""
    for match in _SENTENCE_END.finditer(text):
        start, end = match.span()
        if "\n" in match[0] or not _is_inside_sentence(
            text[max(0, start - _CONTEXT) : start], text[end : end + _CONTEXT]
        ):
            yield end


def _is_inside_sentence(before: str, after: str) -> bool:
    """Return whether the sentence goes on after a mark and a space, as after an abbreviation."""
    if after[:1].islower():  # "i.e. so", "“Who is it?” she asked"
        return True
    words = _WORD.findall(before)
    if not words or not words[-1].endswith("."):
        return False
    word, previous = words[-1].removesuffix("."), words[-2] if len(words) > 1 else ""
    match = _FIRST_WORD.match(after)
    following = match[0].lower() if match else ""
    return bool(
        _ABBREVIATION.fullmatch(word.lower())
        or (_MONTH.fullmatch(word.lower()) and following.isdecimal())
        or (_ORDINAL.fullmatch(word) and _is_ordinal(previous.lower(), following))
        or (_INITIALS.fullmatch(word) and _is_initial(word, previous, following, after))
    )


def _is_ordinal(previous: str, following: str) -> bool:
    """Return whether a number between these words is an ordinal, as in "am 3. Mai", or numbers an item of a list."""
    if _MONTH.fullmatch(previous.removesuffix(".")):  # "on Oct. 2."
        return False
    return bool(not previous or previous[-1] in ".," or _BEFORE_ORDINAL.fullmatch(previous) or _MONTH.match(following))


def _is_initial(word: str, previous: str, following: str, after: str) -> bool:
    """Return whether letters with full stops belong to a name or an abbreviation: "J. R. Smith", "U.S. Senate"."""
    if _LOWERCASE_INITIAL.fullmatch(previous):  # the second half of "z. B."
        return True
    if word.islower() or after[1:2] == ".":  # "z. B.", "J. R. Smith"
        return len(following) == 1 and after[1:2] == "."
    is_name = "." in word or not previous or previous[0].isupper()  # "George W. Bush", but not "a grade of D."
    return is_name and bool(following) and not _SENTENCE_STARTER.fullmatch(following)


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
    for part in _split_at(text, _BOUNDARIES[level](text)):
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


def _ends_of(pattern: re.Pattern[str]) -> Callable[[str], Iterator[int]]:
    return lambda text: (match.end() for match in pattern.finditer(text))


_BOUNDARIES = (_sentence_ends, _ends_of(_CLAUSE_END), _ends_of(_WHITESPACE))


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
