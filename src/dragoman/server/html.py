"""Splits HTML into sentences to translate; tags, comments, scripts and code are kept as they are."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dragoman.text.sentences import SegmentedText, split_sentences

_TAG = re.compile(r"<[/!?a-zA-Z][^<>]*>")
_UNTRANSLATED_ELEMENT = re.compile(r"<(script|style|code|pre)\b", re.IGNORECASE)


@dataclass(frozen=True)
class SegmentedHtml:
    """HTML split into texts and the tags before, between and after them."""

    texts: tuple[SegmentedText, ...]
    tags: tuple[str, ...]  # one more than texts

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences to translate."""
        return tuple(sentence for text in self.texts for sentence in text.sentences)

    def fill(self, translations: Sequence[str]) -> str:
        """Return the HTML with translations instead of the sentences, escaped as text."""
        remaining = iter(translations)
        parts = [self.tags[0]]
        for text, tag in zip(self.texts, self.tags[1:], strict=True):
            filled = text.fill([next(remaining) for _ in text.sentences])
            parts += [html.escape(filled, quote=False), tag]
        return "".join(parts)


def split_html(page: str) -> SegmentedHtml:
    """Split HTML into texts and tags."""
    texts, tags, first = [], [""], 0
    for start, end in [*_tag_spans(page), (len(page), len(page))]:
        if start > first:
            texts.append(split_sentences(html.unescape(page[first:start])))
            tags.append("")
        tags[-1] += page[start:end]
        first = end
    return SegmentedHtml(tuple(texts), tuple(tags))


def _tag_spans(page: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each tag, comment, and element whose text is not translated."""
    lowered, start = page.lower(), 0
    while (start := page.find("<", start)) >= 0:
        end = _tag_end(page, lowered, start)
        if end > start:
            yield start, end
        start = max(end, start + 1)


def _tag_end(page: str, lowered: str, start: int) -> int:
    """Return the end of what begins at this "<"; 0 if it is an ordinary character."""
    if page.startswith("<!--", start):
        return page.find("-->", start) + 3 if "-->" in page[start:] else 0
    tag = _TAG.match(page, start)
    if element := _UNTRANSLATED_ELEMENT.match(page, start):
        close = lowered.find(f"</{element[1].lower()}", start)
        return page.find(">", close) + 1 if close >= 0 else tag.end() if tag else 0
    return tag.end() if tag else 0
