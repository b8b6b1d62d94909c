from pathlib import Path

import pytest

from dragoman.data.corpus import ParallelCorpus
from dragoman.data.corpus_check import DataReport, Finding, check_corpus

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
GOOD = [
    ("A dog runs through the snow.", "Ein Hund läuft durch den Schnee."),
    ("Two children are playing with the ball.", "Zwei Kinder spielen mit dem Ball."),
    ("The woman is wearing a white dress.", "Die Frau trägt ein weißes Kleid."),
    ("The men are working on the street.", "Die Männer arbeiten auf der Straße."),
    ("There is a house with three windows.", "Da ist ein Haus mit drei Fenstern."),
    ("This is what they wanted to see.", "Das ist es, was sie sehen wollten."),
]
MORE = [
    ("A cat sleeps on the chair.", "Eine Katze schläft auf dem Stuhl."),
    ("The girl is throwing a stone into the water.", "Das Mädchen wirft einen Stein ins Wasser."),
    ("They went through the woods with their dogs.", "Sie gingen mit ihren Hunden durch den Wald."),
]


def found(report: DataReport, words: str) -> Finding:
    """Return the one finding that says so."""
    (finding,) = [finding for finding in report if words in finding.message]
    return finding


@pytest.mark.parametrize(
    ("pair", "words", "severity"),
    [
        (("", "leer"), "empty lines", "warning"),
        (("blank", " \t"), "empty lines", "warning"),
        (("@@ 17 @@", "@@ 17 @@"), "source and target are the same", "warning"),
        (("Yes, that is what I would say.", "Ja."), "times as many characters", "warning"),
        (("Ja " * 20, "Donaudampfschifffahrtsgesellschaft"), "times as many words", "warning"),
        (("A caf\u00c3\u00a9", "Ein Café"), "decoded as Windows-1252", "warning"),
        (("caf\ufffd", "Café"), "replacement characters", "warning"),
        (("a\x00b", "a b"), "control or invisible", "note"),
        (("a\u202eb", "a b"), "control or invisible", "note"),
        (("a" * 1001, "b" * 1000), "more than 1,000 characters", "note"),
        (GOOD[0], "duplicate pairs", "warning"),
        ((GOOD[0][0], "Etwas ganz anderes steht hier."), "duplicate sources", "note"),
    ],
)
def test_what_is_odd_is_found_with_its_place(corpus_of, pair, words, severity):
    report = check_corpus(corpus_of([*GOOD, pair]))
    finding = found(report, words)
    assert (finding.severity, finding.count) == (severity, 1)
    assert finding.examples[0].startswith("line 7: ")


def test_good_data_is_only_counted(corpus_of):
    report = check_corpus(corpus_of(GOOD), corpus_of(MORE, "valid"))
    assert [(finding.severity, finding.count) for finding in report] == [("note", 6), ("note", 3)]
    assert not report.has_errors


def test_three_examples_are_enough(corpus_of):
    finding = found(check_corpus(corpus_of(GOOD + [("", "leer")] * 50)), "empty lines")
    assert (finding.count, len(finding.examples)) == (50, 3)


def test_accented_text_is_no_mojibake(corpus_of):
    assert "Windows-1252" not in str(check_corpus(corpus_of([*GOOD, ("déjà vu, naïve façade", "Ãhnlich")])))


def test_a_language_without_spaces_is_not_called_too_short(corpus_of):
    report = check_corpus(corpus_of([("one two three four five six seven eight nine ten", "一二三四五六七八九十")] * 5))
    assert "times as many words" not in str(report)


def test_validation_pairs_that_are_trained_on_are_found(corpus_of):
    report = check_corpus(
        corpus_of(GOOD), corpus_of([*MORE, GOOD[2], (GOOD[3][0], "Etwas anderes steht hier.")], "valid")
    )
    assert found(report, "pairs that are also in the training text").count == 1
    assert found(report, "sources that are also in the training text").count == 2


def test_swapped_validation_files_are_found(corpus_of):
    report = check_corpus(corpus_of(GOOD), corpus_of([(target, source) for source, target in MORE], "valid"))
    assert found(report, "source and target seem to be swapped").severity == "warning"


def test_one_file_given_twice_is_found(write):
    path = write("train.en", [source for source, _ in GOOD])
    assert found(check_corpus(ParallelCorpus.from_files(path, path)), "was one file given twice?").count == 6


def test_what_cannot_be_read_as_pairs_is_an_error_and_the_rest_is_still_looked_at(write, corpus_of):
    broken = ParallelCorpus.from_files(write("a.en", ["1", "2"]), write("a.de", ["1"]))
    report = check_corpus(broken, corpus_of([("", "leer"), ("a", "b")], "valid"))
    assert report.has_errors
    assert next(iter(report)).message.startswith(f"{broken.files[0]} has 2 lines but")
    assert found(report, "empty lines").count == 1


def test_what_was_taken_off_the_text_is_said(write):
    report = check_corpus(ParallelCorpus.from_files(write("a.en", b"a\r\nb\r\n"), write("a.de", ["c", "d"])))
    assert found(report, "CRLF").severity == "note"


def test_the_report_is_plain_text_with_the_worst_first(corpus_of):
    report = check_corpus(corpus_of([*GOOD, ("a\x1b[31mb", "\u202eb"), ("", "leer")]))
    lines = str(report).split("\n")
    assert lines[0] == "warning: 1 × training text: empty lines; their pairs are not used for training"
    assert lines[1].strip() == "line 8:  | leer"
    assert str(report).replace("\n", "").isprintable()
    assert len(report) == 3


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason=f"no data sets in {SHARED}")
def test_multi30k_has_two_pairs_without_a_translation():
    folder = SHARED / "multi30k"
    report = check_corpus(
        ParallelCorpus.from_files(folder / "train.en.gz", folder / "train.de.gz"),
        ParallelCorpus.from_files(folder / "val.en.gz", folder / "val.de.gz"),
    )
    assert found(report, "times as many characters").count == 2
    assert "swapped" not in str(report)
    assert not report.has_errors
