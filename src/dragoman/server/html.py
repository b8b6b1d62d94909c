"""HTML to translate: its tags stay as they are, the text between them is translated."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dragoman.server.segmentation import SegmentedText, split_text

_TAG = re.compile(r"<[/!?a-zA-Z][^<>]*>")
_UNTRANSLATED_ELEMENT = re.compile(r"<(script|style|code|pre)\b", re.IGNORECASE)


@dataclass(frozen=True)
class SegmentedHtml:
    """A piece of HTML taken apart: texts, and the tags before, between and behind them."""

    texts: tuple[SegmentedText, ...]
    tags: tuple[str, ...]  # one more than there are texts

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return all sentences to translate."""
        return tuple(sentence for layout in self.texts for sentence in layout.sentences)

    def fill(self, translations: Sequence[str]) -> str:
        """Return the HTML with translations in the places of the sentences; what they hold is text, not tags."""
        rest = iter(translations)
        written = [self.tags[0]]
        for layout, tag in zip(self.texts, self.tags[1:], strict=True):
            text = layout.fill([next(rest) for _ in layout.sentences])
            written += [html.escape(text, quote=False), tag]
        return "".join(written)


def split_html(page: str) -> SegmentedHtml:
    """Take HTML apart."""
    layouts, tags, first = [], [""], 0
    for start, end in [*_tag_spans(page), (len(page), len(page))]:
        if start > first:
            layouts.append(split_text(html.unescape(page[first:start])))
            tags.append("")
        tags[-1] += page[start:end]
        first = end
    return SegmentedHtml(tuple(layouts), tuple(tags))


def _tag_spans(page: str) -> Iterator[tuple[int, int]]:
    """Yield where each tag, comment, or element that is not to be translated begins and ends."""
    small, at = page.lower(), 0
    while (at := page.find("<", at)) >= 0:
        end = _tag_end(page, small, at)
        if end > at:
            yield at, end
        at = max(end, at + 1)


def _tag_end(page: str, lowered: str, start: int) -> int:
    """Return where what begins at this "<" ends, or 0 if it is just a character."""
    if page.startswith("<!--", start):
        return page.find("-->", start) + 3 if "-->" in page[start:] else 0
    tag = _TAG.match(page, start)
    if element := _UNTRANSLATED_ELEMENT.match(page, start):
        close = lowered.find(f"</{element[1].lower()}", start)
        return page.find(">", close) + 1 if close >= 0 else tag.end() if tag else 0
    return tag.end() if tag else 0
