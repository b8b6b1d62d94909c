import html
import re
from dataclasses import dataclass
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.tasks.subtitles import format_srt, format_vtt

quick = settings(max_examples=150, deadline=None)

LONG = "the quick brown fox jumps over the lazy dog and then sleeps in the warm sun until the evening comes again"


@dataclass(frozen=True)
class Word:
    text: str
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True)
class Segment:
    text: str
    start_seconds: float
    end_seconds: float
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class Cue:
    start: float
    end: float
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(self.lines)


def parse_cue(block: str, decimal_mark: str) -> Cue:
    times, *lines = block.split("\n")
    assert lines
    assert not any("-->" in line for line in lines)
    time = rf"(\d\d+):([0-5]\d):([0-5]\d)\{decimal_mark}(\d\d\d)"
    match = re.fullmatch(f"{time} --> {time}", times)
    assert match, times
    *start, start_ms = map(int, match.groups()[:4])
    *end, end_ms = map(int, match.groups()[4:])
    start_seconds, end_seconds = (hours * 3600 + minutes * 60 + seconds for hours, minutes, seconds in (start, end))
    return Cue(start_seconds + start_ms / 1000, end_seconds + end_ms / 1000, tuple(lines))


def parse_srt(content: str) -> list[Cue]:
    """Read a SubRip file as a player does: cues end with an empty line and are numbered from 1."""
    assert content == "" or content.endswith("\n\n")
    blocks = [block.split("\n", 1) for block in content.split("\n\n")[:-1]]
    assert [number for number, _ in blocks] == [str(number) for number in range(1, len(blocks) + 1)]
    return [parse_cue(rest, ",") for _, rest in blocks]


def parse_vtt(content: str) -> list[Cue]:
    """Read a WebVTT file."""
    assert content.endswith("\n\n")
    header, *blocks = content.split("\n\n")[:-1]
    assert header == "WEBVTT"
    cues = [parse_cue(block, ".") for block in blocks]
    assert not any(re.search("[<>]|&(?!amp;|lt;|gt;)", line) for cue in cues for line in cue.lines)
    return [Cue(cue.start, cue.end, tuple(map(html.unescape, cue.lines))) for cue in cues]


def srt_cues(*segments: Segment) -> list[Cue]:
    return parse_srt("".join(format_srt(segments)))


def vtt_cues(*segments: Segment) -> list[Cue]:
    return parse_vtt("".join(format_vtt(segments)))


both = pytest.mark.parametrize("cues_of", [srt_cues, vtt_cues])


def test_a_subrip_file():
    segments = [Segment("good morning", 0.0, 1.5), Segment("how are you", 3661.25, 3662.0)]
    assert "".join(format_srt(segments)) == (
        "1\n00:00:00,000 --> 00:00:01,500\ngood morning\n\n2\n01:01:01,250 --> 01:01:02,000\nhow are you\n\n"
    )


def test_a_webvtt_file():
    assert "".join(format_vtt([Segment("Tom & Jerry <3", 0.0, 1.5)])) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nTom &amp; Jerry &lt;3\n\n"
    )


def test_no_segments_are_an_empty_file():
    assert (list(format_srt([])), list(format_vtt([]))) == ([], ["WEBVTT\n\n"])


@pytest.mark.parametrize("format_cues", [format_srt, format_vtt])
def test_each_cue_is_there_before_the_next_segment_is_read(format_cues):
    read = []

    def segments():
        for number in count():
            read.append(number)
            yield Segment(f"segment {number}", number, number + 1)

    cues = (part for part in format_cues(segments()) if "-->" in part)
    for number in range(3):
        assert f"segment {number}" in next(cues)
        assert read[-1] == number


@both
def test_a_text_of_one_line_stays_on_one_line(cues_of):
    text = "x" * 20 + " " + "y" * 21
    assert cues_of(Segment(text, 1, 2)) == [Cue(1, 2, (text,))]


@both
def test_a_longer_text_has_two_lines_of_about_equal_length(cues_of):
    [cue] = cues_of(Segment("the quick brown fox jumps over the lazy dog today", 1, 2))
    assert cue == Cue(1, 2, ("the quick brown fox jumps", "over the lazy dog today"))


@both
def test_two_full_lines_are_one_cue(cues_of):
    line = "x" * 20 + " " + "y" * 21
    assert cues_of(Segment(f"{line} {line}", 1, 2)) == [Cue(1, 2, (line, line))]


@both
def test_a_long_text_is_divided_in_proportion_to_its_characters(cues_of):
    first, second = cues_of(Segment(LONG, 10, 20))
    assert f"{first.text} {second.text}" == LONG
    assert (first.start, second.end) == (10, 20)
    assert first.end == pytest.approx(10 + 10 * len(first.text) / len(LONG), abs=0.001)
    assert second.start == pytest.approx(20 - 10 * len(second.text) / len(LONG), abs=0.001)


