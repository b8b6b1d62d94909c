import json
import random
from functools import cache
from importlib.metadata import version

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.errors import UserError
from dragoman.evaluation.error_rates import (
    INFLECTION,
    PRONUNCIATION,
    UNSTRESSED,
    Confusion,
    score_words,
    split_unstressed_phones,
    to_json,
)

WORDS = ["tear", "read", "the"]
RIGHT = [["T EH R", "T IH R"], ["R IY D", "R EH D"], ["DH AH"]]


def distance(one, other):
    """Levenshtein's distance by its definition."""

    @cache
    def between(i, j):
        if not i or not j:
            return i + j
        same = one[i - 1] != other[j - 1]
        return min(between(i - 1, j) + 1, between(i, j - 1) + 1, between(i - 1, j - 1) + same)

    return between(len(one), len(other))


def values(scores):
    return {rate.name: rate.value for rate in scores}


def test_a_word_is_right_if_any_of_its_pronunciations_was_met():
    found = score_words(WORDS, ["T IH R", "R EH D", "DH IY"], RIGHT)
    assert values(found) == pytest.approx({"WER": 100 / 3, "PER": 100 / 8, "accuracy": 200 / 3, "edit distance": 1 / 3})


def test_phones_are_counted_against_the_nearest_reference_and_of_equals_the_first():
    found = score_words(["a", "b"], ["P A T", "X"], [["P", "P A T S", "P A T S K"], ["A B", "C"]])
    assert [(one.nearest, one.edits, one.length) for one in found.word_results] == [("P A T S", 1, 4), ("C", 1, 1)]
    assert values(found)["PER"] == pytest.approx(100 * 2 / 5)
    assert score_words(["a"], ["X Y"], [["A B C", "A B"]]).word_results[0].nearest == "A B"
    assert score_words(["a"], ["A X"], [["A B", "A X C"]]).word_results[0].nearest == "A B"


def test_many_edits_make_a_rate_above_a_hundred():
    assert values(score_words(["a"], ["A B C D"], [["X"]]))["PER"] == 400


def test_an_empty_output_misses_every_phone():
    found = score_words(["cat"], [""], [["K AE T"]])
    assert values(found) == {"WER": 100, "PER": 100, "accuracy": 0, "edit distance": 3}
    assert found.confusions() == [Confusion("AE", "", 1), Confusion("K", "", 1), Confusion("T", "", 1)]


def test_spaces_around_and_between_phones_do_not_matter():
    assert values(score_words(["cat"], ["  K  AE T "], [["K AE T"]]))["WER"] == 0


def test_an_accent_in_a_character_of_its_own_is_the_same_phone():
    assert values(score_words(["an"], ["\u00e3"], [["a\u0303"]]))["WER"] == 0
    assert values(score_words(["etre"], ["\u00eatre"], [["e\u0302tre"]], INFLECTION))["edit distance"] == 0


def test_the_space_of_a_form_is_one_of_its_letters():
    found = score_words(["einteilen"], ["teilein"], [["teil ein"]], INFLECTION)
    assert values(found) == {"accuracy": 0, "edit distance": 1}
    assert found.confusions() == [Confusion("␣", "", 1)]


def test_stress_can_be_left_out_of_both_sides():
    words, outputs, references = ["about", "a"], ["AH1 B AW0 T", "ˈa"], [["AH0 B AW1 T"], ["a"]]
    assert values(score_words(words, outputs, references))["WER"] == 100
    without = score_words(words, outputs, references, UNSTRESSED)
    assert values(without)["WER"] == 0
    assert "unit:phones without stress" in str(without)


def test_a_tone_is_no_stress():
    assert split_unstressed_phones("a1 ˈmaː˨˩ T1S AH2 ˌ") == ["a1", "maː˨˩", "T1S", "AH"]


texts = st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=6).map(" ".join)
answered = st.tuples(st.one_of(st.just(""), texts), st.lists(texts, min_size=1, max_size=3))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.one_of(st.just(""), texts), st.lists(texts, min_size=1, max_size=3)), min_size=1, max_size=6)
)
def test_every_number_is_what_a_plain_levenshtein_gives(words):
    outputs, references = zip(*words, strict=True)
    nearest = [
        min((distance(tuple(output.split()), tuple(one.split())), n, len(one.split())) for n, one in enumerate(several))
        for output, several in words
    ]
    found = score_words(outputs, outputs, references, intervals=False)
    assert [(one.edits, one.length) for one in found.word_results] == [(edits, length) for edits, _, length in nearest]
    edits, wrong = sum(one for one, _, _ in nearest), sum(one > 0 for one, _, _ in nearest)
    assert values(found) == pytest.approx(
        {
            "WER": 100 * wrong / len(words),
            "PER": 100 * edits / sum(length for _, _, length in nearest),
            "accuracy": 100 - 100 * wrong / len(words),
            "edit distance": edits / len(words),
        }
    )
    assert sum(len(one.slips) for one in found.word_results) == edits


