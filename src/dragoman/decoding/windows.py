"""Text that is too long to read at once: where to cut it, and how to put the outputs together again.

A cut falls at the end of a sentence where there is one, else after a clause, else at a space, else anywhere; nothing
is left out. Knows strings and a way to count pieces, and no tokenizer.
"""

import re
from collections.abc import Callable, Iterable, Iterator

Count = Callable[[str], int]

# Each pattern matches what closes a part. A mark that needs a space after it is only looked back at from the space:
# searching forward from the mark would read a long run of dots again from each of them.
CLOSING = "[\"'”’)\\]»›」』]"
LOWER = "a-zß-öø-ÿа-яα-ω"  # after these marks a small letter goes on with the sentence: "i.e. so"
SENTENCE_END = re.compile(rf"(?<=[.!?…؟۔]){CLOSING}{{0,2}}\s++(?![{LOWER}])|[。！？｡．।॥።។။།]+[”’」』）]*\s*|\n+")
CLAUSE_END = re.compile(rf"(?<=[,;:،؛]){CLOSING}{{0,2}}\s+|[、，；：﹑､]+[”’」』）]*\s*|[—–]+\s*|(?<=[)\]])\s+")
SPACE = re.compile(r"\s+")
ENDS = (SENTENCE_END, CLAUSE_END, SPACE)

LONG = 64  # characters a piece: no ordinary text has longer ones on average

# Chinese and Japanese write no spaces, not even between sentences.
WITHOUT_SPACES = re.compile(
    "[\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff]"
)


def split(text: str, longest: int, count: Count) -> list[str]:
    """Cut text into chunks of at most `longest` pieces, as `count` counts them; joined they are the text again."""
    return [text] if counted(text, longest, count) <= longest else list(chunks(text, longest, count, level=0))


def join(parts: Iterable[str]) -> str:
    """Put the outputs for the chunks of one text together, with a space between them where the script has spaces."""
    joined: list[str] = []
    for part in filter(None, (part.strip() for part in parts)):
        if joined and not (WITHOUT_SPACES.match(joined[-1][-1]) or WITHOUT_SPACES.match(part)):
            joined.append(" ")
        joined.append(part)
    return "".join(joined)


def counted(text: str, longest: int, count: Count) -> int:
    """Return the pieces of text; text that will be cut anyway is not counted whole, only guessed."""
    return count(text) if len(text) <= LONG * longest else len(text) // LONG + 1


def chunks(text: str, longest: int, count: Count, level: int) -> Iterator[str]:
    """Yield chunks cut at the ends of this level; a part that is still too long is cut at the next level."""
    if level == len(ENDS):
        yield from windows(text, longest, count)
        return
    waiting: list[str] = []
    room = longest
    for part in parts_of(text, ENDS[level]):
        size = counted(part, longest, count)
        if size > room:
            yield from packed(waiting, longest, count)
            waiting, room = [], longest
        if size > longest:
            yield from chunks(part, longest, count, level + 1)
        else:
            waiting.append(part)
            room -= size
    yield from packed(waiting, longest, count)


def parts_of(text: str, end: re.Pattern[str]) -> Iterator[str]:
    """Yield the parts of text up to and including each end."""
    first = 0
    for match in end.finditer(text):
        yield text[first : match.end()]
        first = match.end()
    if first < len(text):
        yield text[first:]


def packed(parts: list[str], longest: int, count: Count) -> Iterator[str]:
    """Yield the parts as one chunk, or as several if together they have more pieces than each for itself."""
    chunk = "".join(parts)
    if len(parts) <= 1 or count(chunk) <= longest:
        yield from filter(None, [chunk])
    else:
        yield from packed(parts[: len(parts) // 2], longest, count)
        yield from packed(parts[len(parts) // 2 :], longest, count)


def windows(text: str, longest: int, count: Count) -> Iterator[str]:
    """Yield windows on text without any end to cut at, as even as they come; one character is never cut."""
    size = counted(text, longest, count)
    if size <= longest or len(text) == 1:
        yield text
        return
    width = -(-len(text) // -(-size // longest))  # at least two windows
    for first in range(0, len(text), width):
        yield from windows(text[first : first + width], longest, count)
