from dragoman.evaluation.error_rates import Confusion, ErrorRates, WordResult
from dragoman.evaluation.score import Score
from dragoman.evaluation.scores import LengthRangeScores, SentenceScore, TranslationScores
from dragoman.evaluation.tables import (
    confusions_table,
    labels_table,
    length_table,
    rates_table,
    scores_table,
    worst_items_table,
    worst_sentences_table,
)


def test_scores_stand_under_one_another():
    scores = TranslationScores(
        bleu=Score("BLEU", 33.14, 0.93, signature="nrefs:1", decimals=1),
        bleu_lowercase=Score("BLEU lower-cased", 34.0, 1.0, signature="case:lc", decimals=1),
        chrf=Score("chrF2", 60.0, 0.5, signature="nc:6", decimals=1),
        ter=Score("TER", 45.0, None, signature="tok:tercom", decimals=1),
        sentences=2,
    )
    assert scores_table(scores).split("\n") == [
        "BLEU              33.1 ± 0.9  nrefs:1",
        "BLEU lower-cased  34.0 ± 1.0  case:lc",
        "chrF2             60.0 ± 0.5  nc:6",
        "TER               45.0        tok:tercom",
    ]


def test_the_table_by_length_has_headings_over_its_numbers():
    assert length_table(
        [LengthRangeScores("1–5", 12, 40.06, 61.0, 0.987), LengthRangeScores("31+", 3, 9.5, 30.0, 1.1)]
    ).split("\n") == [
        "source words  sentences  BLEU  chrF  length ratio",
        "         1–5         12  40.1  61.0          0.99",
        "         31+          3   9.5  30.0          1.10",
    ]


def test_the_worst_sentences_are_blocks_with_their_line():
    table = worst_sentences_table(
        [SentenceScore(7, 12.3, "a dog", "ein", "ein Hund"), SentenceScore(9, 20.0, "s", "h", "r")]
    )
    first, second = table.split("\n\n")
    assert first == "line 7, chrF 12.3\n  source      a dog\n  hypothesis  ein\n  reference   ein Hund"
    assert second.startswith("line 9")


def test_rates_stand_under_one_another():
    rates = (
        Score("WER", 30.126, 1.4, "3 of 10 words wrong", "nrefs:1"),
        Score("edit distance", 0.3, None, "3 edits", "nrefs:1"),
    )
    assert rates_table(ErrorRates(rates, ())).split("\n") == [
        "WER            30.13 ± 1.40  3 of 10 words wrong  nrefs:1",
        "edit distance  0.30          3 edits              nrefs:1",
    ]


def test_the_mean_counts_every_label_alike():
    few, many = (
        ErrorRates((Score("WER", value, None, "", ""),), (WordResult(1, "", "", ("",), "", 0, 1, ()),) * words)
        for value, words in ((10.0, 1), (20.0, 3))
    )
    assert labels_table({"fre": few, "dut": many}).split("\n") == [
        "label  words  WER",
        "fre    1      10.00",
        "dut    3      20.00",
        "mean          15.00",
    ]


def test_confusions_name_what_was_left_out():
    assert confusions_table([Confusion("AE", "AH", 1203), Confusion("B", "", 7)]).split("\n") == [
        "expected  found      times",
        "AE        AH         1,203",
        "B         (nothing)  7",
    ]


def test_the_worst_words_are_blocks_with_all_right_answers():
    table = worst_items_table(
        ErrorRates((), (WordResult(7, "tear", "T", ("T EH R", "T IH R"), "T EH R", 2, 3, ()),)), count=1
    )
    assert table == "word 7, tear: 2 edits in 3 phones\n  output     T\n  reference  T EH R\n  reference  T IH R"
