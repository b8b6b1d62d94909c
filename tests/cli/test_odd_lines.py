"""`dragoman translate` on a stream: one line out for each line in, whatever the line holds (C2–C7)."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NASTY = [
    "a b c", "", "   ", "\t", "a\tb", "a \0 b", "a\u2028b\u2029c", "a\x85b\x0bc\x0cd\x1ce", "a\rb", "\ufeff",
    "a" * 5000, "e\u0301" * 300, "👩‍👩‍👧‍👦 🏳️‍🌈", "\u202eevil\u202c", "مرحبا", "⟨ pad ⟩ <s> </s> [UNK]", "a b c",
]  # fmt: skip


def test_one_line_comes_out_for_each_line_that_goes_in(command, trained):
    result = command("translate", trained, stdin="".join(f"{line}\n" for line in NASTY).encode())
    assert result.code == 0
    lines = result.out.split("\n")
    assert len(lines) == len(NASTY) + 1
    assert lines[-1] == ""
    assert [lines[number] for number in (1, 2, 3)] == ["", "", ""]
    assert lines[0] == lines[len(NASTY) - 1]
    assert result.err.endswith("into parts of at most 8 tokens.\n")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=20), max_size=5))
def test_any_lines_that_go_in_come_out_as_many(command, trained, lines):
    result = command("translate", trained, "--beam", 1, stdin="".join(f"{line}\n" for line in lines).encode())
    assert (result.code, result.out.count("\n")) == (0, len(lines))


def test_marks_and_line_ends_of_other_systems_do_not_change_the_translation(command, trained):
    plain = command("translate", trained, stdin=b"a b c\nd e\n").out
    assert command("translate", trained, stdin=b"\xef\xbb\xbfa b c\r\nd e\r\n").out == plain
    assert command("translate", trained, stdin=b"a b c\nd e").out == plain


def test_a_line_of_a_megabyte_comes_back_as_one_line(command, trained):
    result = command("translate", trained, "--beam", 1, stdin=(b"a" * 999 + b" ") * 1000 + b"\nlast\n")
    assert (result.code, result.out.count("\n")) == (0, 2)


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (b"good\nf\xfcnf\n", "standard input, line 2: byte 2 of the line (0xfc) is not UTF-8; convert the text first"),
        ("one\n".encode("utf-16"), "standard input, line 1: byte 1 of the line (0xff) is not UTF-8; convert the text"),
        ("one\n".encode("utf-16"), "`iconv -f UTF-16 -t UTF-8`"),
    ],
)
def test_a_stream_that_is_no_utf_8_is_refused_with_the_line_and_the_byte(command, trained, stdin, words):
    refused = command("translate", trained, stdin=stdin)
    assert refused.code == 2
    assert words in refused.err


def test_nothing_in_is_nothing_out(command, trained):
    result = command("translate", trained, stdin=b"")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_an_argument_that_is_no_unicode_is_translated_all_the_same(command, trained):
    assert command("translate", trained, "a \udcff b").code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--beam", 2, "--n-best", 3], "n_best must be at most the beam width, 2, got 3"),
        (["--beam", 0], "--beam"),
        (["--precision", "int4"], 'precision is "int4"; it must be one of "float32", "int8"'),
        (["--sample", "--temperature", -1], "temperature must be 0 or more, got -1.0"),
        (["--sample", "--top-p", 1.5], "top_p must be above 0 and at most 1, got 1.5"),
        (["--length-penalty", -1], "--length-penalty"),
        (["--device", "abacus"], 'Device "abacus" is not available on this machine; available: '),
    ],
)
def test_options_beyond_their_range_are_refused(command, trained, options, words):
    refused = command("translate", trained, "a b", *options)
    assert refused.code == 2
    assert words in refused.err
    assert refused.out == ""


def test_json_keeps_what_is_no_line_end_to_others_on_one_line(command, trained):
    result = command("translate", trained, "--json", stdin="a\u2028b\n\nc\n".encode())
    lines = result.out.removesuffix("\n").split("\n")
    assert len(lines) == 3
    (empty,) = json.loads(lines[1])
    assert (empty["text"], empty["tokens"], empty["score"], empty["parts"]) == ("", [], 0.0, 0)