@settings(max_examples=50, deadline=None)
@given(st.lists(texts, min_size=1, max_size=5))
def test_the_references_themselves_are_without_error(references):
    found = score_words(references, references, [[one] for one in references], intervals=False)
    assert values(found) == {"WER": 0, "PER": 0, "accuracy": 100, "edit distance": 0}
    assert not found.worst() and not found.confusions()


@pytest.fixture(scope="module")
def many():
    chance = random.Random(1)
    references = [" ".join(chance.choices("ABCDEFGH", k=chance.randint(2, 9))) for _ in range(300)]
    outputs = [one if chance.random() < 0.7 else one + " X" for one in references]
    return [f"word{n}" for n in range(300)], outputs, [[one] for one in references]


def test_a_rate_prints_what_makes_it_repeatable(many):
    word_errors, *_ = score_words(*many)
    wrong = sum(output != right for output, (right,) in zip(*many[1:], strict=True))
    printed = str(word_errors)
    assert printed.startswith(f"WER {wrong / 3:.2f} ± ")
    assert f"  {wrong} of 300 words wrong  " in printed
    assert printed.endswith(f"  nrefs:1|bs:1000|seed:12345|unit:phones|jiwer:{version('jiwer')}")


def test_the_interval_is_that_of_a_share_as_the_textbook_has_it(many):
    """The normal approximation of the binomial: 1.96 standard errors."""
    word_errors, _, accuracy, _ = score_words(*many)
    share = word_errors.value / 100
    assert word_errors.interval == pytest.approx(196 * (share * (1 - share) / 300) ** 0.5, rel=0.1)
    assert accuracy.interval == pytest.approx(word_errors.interval)


def test_the_same_seed_gives_the_same_intervals_and_another_seed_says_so(many):
    first, again, other = score_words(*many, seed=7), score_words(*many, seed=7), score_words(*many, seed=8)
    assert first == again
    assert [rate.value for rate in first] == [rate.value for rate in other]
    assert first.rates[1].interval != other.rates[1].interval
    assert "seed:8" in str(other)


def test_without_intervals_no_resampling_is_named(many):
    found = score_words(*many, intervals=False)
    assert "±" not in str(found) and "seed" not in str(found)


def test_the_signature_says_how_many_references_words_have():
    assert "nrefs:1-2|" in str(score_words(WORDS, WORDS, RIGHT))


def test_the_worst_words_come_first_and_right_ones_never(many):
    found = score_words(["a", "b", "c", "d"], ["A", "X", "X Y", "A B C X"], [["A"], ["A"], ["A B"], ["A B C D"]])
    assert [one.source for one in found.worst()] == ["c", "b", "d"]
    assert [one.number for one in found.worst(1)] == [3]


def test_confusions_are_counted_and_the_most_frequent_comes_first():
    outputs = ["B AH T", "B AH T S", "B T"]
    found = score_words(["bat"] * 3, outputs, [["B AE T"]] * 3)
    assert found.confusions() == [Confusion("AE", "AH", 2), Confusion("", "S", 1), Confusion("AE", "", 1)]
    assert len(found.confusions(1)) == 1


def test_everything_can_be_written_as_json():
    found = score_words(WORDS, ["T IH R", "R EH D", "DH IY"], RIGHT)
    written = json.loads(json.dumps(to_json(found, worst=1), allow_nan=False))
    assert written["wer"]["value"] == found.rates[0].value
    assert written["edit_distance"]["signature"] == found.rates[0].signature
    assert written["wer"].keys() == {"name", "value", "interval", "counted", "signature"}
    assert written["words"] == 3
    assert written["confusions"] == [{"expected": "AH", "found": "IY", "times": 1}]
    assert written["worst"][0]["source"] == "the"


REFUSED = {
    "too few outputs": (
        ["a", "b"],
        ["A"],
        [["A"], ["B"]],
        "2 words, 1 outputs and references for 2",
    ),
    "too few references": (["a", "b"], ["A", "B"], [["A"]], "2 words, 2 outputs and references for 1"),
    "no words": ([], [], [], "no words to score"),
    "no references": (["a", "b"], ["A", "B"], [["A"], []], 'Word 2, "b", has no reference'),
    "an empty reference": (["a", "b"], ["A", "B"], [["A", " "], ["B"]], 'Word 1, "a", has an empty reference'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_judged_is_refused(case):
    *given, words = REFUSED[case]
    with pytest.raises(UserError, match=words):
        score_words(*given)


def test_a_reference_of_nothing_but_stress_is_refused_where_stress_does_not_count():
    with pytest.raises(UserError, match="expected phones without stress"):
        score_words(["a"], ["A"], [["ˈ"]], UNSTRESSED)
    assert score_words(["a"], ["A"], [["ˈ"]], PRONUNCIATION)
