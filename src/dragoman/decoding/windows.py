"""Text that is too long to read at once: where to cut it, and how to put the outputs together again.

A cut falls at the end of a sentence where there is one, else after a clause, else at a space, else anywhere; nothing
is left out. Knows strings and a way to count pieces, and no tokenizer.
"""

import re
from collections.abc import Callable, Iterable, Iterator

CountTokens = Callable[[str], int]

# Each pattern matches what closes a part. A mark that needs a space after it is only looked back at from the space:
# searching forward from the mark would read a long run of dots again from each of them.
_CLOSING_MARKS = "[\"'”’)\\]»›」』]"
_LOWERCASE = "a-zß-öø-ÿа-яα-ω"  # after these marks a small letter goes on with the sentence: "i.e. so"
SENTENCE_END = re.compile(
    rf"(?<=[.!?…؟۔]){_CLOSING_MARKS}{{0,2}}\s++(?![{_LOWERCASE}])|[。！？｡．।॥።។။།]+[”’」』）]*\s*|\n+"
)
_CLAUSE_END = re.compile(rf"(?<=[,;:،؛]){_CLOSING_MARKS}{{0,2}}\s+|[、，；：﹑､]+[”’」』）]*\s*|[—–]+\s*|(?<=[)\]])\s+")
_WHITESPACE = re.compile(r"\s+")
_BOUNDARIES = (SENTENCE_END, _CLAUSE_END, _WHITESPACE)

_CHARACTERS_PER_TOKEN = 64  # characters a piece: no ordinary text has longer ones on average

# Chinese and Japanese write no spaces, not even between sentences.
UNSPACED_SCRIPT = re.compile(
    "[\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff]"
)


def split_long_text(text: str, max_tokens: int, count: CountTokens) -> list[str]:
    """Cut text into chunks of at most `longest` pieces, as `count` counts them; joined they are the text again."""
    return (
        [text]
        if _estimate_tokens(text, max_tokens, count) <= max_tokens
        else list(_chunks(text, max_tokens, count, level=0))
    )


def join_texts(parts: Iterable[str]) -> str:
    """Put the outputs for the chunks of one text together, with a space between them where the script has spaces."""
    joined: list[str] = []
    for part in filter(None, (part.strip() for part in parts)):
        if joined and not (UNSPACED_SCRIPT.match(joined[-1][-1]) or UNSPACED_SCRIPT.match(part)):
            joined.append(" ")
        joined.append(part)
    return "".join(joined)


def _estimate_tokens(text: str, max_tokens: int, count: CountTokens) -> int:
    """Return the pieces of text; text that will be cut anyway is not counted whole, only guessed."""
    return count(text) if len(text) <= _CHARACTERS_PER_TOKEN * max_tokens else len(text) // _CHARACTERS_PER_TOKEN + 1


def _chunks(text: str, max_tokens: int, count: CountTokens, level: int) -> Iterator[str]:
    """Yield chunks cut at the ends of this level; a part that is still too long is cut at the next level."""
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
    """Yield the parts of text up to and including each end."""
    first = 0
    for match in end.finditer(text):
        yield text[first : match.end()]
        first = match.end()
    if first < len(text):
        yield text[first:]


def _pack_parts(parts: list[str], max_tokens: int, count: CountTokens) -> Iterator[str]:
    """Yield the parts as one chunk, or as several if together they have more pieces than each for itself."""
    chunk = "".join(parts)
    if len(parts) <= 1 or count(chunk) <= max_tokens:
        yield from filter(None, [chunk])
    else:
        yield from _pack_parts(parts[: len(parts) // 2], max_tokens, count)
        yield from _pack_parts(parts[len(parts) // 2 :], max_tokens, count)


def _split_evenly(text: str, max_tokens: int, count: CountTokens) -> Iterator[str]:
    """Yield windows on text without any end to cut at, as even as they come; one character is never cut."""
    size = _estimate_tokens(text, max_tokens, count)
    if size <= max_tokens or len(text) == 1:
        yield text
        return
    width = -(-len(text) // -(-size // max_tokens))  # at least two windows
    for first in range(0, len(text), width):
        yield from _split_evenly(text[first : first + width], max_tokens, count)
