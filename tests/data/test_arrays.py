import json
import os
import tempfile
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from dragoman import recipe
from dragoman.cache import default_cache_dir
from dragoman.data import arrays as arrays_module
from dragoman.data.arrays import tokenize_corpus
from dragoman.data.corpus import ParallelCorpus, select_pairs
from dragoman.data.split import split_held_out
from dragoman.errors import UserError
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
PAIRS = [("a dog", "ein Hund"), ("", "leer"), ("snow", " \t"), ("much too long " * 9, "zu lang"), ("snow", "Schnee")]


@pytest.fixture
def forbid_writing(monkeypatch):
    """Make any preparation of arrays fail from now on."""

    def forbid():
        monkeypatch.setattr(arrays_module, "write_arrays", None)

    return forbid


def test_arrays_hold_the_tokens_of_the_corpus_each_with_its_end(corpus_of, tokenizer, tmp_path):
    pairs = tokenize_corpus(corpus_of(PAIRS), tokenizer, tokenizer, 20, tmp_path)
    assert [pairs.source(number).tolist() for number in range(len(pairs))] == [
        [*tokenizer.encode("a dog"), END],
        [*tokenizer.encode("snow"), END],
    ]
    assert pairs.target(1).tolist() == [*tokenizer.encode("Schnee"), END]
    assert pairs.source_lengths.tolist() == [7, 6]
    assert pairs.target_lengths.tolist() == [10, 8]
    assert pairs.source_lengths.dtype == np.int32


def test_empty_and_over_long_pairs_are_dropped_and_counted(corpus_of, tokenizer, tmp_path):
    pairs = tokenize_corpus(corpus_of(PAIRS), tokenizer, tokenizer, 20, tmp_path)
    assert (len(pairs), pairs.dropped_empty, pairs.dropped_long) == (2, 2, 1)
    assert pairs.line_numbers.tolist() == [1, 5]


def test_the_longest_allowed_is_kept_and_one_more_is_not(corpus_of, tokenizer, tmp_path):
    corpus = corpus_of([("x" * 9, "y"), ("x" * 10, "y"), ("x", "y" * 10)])  # and a token for the space in front
    assert tokenize_corpus(corpus, tokenizer, tokenizer, 10, tmp_path).line_numbers.tolist() == [1]


def test_an_enormous_line_is_dropped_without_being_cut_into_pieces(corpus_of, tokenizer, tmp_path):
    pairs = tokenize_corpus(corpus_of([("x" * 5_000_000, "y"), ("a", "b")]), tokenizer, tokenizer, 256, tmp_path)
    assert (pairs.line_numbers.tolist(), pairs.dropped_long) == ([2], 1)


