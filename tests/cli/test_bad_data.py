"""`dragoman train` on files that are not what they should be (C1–C9): code 2, a sentence, and nothing is written."""

import gzip

import pytest
from tiny_training import tiny

pytestmark = pytest.mark.slow


@pytest.fixture
def train(command, tmp_path):
    """Train without a recipe on these contents of the two files; None is a file that is not there."""

    def trained(source, target, *more):
        for name, content in (("a.en", source), ("a.de", target)):
            if content is not None:
                (tmp_path / name).write_bytes(content)
        files = ("--source", tmp_path / "a.en", "--target", tmp_path / "a.de")
        return command("train", *files, "--run", tmp_path / "run", *more)

    return trained


GOOD = b"one\ntwo\nthree\n"
REFUSED = {
    "different line counts": (
        GOOD,
        b"eins\nzwei\n",
        "a.en has 3 lines but a.de has 2; the files must be aligned line by line",
    ),
    "no such file": (GOOD, None, "a.de: no such file."),
    "an empty file": (b"", GOOD, "a.en: the file is empty; expected text, one sentence per line."),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x04\x00\xff\xfe" * 9, GOOD, "a.en is a PNG image"),
    "Latin-1": (GOOD, b"eins\nzwei\nf\xfcnf\n", "a.de: line 3, byte 11: not UTF-8"),
    "UTF-16": ("one\ntwo\nthree\n".encode("utf-16"), GOOD, "a.en: line 1, byte 0: not UTF-8; looks like UTF-16"),
    "half a gzip": (gzip.compress(GOOD, mtime=0)[:-9], GOOD, "a.en: damaged gzip file"),
    "blank lines only": (b" \n\t\n\n", GOOD, "0 usable pairs"),
    "one pair": (b"one\n", b"eins\n", "1 usable pairs, 1 of them distinct; at least 2 are needed"),
    "the same pair again and again": (b"one\n" * 9, b"eins\n" * 9, "9 usable pairs, 1 of them distinct"),
}


@pytest.mark.parametrize(("source", "target", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_parallel_text_is_refused_with_what_was_found(train, tmp_path, source, target, words):
    refused = train(source, target)
    assert refused.code == 2
    assert words in refused.err.replace(f"{tmp_path}/", "")
    assert refused.out == ""
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_directory_instead_of_a_file_is_called_one(train, tmp_path):
    (tmp_path / "a.de").mkdir()
    refused = train(GOOD, None)
    assert (refused.code, "a.de: is a directory; expected a text file." in refused.err) == (2, True)


def test_files_that_slip_apart_are_told_where(train):
    lines = [f"{'x' * (7 * n % 31 + 1)}\n".encode() for n in range(60)]
    refused = train(b"".join(lines), b"".join(lines[:40] + lines[41:]))
    assert "has 60 lines but" in refused.err
    assert "lengths stop matching near line 41; check for extra lines in" in refused.err


def test_a_text_refused_once_can_be_mended_and_trained_without_a_flag(train, toy_files):
    assert train(b"one\n", b"eins\n").code == 2
    source, target = (file.read_bytes() for file in toy_files)
    assert train(source, target, *TINY).code == 0


TINY = tiny("characters")


def test_what_can_be_trained_on_is_trained_on_and_every_repair_is_said(train):
    """A byte-order mark, CRLF, empty lines, a line of a megabyte, separators that are no line ends: all at once."""
    source = ["\ufeffone", "two\u2028and\x0ba\x0chalf", "", "x" * 1_000_000, "NUL \0 and tab \t", "six\u0085", "seven"]
    target = ["eins", "zwei", "drei", "vier", "fünf", "   ", "sieben"]
    trained = train("\r\n".join(source).encode(), "\n".join(target).encode(), *TINY)
    assert trained.code == 0
    for words in (
        "the byte-order mark at the start was removed", "lines end in CRLF; the CR was removed",
        "skipped 2 pairs with an empty side", "skipped 1 pair of more than 256 tokens",
        "Training run", ": 3 pairs for training, 1 for validation",
    ):  # fmt: skip
        assert words in trained.err


def test_two_pairs_are_enough_one_to_train_with_and_one_to_validate_with(train):
    trained = train(b"one\ntwo\n", b"eins\nzwei\n", *TINY)
    assert trained.code == 0
    assert "1 of 2 pairs are held out for validation." in trained.err
    assert "1 pair for training, 1 for validation" in trained.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], "No training data: give a recipe"),
        (
            ["train", "--file", "a.tsv", "--run", "r"],
            "--file needs --task: pronounce, inflect, parse, generate or transcribe; a file of sentence pairs is "
            "--pairs.",
        ),
        (["check", "--file", "a.tsv"], "--file needs --task: pronounce"),
        (["check", "--pairs", "a.tsv", "--valid-file", "b.tsv"], "a file of sentence pairs is --valid-pairs."),
        (["train", "--file", "a.tsv", "--set", "task=parse", "--run", "r"], "a.tsv: no such file."),
        (["train", "--source", "a.en"], "source is set but target is not; a parallel corpus needs both"),
        (["train", "--pairs", "a.tsv", "--source", "a", "--target", "b"], "cannot both be set"),
        (["train", "--source", "a", "--target", "b", "--steps", "0"], "'--steps'"),
        (["check"], "A parallel corpus is two files, source and target, or one file of pairs."),
        (["check", "--source", "missing.en", "--target", "missing.de"], "missing.en: no such file."),
    ],
)
def test_options_that_make_no_sense_are_refused(command, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = command(*arguments)
    assert refused.code == 2
    assert words in refused.err + refused.out
    assert list(tmp_path.iterdir()) == []


def test_pairs_without_a_tab_are_shown_by_their_line(command, tmp_path):
    (tmp_path / "pairs.tsv").write_text("one\teins\ntwo zwei\n")
    refused = command("train", "--pairs", tmp_path / "pairs.tsv", "--run", tmp_path / "run")
    assert refused.code == 2
    assert "pairs.tsv: line 2 has no tab between source and target: 'two zwei'." in refused.err
