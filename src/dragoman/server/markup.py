"""HTML to translate: its tags stay as they are, the text between them is translated."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dragoman.server.texts import Layout, laid_out

TAG = re.compile(r"<[/!?a-zA-Z][^<>]*>")
UNTRANSLATED = re.compile(r"<(script|style|code|pre)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Page:
    """A piece of HTML taken apart: texts, and the tags before, between and behind them."""

    layouts: tuple[Layout, ...]
    tags: tuple[str, ...]  # one more than there are texts

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return all sentences to translate."""
        return tuple(sentence for layout in self.layouts for sentence in layout.sentences)

    def filled(self, translations: Sequence[str]) -> str:
        """Return the HTML with translations in the places of the sentences; what they hold is text, not tags."""
        rest = iter(translations)
        written = [self.tags[0]]
        for layout, tag in zip(self.layouts, self.tags[1:], strict=True):
            text = layout.filled([next(rest) for _ in layout.sentences])
            written += [html.escape(text, quote=False), tag]
        return "".join(written)


def taken_apart(page: str) -> Page:
    """Take HTML apart."""
    layouts, tags, first = [], [""], 0
    for start, end in [*tags_in(page), (len(page), len(page))]:
        if start > first:
            layouts.append(laid_out(html.unescape(page[first:start])))
            tags.append("")
        tags[-1] += page[start:end]
        first = end
    return Page(tuple(layouts), tuple(tags))


def tags_in(page: str) -> Iterator[tuple[int, int]]:
    """Yield where each tag, comment, or element that is not to be translated begins and ends."""
    small, at = page.lower(), 0
    while (at := page.find("<", at)) >= 0:
        end = end_of_tag(page, small, at)
        if end > at:
            yield at, end
        at = max(end, at + 1)


def end_of_tag(page: str, small: str, at: int) -> int:
    """Return where what begins at this "<" ends, or 0 if it is just a character."""
    if page.startswith("<!--", at):
        return page.find("-->", at) + 3 if "-->" in page[at:] else 0
    tag = TAG.match(page, at)
    if element := UNTRANSLATED.match(page, at):
        close = small.find(f"</{element[1].lower()}", at)
        return page.find(">", close) + 1 if close >= 0 else tag.end() if tag else 0
    return tag.end() if tag else 0
