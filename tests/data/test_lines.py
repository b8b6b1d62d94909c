import gzip
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.data import lines as lines_module
from dragoman.data.lines import read_lines
from dragoman.errors import UserError

GERMAN = "Grüße aus München, schöne Straßen überall; das Mädchen trägt ein weißes Kleid.\n"

quick = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Text of any characters but newlines, as a file would hold it.
line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")).filter(
    lambda text: "\ufeff" not in text
)


@quick
@given(lines=st.lists(line, min_size=1), newline=st.booleans(), packed=st.booleans())
def test_only_newline_ends_a_line(write, lines, newline, packed):
    content = ("\n".join(lines) + ("\n" if newline or not lines[-1] else "")).encode()
    read = list(read_lines(write("text", gzip.compress(content, mtime=0) if packed else content)))
    assert read == [text.removesuffix("\r") for text in lines]


@quick
@given(content=st.text(st.sampled_from("ab\n\r\u2028\u0085\v\f\x1c"), min_size=1), block=st.integers(1, 9))
def test_there_are_as_many_lines_as_wc_counts_and_one_more_without_a_final_newline(write, monkeypatch, content, block):
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", block)
    path = write("text", content.encode())
    counted = content.count("\n")
    assert len(list(read_lines(path))) == counted + (not content.endswith("\n"))


def test_wc_agrees(write):
    path = write("text", "a\u2028b\nc\u0085d\r\n\x0b\x0c\x1c\rlone\n".encode())
    assert len(list(read_lines(path))) == int(subprocess.check_output(["wc", "-l"], stdin=path.open("rb")))


def test_unicode_line_separators_nul_and_lone_carriage_returns_are_content(write):
    text = "a\u2028b\u2029c\u0085d\ve\ff\x1cg\rh\0i\tj"
    assert list(read_lines(write("text", [text]))) == [text]


def test_one_carriage_return_is_taken_off_and_said_once(write):
    said: list[str] = []
    path = write("crlf.txt", b"a\r\nb\r\r\nc\nd\r")
    assert list(read_lines(path, said.append)) == ["a", "b\r", "c", "d"]
    assert said == [f"{path}: lines end in CRLF; the CR was removed."]


def test_a_byte_order_mark_is_taken_off_the_start_only_and_said(write):
    said: list[str] = []
    path = write("bom.txt", "\ufeffa\n\ufeffb\n".encode())
    assert list(read_lines(path, said.append)) == ["a", "\ufeffb"]
    assert said == [f"{path}: the byte-order mark at the start was removed."]


def test_gzip_is_known_by_its_content_not_its_name(write):
    assert list(read_lines(write("packed.txt", gzip.compress(b"a\nb", mtime=0)))) == ["a", "b"]
    assert list(read_lines(write("plain.gz", b"a\nb"))) == ["a", "b"]


