import gzip
import os
import sys
from pathlib import Path
from random import Random

import pytest

from dragoman.data.corpus import ParallelCorpus, select_pairs
from dragoman.data.lines import read_lines
from dragoman.errors import UserError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def sentences(count: int, stretch: int = 1) -> list[str]:
    """Return lines whose lengths vary as those of sentences do, the same for every language but for a factor."""
    chance = Random(1)
    return ["x" * (stretch * chance.randint(10, 100)) for _ in range(count)]


def place_named(error: BaseException) -> int:
    """Return the line that an error about different counts points to."""
    return int(str(error).partition("near line ")[2].partition(";")[0].replace(",", ""))


def test_line_n_of_one_file_goes_with_line_n_of_the_other(corpus_of):
    corpus = corpus_of([("a dog", "ein Hund"), ("", "leer"), ("snow", "Schnee")])
    assert corpus.count_pairs() == 3
    assert list(corpus.pairs()) == [("a dog", "ein Hund"), ("", "leer"), ("snow", "Schnee")]


def test_a_file_of_pairs_has_a_tab_in_every_line(write):
    corpus = ParallelCorpus.from_files(pairs=write("pairs.tsv", ["a dog\tein Hund", "", "\tleer", "snow\tSchnee"]))
    assert corpus.count_pairs() == 4
    assert list(corpus.pairs()) == [("a dog", "ein Hund"), ("", ""), ("", "leer"), ("snow", "Schnee")]


def test_a_line_without_a_tab_is_named(write):
    corpus = ParallelCorpus.from_files(pairs=write("pairs.tsv", ["a\tb", "no tab here"]))
    with pytest.raises(UserError, match=r"pairs\.tsv: line 2 has no tab between source and target: 'no tab here'"):
        corpus.count_pairs()


def test_a_line_with_two_tabs_is_named(write):
    corpus = ParallelCorpus.from_files(pairs=write("pairs.tsv", ["a\tb", "c\td\tCC-BY"]))
    with pytest.raises(UserError, match=r"line 2 has 3 columns; expected 2: .*Add or remove tabs"):
        corpus.count_pairs()


@pytest.mark.parametrize(
    "files",
    [{}, {"source": "a"}, {"target": "a"}, {"source": "a", "pairs": "b"}, {"source": "a", "target": "b", "pairs": "c"}],
)
def test_half_a_corpus_and_one_and_a_half_are_refused(files):
    with pytest.raises(UserError, match="two files, source and target, or one file"):
        ParallelCorpus.from_files(**files)


@pytest.mark.parametrize("missing", [40, 500, 960])
@pytest.mark.parametrize("surplus", [1, 7])
def test_different_counts_are_refused_with_both_counts_and_the_place_where_they_part(write, missing, surplus):
    source, target = sentences(1000), sentences(1000, stretch=2)
    del target[missing : missing + surplus]
    corpus = ParallelCorpus.from_files(write("a.en", source), write("a.de", target))
    with pytest.raises(UserError, match=rf"a\.en has 1,000 lines but .*a\.de has {1000 - surplus}") as caught:
        corpus.count_pairs()
    assert abs(place_named(caught.value) - (missing + 1)) <= 2
    assert str(caught.value).endswith("a.en there.")


def test_a_file_that_was_cut_off_is_told_from_one_that_slipped(write):
    corpus = ParallelCorpus.from_files(write("a.en", sentences(900)), write("a.de", sentences(1000)))
    with pytest.raises(UserError, match=r"900 lines but .* has 1,000; the shorter file seems to match"):
        corpus.count_pairs()


def test_files_that_have_nothing_to_do_with_each_other_are_given_no_place(write):
    stranger = ["x" * (10 + (number * number * 31) % 97) for number in range(990)]
    corpus = ParallelCorpus.from_files(write("a.en", sentences(1000)), write("a.de", stranger))
    with pytest.raises(UserError, match=r"990; the files must be aligned line by line\.$"):
        corpus.count_pairs()


def test_reading_pairs_without_checking_first_finds_different_counts_too(write):
    corpus = ParallelCorpus.from_files(write("a.en", ["1", "2"]), write("a.de", ["1", "2", "3"]))
    with pytest.raises(UserError, match=r"has 2 lines but .* has 3"):
        list(corpus.pairs())


def test_an_unreadable_file_is_refused_at_the_door(write):
    corpus = ParallelCorpus.from_files(write("a.en", ["a"]), write("a.de", b"\xff\xfeb\x00\n\x00"))
    with pytest.raises(UserError, match=r"a\.de.*UTF-16"):
        corpus.count_pairs()


@pytest.mark.skipif(sys.platform == "win32", reason="no FIFOs")
def test_a_pipe_is_refused_because_it_is_read_only_once(tmp_path, write):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="save the text to a file first"):
        ParallelCorpus.from_files(tmp_path / "pipe", write("a.de", ["a"])).count_pairs()


def test_the_fingerprint_is_of_the_lines_and_not_of_how_they_are_stored(write):
    plain = ParallelCorpus.from_files(write("a", b"x\ny\n"), write("b", b"1\n2\n"))
    stored_otherwise = ParallelCorpus.from_files(
        write("c", gzip.compress(b"\xef\xbb\xbfx\r\ny", mtime=0)), write("d", b"1\r\n2\r\n")
    )
    assert stored_otherwise.fingerprint() == plain.fingerprint()


@pytest.mark.parametrize("content", [b"x\nz\n", b"xy\n\n", b"\nxy\n", b"x\n y\n"])
def test_other_lines_have_another_fingerprint(write, content):
    other = write("b", b"1\n2\n")
    assert (
        ParallelCorpus.from_files(write("a", b"x\ny\n"), other).fingerprint()
        != ParallelCorpus.from_files(write("c", content), other).fingerprint()
    )


def test_swapped_files_have_another_fingerprint(write):
    a, b = write("a", ["x"]), write("b", ["y"])
    assert ParallelCorpus.from_files(a, b).fingerprint() != ParallelCorpus.from_files(b, a).fingerprint()


def test_what_was_taken_off_is_noticed_once(write):
    path = write("crlf", b"\xef\xbb\xbfa\r\nb\r\n")
    notices = ParallelCorpus.from_files(path, path).notices()
    assert [notice.removeprefix(f"{path}: ") for notice in notices] == [
        "the byte-order mark at the start was removed.",
        "lines end in CRLF; the CR was removed.",
    ]


def test_pairs_are_found_by_their_line_numbers(corpus_of):
    corpus = corpus_of([(str(number), str(-number)) for number in range(1, 100)])
    assert select_pairs(corpus, [7, 3, 99]) == [("3", "-3"), ("7", "-7"), ("99", "-99")]
    assert select_pairs(corpus, []) == []


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason=f"no data sets in {SHARED}")
def test_multi30k_is_a_corpus():
    folder = SHARED / "multi30k"
    assert ParallelCorpus.from_files(folder / "train.en.gz", folder / "train.de.gz").count_pairs() == 29_000


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason=f"no data sets in {SHARED}")
@pytest.mark.parametrize("missing", [100, 700])
def test_a_line_missing_from_real_text_is_found_within_a_few_lines(write, missing):
    source, target = (list(read_lines(SHARED / "multi30k" / f"val.{language}.gz")) for language in ("en", "de"))
    del target[missing]
    with pytest.raises(UserError) as caught:
        ParallelCorpus.from_files(write("val.en", source), write("val.de", target)).count_pairs()
    assert abs(place_named(caught.value) - (missing + 1)) <= 5