@pytest.mark.parametrize("lines", [1, 2, 3, 1000])
def test_the_size_of_a_chunk_changes_nothing(corpus_of, tokenizer, tmp_path, monkeypatch, lines):
    corpus = corpus_of(PAIRS * 3)
    whole = tokenize_corpus(corpus, tokenizer, tokenizer, 20, tmp_path / "whole")
    monkeypatch.setattr(arrays_module, "CHUNK_LINES", lines)
    chunked = tokenize_corpus(corpus, tokenizer, tokenizer, 20, tmp_path / "chunked")
    for name in ("header.json", *arrays_module._FILES):
        assert (chunked.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_prepared_arrays_are_found_again(corpus_of, tokenizer, tmp_path, forbid_writing):
    corpus = corpus_of(PAIRS)
    first = tokenize_corpus(corpus, tokenizer, tokenizer, 20, tmp_path)
    forbid_writing()
    again = tokenize_corpus(ParallelCorpus(corpus.files), tokenizer, tokenizer, 20, tmp_path)
    assert again.fingerprint == first.fingerprint
    assert again.source_tokens.tolist() == first.source_tokens.tolist()
    assert (again.dropped_empty, again.dropped_long) == (2, 1)


def test_whatever_the_arrays_depend_on_changes_their_key(corpus_of, tokenizer, tmp_path):
    other_tokenizer = Tokenizer.train(["dog Hund snow Schnee"], recipe.TokenizerConfig(kind="characters"))
    corpus, other_corpus = corpus_of(PAIRS), corpus_of([*PAIRS, ("new", "neu")], "other")
    split = split_held_out(corpus, 1, 1)
    keys = [
        tokenize_corpus(corpus, tokenizer, tokenizer, 20, tmp_path).fingerprint,
        tokenize_corpus(other_corpus, tokenizer, tokenizer, 20, tmp_path).fingerprint,
        tokenize_corpus(corpus, other_tokenizer, tokenizer, 20, tmp_path).fingerprint,
        tokenize_corpus(corpus, tokenizer, other_tokenizer, 20, tmp_path).fingerprint,
        tokenize_corpus(corpus, tokenizer, tokenizer, 21, tmp_path).fingerprint,
        tokenize_corpus(corpus, tokenizer, tokenizer, 20, tmp_path, part=split.training).fingerprint,
        tokenize_corpus(corpus, tokenizer, tokenizer, 20, tmp_path, part=split.validation).fingerprint,
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", [*arrays_module._FILES, "header.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"bytes": {}}'])
def test_damaged_arrays_are_made_again(corpus_of, tokenizer, tmp_path, name, content):
    corpus = corpus_of(PAIRS)
    folder = tokenize_corpus(corpus, tokenizer, tokenizer, 20, tmp_path).folder
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(content)
    tokenize_corpus(corpus, tokenizer, tokenizer, 20, tmp_path)
    assert (folder / name).read_bytes() == whole


def test_arrays_that_lack_a_file_are_made_again(corpus_of, tokenizer, tmp_path):
    corpus = corpus_of(PAIRS)
    folder = tokenize_corpus(corpus, tokenizer, tokenizer, 20, tmp_path).folder
    (folder / "lines").unlink()
    assert len(tokenize_corpus(corpus, tokenizer, tokenizer, 20, tmp_path)) == 2


def test_a_stopped_preparation_leaves_nothing_behind(corpus_of, tokenizer, tmp_path):
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenize_corpus(corpus_of(PAIRS), tokenizer, tokenizer, 20, tmp_path / "cache", on_lines_done=stop)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_a_killed_process_left_is_cleared_after_a_day(corpus_of, tokenizer, tmp_path):
    for name, age_seconds in (("old", 25 * 3600), ("new", 60)):
        folder = tmp_path / f".unfinished-{name}"
        folder.mkdir()
        moment = folder.stat().st_mtime - age_seconds
        os.utime(folder, (moment, moment))
    tokenize_corpus(corpus_of(PAIRS), tokenizer, tokenizer, 20, tmp_path)
    assert [path.name for path in tmp_path.glob(".unfinished-*")] == [".unfinished-new"]


def prepare_elsewhere(files: tuple[Path, ...], tokenizer: str, cache: Path) -> int:
    """Prepare a corpus in another process."""
    loaded = Tokenizer.from_json(tokenizer)
    return len(tokenize_corpus(ParallelCorpus(files), loaded, loaded, 20, cache))


@pytest.mark.slow
def test_processes_that_prepare_the_same_corpus_do_not_disturb_each_other(corpus_of, tokenizer, tmp_path):
    corpus = corpus_of(PAIRS * 200)
    with get_context("spawn").Pool(3) as pool:
        job = (corpus.files, tokenizer.to_json(), tmp_path / "cache")
        assert pool.starmap(prepare_elsewhere, [job] * 6) == [400] * 6
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_no_usable_pair_says_why(corpus_of, tokenizer, tmp_path):
    with pytest.raises(UserError, match=r"no usable pair: 2 have an empty side and 1 are longer than 4 tokens"):
        tokenize_corpus(corpus_of([("", "a"), ("b", ""), ("long text", "c")]), tokenizer, tokenizer, 4, tmp_path)


def test_a_cache_that_cannot_be_written_says_what_to_do(corpus_of, tokenizer, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        UserError,
        match=r"cannot write prepared data .*Not a dir.*\. Fix the cause, or set DRAGOMAN_CACHE to another directory",
    ):
        tokenize_corpus(corpus_of(PAIRS), tokenizer, tokenizer, 20, tmp_path / "file" / "cache")


def test_a_large_vocabulary_takes_wider_numbers(corpus_of, tokenizer, tmp_path):
    words = " ".join(f"w{number:x}" for number in range(66_000))
    lines = [words[start : start + 9000].rpartition(" ")[0] for start in range(0, len(words), 8000)]
    large = Tokenizer.train(lines, recipe.TokenizerConfig(kind="words", size=100_000))
    assert len(large) > 1 << 16
    pairs = tokenize_corpus(corpus_of([("w0 wffff", "a")]), large, tokenizer, 20, tmp_path)
    assert pairs.source_tokens.dtype == np.uint32
    assert large.decode(pairs.source(0)) == "w0 wffff"


def test_the_two_parts_of_a_split_make_up_the_corpus(corpus_of, tokenizer, tmp_path):
    corpus = corpus_of([(f"source {number}", f"target {number}") for number in range(200)])
    split = split_held_out(corpus, 15, 1)
    training = tokenize_corpus(corpus, tokenizer, tokenizer, 50, tmp_path, part=split.training)
    validation = tokenize_corpus(corpus, tokenizer, tokenizer, 50, tmp_path, part=split.validation)
    assert (len(training), len(validation)) == (185, 15)
    assert sorted([*training.line_numbers, *validation.line_numbers]) == list(range(1, 201))


def test_progress_ends_with_the_number_of_lines(corpus_of, tokenizer, tmp_path):
    heard: list[int] = []
    tokenize_corpus(corpus_of([("a", "b")] * 2500), tokenizer, tokenizer, 20, tmp_path, on_lines_done=heard.append)
    assert heard == [1000, 2000, 2500]


def test_the_header_counts_what_the_files_hold(corpus_of, tokenizer, tmp_path):
    folder = tokenize_corpus(corpus_of(PAIRS), tokenizer, tokenizer, 20, tmp_path).folder
    header = json.loads((folder / "header.json").read_text())
    assert (header["pairs"], header["dropped_empty"], header["dropped_long"]) == (2, 2, 1)


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path / "a"))
    assert default_cache_dir() == tmp_path / "a"
    monkeypatch.delenv("DRAGOMAN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert default_cache_dir() == tmp_path / "b" / "dragoman"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    assert default_cache_dir() == tmp_path / "c" / ".cache" / "dragoman"


@pytest.mark.parametrize("home", ["", "/dev/null", "relative"])
def test_without_a_home_the_cache_is_a_private_temporary_folder(monkeypatch, tmp_path, home):
    for name in ("DRAGOMAN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = default_cache_dir()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o077 == 0
    assert default_cache_dir() == folder


def test_a_temporary_folder_that_anyone_may_write_is_not_used(monkeypatch, tmp_path):
    for name in ("DRAGOMAN_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = default_cache_dir()
    folder.chmod(0o777)
    assert default_cache_dir() != folder


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason=f"no data sets in {SHARED}")
def test_the_validation_text_of_multi30k_comes_back_from_its_arrays(tmp_path):
    corpus = ParallelCorpus.from_files(SHARED / "multi30k" / "val.en.gz", SHARED / "multi30k" / "val.de.gz")
    tokenizer = Tokenizer.train((line for pair in corpus.pairs() for line in pair), recipe.TokenizerConfig(size=2000))
    pairs = tokenize_corpus(corpus, tokenizer, tokenizer, 256, tmp_path)
    read = [(tokenizer.decode(pairs.source(n)), tokenizer.decode(pairs.target(n))) for n in range(len(pairs))]
    assert read == select_pairs(corpus, pairs.line_numbers)
