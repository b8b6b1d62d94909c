"""Subtitles: transcripts with times as SubRip (.srt) and WebVTT (.vtt) files.

Cues are formatted while segments arrive. A cue has at most two lines of 42 characters; a longer segment is divided into
several. How long a cue stays on the screen is not adapted to how fast people read.
"""

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Protocol

import numpy as np

_LINE_CHARACTERS = 42
_LINES_PER_CUE = 2
_REPLACED_CATEGORIES = {"Cc", "Cs"}  # control characters, and surrogates, which cannot be encoded


class SubtitleWord(Protocol):
    """A word, and when it is said."""

    @property
    def text(self) -> str:
        """The word."""

    @property
    def start_seconds(self) -> float:
        """When it begins."""

    @property
    def end_seconds(self) -> float:
        """When it ends."""


class SubtitleSegment(SubtitleWord, Protocol):
    """A text, when it is said, and those of its words whose times are known."""

    @property
    def words(self) -> Sequence[SubtitleWord]:
        """The words, in their order."""


@dataclass(frozen=True)
class _Cue:
    start: int  # milliseconds
    end: int
    lines: tuple[str, ...]


def format_srt(segments: Iterable[SubtitleSegment]) -> Iterator[str]:
    """Yield the cues of a SubRip file; the file is their concatenation."""
    for number, cue in enumerate(_time_cues(segments), start=1):
        lines = [re.sub("--+>", "->", line) for line in cue.lines]  # a line with --> would be read as times
        yield f"{number}\n{_format_cue(cue, lines, ',')}"


def format_vtt(segments: Iterable[SubtitleSegment]) -> Iterator[str]:
    """Yield the header and the cues of a WebVTT file; the file is their concatenation."""
    yield "WEBVTT\n\n"
    for cue in _time_cues(segments):
        yield _format_cue(cue, [html.escape(line, quote=False) for line in cue.lines], ".")


def _format_cue(cue: _Cue, lines: Sequence[str], decimal_mark: str) -> str:
    times = " --> ".join(_format_time(time, decimal_mark) for time in (cue.start, cue.end))
    return "\n".join([times, *lines]) + "\n\n"


def _format_time(milliseconds: int, decimal_mark: str) -> str:
    seconds, milliseconds = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{decimal_mark}{milliseconds:03}"


def _time_cues(segments: Iterable[SubtitleSegment]) -> Iterator[_Cue]:
    """Yield the cues of segments, none of which begins before the one before it ends."""
    end = 0
    for segment in segments:
        for start_seconds, end_seconds, lines in _divide(segment):
            start = max(end, round(1000 * start_seconds))
            end = max(start + 1, round(1000 * end_seconds))
            yield _Cue(start, end, lines)


def _divide(segment: SubtitleSegment) -> Iterator[tuple[float, float, tuple[str, ...]]]:
    """Yield the lines of each cue of a segment with its start and end in seconds."""
    text = " ".join(_replace_controls(segment.text).split())
    cues = _wrap(text)
    if len(cues) == 1:
        yield segment.start_seconds, segment.end_seconds, cues[0]
        return
    times = _character_times(text, segment)
    offsets, seconds = list(times), list(times.values())
    end = 0
    for lines in cues:
        start = end + (text[end] == " ")  # no space between the parts of a word that is longer than a line
        end = start
        for line in lines:
            end += (text[end] == " ") + len(line)
        yield float(np.interp(start, offsets, seconds)), float(np.interp(end, offsets, seconds)), lines


def _replace_controls(text: str) -> str:
    return "".join(" " if unicodedata.category(character) in _REPLACED_CATEGORIES else character for character in text)


def _character_times(text: str, segment: SubtitleSegment) -> dict[int, float]:
    """Return the times of some places of a text: its ends, and the ends of its words as far as they are known."""
    places = [match.span() for match in re.finditer(r"\S+", text)]
    words = [_replace_controls(word.text).strip() for word in segment.words]
    times = {0: segment.start_seconds}
    matcher = SequenceMatcher(None, text.split(), words, autojunk=False)
    for block in matcher.get_matching_blocks():
        matched = zip(places[block.a :], segment.words[block.b : block.b + block.size], strict=False)
        for (start, end), word in matched:
            times |= {start: word.start_seconds, end: word.end_seconds}
    times.setdefault(len(text), segment.end_seconds)
    return times


def _wrap(text: str) -> list[tuple[str, ...]]:
    """Return the lines of each cue: as few cues as possible, their lines as equal as possible."""
    if len(text) <= _LINE_CHARACTERS:
        return [(text,)] if text else []
    parts = [
        word[start : start + _LINE_CHARACTERS]
        for word in text.split()
        for start in range(0, len(word), _LINE_CHARACTERS)
    ]
    fewest = len(_fill_lines(parts, _LINE_CHARACTERS))
    widths = range(1, _LINE_CHARACTERS + 1)
    return next(cues for width in widths if len(cues := _fill_lines(parts, width)) == fewest)


def _fill_lines(parts: Sequence[str], width: int) -> list[tuple[str, ...]]:
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return [tuple(lines[start : start + _LINES_PER_CUE]) for start in range(0, len(lines), _LINES_PER_CUE)]