@both
def test_a_long_text_is_divided_at_the_times_of_its_words(cues_of):
    words = tuple(Word(text, 10 + number, 10.5 + number) for number, text in enumerate(LONG.split()))
    first, second = cues_of(Segment(LONG, 9, 60, words))
    divided = len(first.text.split())
    assert (first.start, first.end) == (10, 10.5 + divided - 1)
    assert (second.start, second.end) == (10 + divided, 10.5 + len(words) - 1)


@both
def test_words_without_times_lie_between_those_with_times(cues_of):
    timed = [Word(text, 10 + number, 10.5 + number) for number, text in enumerate(LONG.split())]
    last = len(cues_of(Segment(LONG, 9, 60))[0].text.split()) - 1  # of the first cue
    known = [word for number, word in enumerate(timed) if number not in (0, last, last + 1, len(timed) - 1)]
    first, second = cues_of(Segment(LONG, 9, 60, (*known[:5], Word("unsaid", 0, 1), *known[5:])))
    assert (first.start, second.end) == (9, 60)
    assert timed[last - 1].end_seconds < first.end < second.start < timed[last + 2].start_seconds


@both
def test_a_word_that_is_longer_than_a_line_is_divided(cues_of):
    """As in languages that are written without spaces."""
    text = "語" * 200
    cues = cues_of(Segment(text, 0, 20))
    assert "".join("".join(cue.lines) for cue in cues) == text
    assert [(cue.start, cue.end) for cue in cues] == [(0, 8.4), (8.4, 16.8), (16.8, 20)]


@both
@pytest.mark.parametrize("text", ["", "  ", "\n\t", "\x00\x1f\u2028"])
def test_empty_texts_are_skipped(cues_of, text):
    cues = cues_of(Segment("a", 0, 1), Segment(text, 1, 2), Segment("b", 2, 3))
    assert cues == [Cue(0, 1, ("a",)), Cue(2, 3, ("b",))]


@both
@pytest.mark.parametrize("between", ["\n", "\r\n", "\n\n", "\t", "\x00", "\x0b", "\x85", "\u2028", "\u2029", "\ud800"])
def test_line_ends_and_control_characters_become_spaces(cues_of, between):
    [cue] = cues_of(Segment(f"one{between}two", 0, 1))
    assert cue.lines == ("one two",)
    assert cue.text.encode()


@pytest.mark.parametrize("arrow", ["-->", "--->", "------>", "-->-->"])
def test_an_arrow_in_a_text_is_not_read_as_times(arrow):
    text = f"1\n00:00:00,000 {arrow} 00:00:09,000\n\nx"
    [cue] = srt_cues(Segment(text, 1, 2))
    assert re.search("[^-]->", cue.text)
    assert vtt_cues(Segment(text, 1, 2))[0].text == " ".join(text.split())


@both
def test_an_end_before_its_start_is_a_millisecond_after_it(cues_of):
    assert cues_of(Segment("a", 5, 3), Segment("b", 6, 6)) == [Cue(5, 5.001, ("a",)), Cue(6, 6.001, ("b",))]


@both
def test_a_segment_that_begins_too_early_begins_when_the_one_before_it_ends(cues_of):
    cues = cues_of(Segment("a", -1, 3), Segment("b", 2, 4), Segment("c", 1, 2))
    assert [(cue.start, cue.end) for cue in cues] == [(0, 3), (3, 4), (4, 4.001)]


@pytest.mark.parametrize("format_cues", [format_srt, format_vtt])
def test_more_than_99_hours_have_more_digits(format_cues):
    *_, cue = format_cues([Segment("late", 360_000, 4_000_000.9996)])
    assert re.sub(r"[,.]", " ", cue.splitlines()[-3]) == "100:00:00 000 --> 1111:06:41 000"


texts = st.lists(st.text(st.characters(codec=None), max_size=60) | st.sampled_from(LONG.split()), max_size=60)
times = st.floats(-10, 1e6)


@both
@quick
@given(st.lists(st.builds(lambda words, start, end: Segment(" ".join(words), start, end), texts, times, times)))
def test_whatever_the_texts_and_times_the_file_is_valid_and_complete(cues_of, segments):
    cues = cues_of(*segments)
    assert all(0 <= cue.start < cue.end for cue in cues)
    assert all(one.end <= other.start for one, other in pairwise(cues))
    assert all(1 <= len(cue.lines) <= 2 and all(1 <= len(line) <= 42 for line in cue.lines) for cue in cues)
    said = "".join(re.findall(r"[a-zA-Z]", "".join(segment.text for segment in segments)))
    assert "".join(re.findall(r"[a-zA-Z]", "".join(cue.text for cue in cues))) == said
