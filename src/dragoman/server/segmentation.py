"""Splits a text into sentences, and joins their translations with the line breaks, blank lines and indents of the text.

A sentence ends at its final punctuation and the space after it, but not after an abbreviation, initial or ordinal.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from dragoman.decoding.windows import SENTENCE_END, UNSPACED_SCRIPT

_LINE_END = re.compile(r"\n+")

# A full stop after these does not end a sentence, even before a capital letter.
_ABBREVIATION = re.compile(
    "approx|bd|bzw|ca|capt|cf|co|col|corp|d.h|dept|dr|e.g|evtl|fig|gen|ggf|gov|hr|hrn|i.e|inc|inkl|jr|lt|ltd|m.e|mio|"
    "mlle|mme|mr|mrd|mrs|ms|nr|pp|prof|rev|s.o|s.u|sen|sgt|sr|st|str|tel|u.a|u.s|vgl|vol|vs|z.b|z.t"
)
_LAST_WORD = re.compile(r"([^\s(\[\"'„“«]+)\.[\"'”’)\]»]*\s*$")
_ORDINAL = re.compile(r"\d{1,2}")  # "am 3. Mai"; a year more often ends a sentence


@dataclass(frozen=True)
class SegmentedText:
    """A text split into sentences and the gaps before, between and after them."""

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]  # one more than sentences

    def fill(self, translations: Sequence[str]) -> str:
        """Return the text with translations instead of the sentences."""
        assert len(translations) == len(self.sentences), f"{len(translations)} for {len(self.sentences)} sentences"
        texts = [text.strip() for text in translations]
        gaps = (
            [self.gaps[0], *map(_separator, texts, texts[1:], self.gaps[1:-1]), self.gaps[-1]] if texts else self.gaps
        )
        return "".join(chain.from_iterable(zip(gaps, [*texts, ""], strict=True)))


def split_text(text: str, *, split: bool = True) -> SegmentedText:
    """Split a text into sentences; with `split=False`, into lines only."""
    sentences: list[str] = []
    gaps = [""]
    for part in _split_parts(text, split):
        bare = part.strip()
        first = part.find(bare) if bare else len(part)
        gaps[-1] += part[:first]
        if bare:
            sentences.append(bare)
            gaps.append(part[first + len(bare) :])
    return SegmentedText(tuple(sentences), tuple(gaps))


def _split_parts(text: str, split: bool) -> Iterator[str]:
    """Yield the parts of a text, each with the space behind it; joined they are the text again."""
    first = 0
    for match in (SENTENCE_END if split else _LINE_END).finditer(text):
        if "\n" in match[0] or not _ends_with_abbreviation(text[max(first, match.start() - 16) : match.start()]):
            yield text[first : match.end()]
            first = match.end()
    if first < len(text):
        yield text[first:]


def _ends_with_abbreviation(before: str) -> bool:
    """Say whether the full stop at the end belongs to a word: to an abbreviation, an initial or an ordinal number."""
    found = _LAST_WORD.search(before)
    if not found:
        return False
    word = found[1].lower()
    return len(word) == 1 or bool(_ABBREVIATION.fullmatch(word) or _ORDINAL.fullmatch(word))


def _separator(left: str, right: str, gap: str) -> str:
    """Return what to put between two translations: a space only where the language has spaces."""
    if gap not in ("", " ") or not left or not right:
        return gap
    return "" if UNSPACED_SCRIPT.match(left[-1]) or UNSPACED_SCRIPT.match(right[0]) else " "