def test_gzip_files_put_together_are_read_to_the_end(write):
    assert list(read_lines(write("text.gz", gzip.compress(b"a\n", mtime=0) + gzip.compress(b"b\n", mtime=0)))) == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (b"fine\n" * 3 + b"Stra\xdfe und M\xfcnchen\n", "line 4, byte 19: not UTF-8; looks like Windows-1252; convert"),
        (
            GERMAN.encode("cp1252"),
            "line 1, byte 2: not UTF-8; looks like Windows-1252; convert with `iconv -f Windows-1252",
        ),
        ("Привет, как дела сегодня?\n".encode("cp1251"), "looks like Windows-1251"),
        ("これは日本語のテキストです。\n".encode("shift_jis"), "looks like SHIFT_JIS"),
        (GERMAN.encode() * 20 + b"damaged \xff here\n", "line 21, byte 1,768: not UTF-8; the file may be damaged here"),
        (GERMAN.encode("utf-16"), "looks like UTF-16; convert"),
        (GERMAN.encode("utf-16-le"), "looks like UTF-16LE"),
        (GERMAN.encode("utf-16-be"), "looks like UTF-16BE"),
        (GERMAN.encode("utf-16-be") + b"\0", "looks like UTF-16BE"),
        (GERMAN.encode("utf-16-le") + b"x", "looks like UTF-16LE"),
        (bytes(range(256)) * 4, "looks like a binary file"),
        (gzip.compress(b"some text\n" * 1000, mtime=0)[:-10], "damaged gzip file"),
        (gzip.compress(b"some text\n" * 1000, mtime=0)[:20], "damaged gzip file"),
        (b"\x1f\x8b" + b"no gzip at all", "damaged gzip file"),
        (gzip.compress(b"text\n", mtime=0) + b"garbage", "damaged gzip file"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place_and_a_guess(write, content, words):
    path = write("nasty file.txt", content)
    with pytest.raises(UserError) as caught:
        list(read_lines(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


def test_the_suggested_conversion_works(write):
    path = write('it\'s\n"odd".txt', GERMAN.encode("cp1252"))
    with pytest.raises(UserError) as caught:
        list(read_lines(path))
    command = str(caught.value).rpartition("convert with `")[2].removesuffix("`.")
    subprocess.run(["sh", "-c", command], check=True)
    assert list(read_lines(f"{path}.utf8")) == [GERMAN.rstrip()]


def test_an_error_far_into_a_file_has_its_true_line_and_byte(write):
    path = write("text", b"0123456789\n" * 300_000 + b"012\xff\n")
    with pytest.raises(UserError, match="line 300,001, byte 3,300,003"):
        list(read_lines(path))


def test_in_a_packed_file_the_byte_is_one_of_the_unpacked_text(write):
    path = write("text.gz", gzip.compress(b"a line\nna\xefve\n", mtime=0))
    with pytest.raises(
        UserError, match=r"line 2, byte 9 of the unpacked text: .* convert with `zcat .* > .*text\.utf8`"
    ):
        list(read_lines(path))


def test_a_missing_file_names_the_one_that_is_there(write):
    path = write("train.en.gz", gzip.compress(b"a\n", mtime=0))
    with pytest.raises(UserError, match=r'no such file\. Did you mean ".*train\.en\.gz"'):
        list(read_lines(path.with_suffix("")))


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(UserError, match="is a directory"):
        list(read_lines(tmp_path))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(write):
    path = write("secret", b"a\n")
    path.chmod(0)
    with pytest.raises(UserError, match="cannot be read"):
        list(read_lines(path))


def test_a_name_with_a_nul_is_refused():
    with pytest.raises(UserError, match="a file name cannot contain NUL"):
        list(read_lines("a\0b"))


@pytest.mark.parametrize(
    "name", ["-", "--help", "two words", "it's", 'a"b', "new\nline", os.fsdecode(b"not \xff UTF-8"), "$HOME;*"]
)
def test_odd_names_of_files_work(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(b"a\nb\n")
    assert list(read_lines(name)) == ["a", "b"]


@pytest.mark.skipif(sys.platform == "win32", reason="no FIFOs")
def test_a_pipe_is_read_once_through(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = subprocess.Popen(["sh", "-c", 'printf "a\\nb\\n" > "$0"', tmp_path / "pipe"])
    assert list(read_lines(tmp_path / "pipe")) == ["a", "b"]
    writer.wait()


def test_a_line_of_many_megabytes_takes_a_small_multiple_of_itself(write):
    size = 20 << 20
    path = write("long", b"short\n" + b"x" * size + b"\nshort")
    tracemalloc.start()
    assert [len(text) for text in read_lines(path)] == [5, size, 5]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * size


@pytest.mark.parametrize("letter", ["x", "ß", "日", "🙂"])
def test_of_a_longer_line_than_can_be_kept_the_beginning_is_kept(write, monkeypatch, letter):
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 64)
    kept = letter * (1000 // len(letter.encode()))
    path = write("long", ["before", letter * 5000, "after", "and after", letter * 5000])
    assert list(read_lines(path)) == ["before", kept, "after", "and after", kept]


@quick
@given(lengths=st.lists(st.integers(0, 300), min_size=1), block=st.integers(1, 64), longest=st.integers(1, 200))
def test_blocks_and_caps_never_change_the_number_of_lines(write, monkeypatch, lengths, block, longest):
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", longest)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", block)
    read = list(read_lines(write("text", ["é" * length for length in lengths])))
    assert len(read) == len(lengths)
    assert all(text == "é" * len(text) for text in read)


def test_after_a_capped_line_errors_still_have_their_true_place(write, monkeypatch):
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 64)
    path = write("long", b"x" * 1000 + b"\nfine\nbad \xff\n")
    with pytest.raises(UserError, match="line 3, byte 1,010"):
        list(read_lines(path))
