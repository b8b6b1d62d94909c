"""Brackets are counted as EVALB counts them: by sums done by hand, and by its own sample files."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.errors import UserError
from dragoman.evaluation.brackets import (
    COLLINS,
    BracketRules,
    SentenceCounts,
    percentage,
    read_rules,
    score_brackets,
    to_json,
)
from dragoman.evaluation.trees import treebank_sentences

EVALB = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "evalb"

# 6 brackets count: S 0-6, NP 0-2, VP 2-6, NP 3-4, PP 4-6, NP 5-6. The full stop does not, nor does TOP.
SAW = "(TOP (S (NP (DT the) (NN man)) (VP (VBD saw) (NP (PRP her)) (PP (IN with) (NP (NNS eyes)))) (. .)))"
# The same, but the last phrase hangs on the noun: NP 3-6 is new, and tags of two words are wrong.
HER = "(TOP (S (NP (DT the) (VB man)) (VP (VBD saw) (NP (NP (PRP$ her)) (PP (IN with) (NP (NNS eyes))))) (. .)))"


def one(hypothesis: str, reference: str, rules: BracketRules = COLLINS) -> SentenceCounts:
    """Score one sentence."""
    return score_brackets([hypothesis], [reference], rules).sentences[0]


def test_a_tree_compared_with_itself_is_right_in_all_its_brackets():
    counts = one(SAW, SAW)
    assert counts == SentenceCounts("scored", 7, 6, 6, 6, crossing=0, words=6, right_tags=6)
    assert (counts.precision, counts.recall, counts.exact) == (100, 100, True)


def test_a_bracket_too_many_costs_precision_and_wrong_tags_cost_accuracy():
    found = score_brackets([HER], [SAW]).overall
    assert (found.matched, found.in_hypothesis, found.in_reference) == (6, 7, 6)
    assert (found.precision, found.recall) == (100 * 6 / 7, 100)
    assert found.f1 == pytest.approx(2 * 6 / (7 + 6) * 100)
    assert found.exact_match == 0
    assert found.tagging_accuracy == 100 * 4 / 6


def test_a_bracket_too_few_costs_recall():
    found = score_brackets([SAW], [HER]).overall
    assert (found.precision, found.recall) == (100, 100 * 6 / 7)


def test_a_bracket_with_another_label_is_wrong_unless_labels_do_not_count():
    hypothesis, reference = "(S (NP (A a) (B b)) (C c))", "(S (VP (A a) (B b)) (C c))"
    assert one(hypothesis, reference).matched == 1
    assert one(hypothesis, reference, replace(COLLINS, labelled=False)).matched == 2


def test_a_bracket_twice_around_the_same_words_needs_two_partners():
    once, twice = "(S (NP (A a) (B b)) (C c))", "(S (NP (NP (A a) (B b))) (C c))"
    assert one(once, twice) == SentenceCounts("scored", 3, 2, 3, 2, 0, 3, 3)
    assert one(twice, once) == SentenceCounts("scored", 3, 2, 2, 3, 0, 3, 3)
    assert one(twice, twice).matched == 3


def test_crossing_is_counted_by_the_brackets_of_the_hypothesis():
    """The reference groups b c; the hypothesis has two brackets that take b without c, and one that takes both."""
    reference = "(S (A a) (X (B b) (C c)) (D d))"
    assert one("(S (Y (Z (A a) (B b))) (C c) (D d))", reference).crossing == 2
    assert one("(S (A a) (Y (B b) (C c) (D d)))", reference).crossing == 0
    assert one("(S (A a) (B b) (Y (C c) (D d)))", reference).crossing == 1
    assert one(reference, "(S (Y (Z (A a) (B b))) (C c) (D d))").crossing == 1


def test_crossing_is_averaged_and_counted_none_and_few():
    pairs = {  # crossings: the sentence
        0: ("(S (A a) (B b))", "(S (A a) (B b))"),
        2: ("(S (Y (Z (A a) (B b))) (C c))", "(S (A a) (X (B b) (C c)))"),
        3: ("(S (Y (Z (Y (A a) (B b)))) (C c))", "(S (A a) (X (B b) (C c)))"),
    }
    found = score_brackets(*zip(*pairs.values(), strict=True))
    assert [sentence.crossing for sentence in found.sentences] == [*pairs]
    summary = found.overall
    assert (summary.crossing, summary.average_crossing) == (5, 5 / 3)
    assert (summary.no_crossing, summary.two_or_less_crossing) == (100 / 3, 200 / 3)


def test_function_tags_of_brackets_do_not_count_but_those_of_words_do():
    counts = one("(S (NP-SBJ-1 (A a)) (VP=2 (B-X b)))", "(S (NP (A a)) (VP (B b)))")
    assert (counts.matched, counts.right_tags, counts.words) == (3, 1, 2)


def test_punctuation_is_left_out_wherever_it_hangs():
    """Its words, a bracket of nothing else, and so the extent of the others; only the length knows of it."""
    hypothesis = "(S (NP (A a) (, ,)) (X (, ,)) (VP (B b) (: --) (C c)) (. .))"
    reference = "(S (NP (A a)) (, ,) (VP (B b) (C c)) (`` ``) ('' '') (-NONE- *))"
    assert one(hypothesis, reference) == SentenceCounts("scored", 6, 3, 3, 3, 0, 3, 3)


def test_adverb_phrases_and_particles_are_equal_labels_for_brackets_and_for_tags():
    assert one("(S (PRT (PRT a)))", "(S (ADVP (ADVP a)))") == SentenceCounts("scored", 1, 2, 2, 2, 0, 1, 1)
    assert one("(S (PRT (PRT a)))", "(S (ADVP (ADVP a)))", BracketRules()).matched == 1


def test_equality_goes_both_ways_but_no_further():
    """A = B and B = C do not make A = C; and the first that fits is taken, as EVALB does, though it is not the best."""
    rules = BracketRules(equal_labels=(("A", "B"), ("B", "C")))
    assert one("(S (A (X x)))", "(S (C (X x)))", rules).matched == 1
    assert one("(S (B (X x)))", "(S (C (X x)))", rules).matched == 2
    assert one("(B (A (X x)))", "(A (C (X x)))", rules).matched == 1
    assert one("(A (B (X x)))", "(A (C (X x)))", rules).matched == 2


def test_a_bracket_equal_to_a_deleted_one_is_deleted_but_a_word_is_not():
    rules = BracketRules(deleted=("TOP",), equal_labels=(("ROOT", "TOP"),))
    assert one("(ROOT (S (ROOT a)))", "(ROOT (S (ROOT a)))", rules) == SentenceCounts("scored", 1, 1, 1, 1, 0, 1, 1)


def test_an_outer_bracket_without_a_label_counts_as_one():
    """As in EVALB, for which it has the empty label; COLLINS.prm deletes TOP, but neither ROOT nor nothing."""
    assert one("( (S (A a)))", "( (S (A a)))").matched == 2
    assert one("(ROOT (S (A a)))", "(ROOT (S (A a)))").matched == 2
    assert one("(TOP (S (A a)))", "(TOP (S (A a)))").matched == 1
    assert one("(S (A a))", "( (S (A a)))").recall == 50


def test_brackets_without_words_do_not_count():
    assert one("(S (NP) (A a))", "(S (A a) (NP (-NONE- *)))") == SentenceCounts("scored", 1, 1, 1, 1, 0, 1, 1)


def test_several_trees_on_a_line_are_one_sentence():
    assert one("(A a) (B b)", "(S (A a) (B b))") == SentenceCounts("scored", 2, 0, 1, 0, 0, 2, 2)


NOT_SCORED = {
    "nothing": ("", "skipped", "it has no scored words."),
    "punctuation only": ("(S (. .))", "skipped", "it has no scored words."),
    "no words, malformed": ("(S (NP", "skipped", "not closed"),
    "another word": ("(S (A a) (B c))", "error", 'word 2 is "c", but the reference has "b".'),
    "another case": ("(S (A A) (B b))", "error", 'word 1 is "A", but the reference has "a".'),
    "a word more": ("(S (A a) (B b) (C c))", "error", "it has 3 scored words, but the reference has 2."),
    "a word less": ("(S (A a))", "error", "it has 1 scored words, but the reference has 2."),
    "not closed": ("(S (A a) (B b)", "error", "the tree that begins here is not closed"),
    "closed too often": ("(S (A a) (B b)))", "error", 'unmatched ")".'),
    "two words in a bracket": ("(S (A a b) (B b))", "error", 'the bracket "(A a b)" contains 2 words'),
    "text outside": ("(S (A a) (B b)) amen", "error", '"amen" is outside of all brackets.'),
}


@pytest.mark.parametrize(("hypothesis", "status", "why"), NOT_SCORED.values(), ids=NOT_SCORED.keys())
def test_a_sentence_without_words_is_skipped_and_one_with_other_words_is_an_error(hypothesis, status, why):
    counts = one(hypothesis, "(S (A a) (B b))")
    assert why in counts.why
    assert counts == SentenceCounts(status, 2, why=counts.why)


def test_errors_and_skipped_sentences_are_counted_and_do_not_lower_the_scores():
    found = score_brackets(["", "(S (A b))", SAW], ["(S (A a))", "(S (A a))", SAW]).overall
    assert (found.sentences, found.errors, found.skipped, found.scored) == (3, 1, 1, 1)
    assert (found.f1, found.exact_match, found.tagging_accuracy, found.words) == (100, 100, 100, 6)


def test_where_nothing_is_scored_the_scores_are_zero():
    found = score_brackets([""], [SAW]).overall
    assert (found.scored, found.precision, found.recall, found.f1, found.exact_match) == (0, 0, 0, 0, 0)


def test_words_that_are_said_to_be_equal_are():
    rules = replace(COLLINS, equal_words=(("This", "this"),))
    assert one("(S (A This))", "(S (A this))", rules).status == "scored"
    assert one("(S (A this))", "(S (A This))", rules).status == "scored"
    assert one("(S (A that))", "(S (A this))", rules).status == "error"


def test_short_sentences_are_scored_apart_by_the_length_of_their_reference():
    """The reference has two words that are scored and three in all; a trace is not even measured."""
    reference = "(S (A a) (B b) (. .) (-NONE- *))"
    found = score_brackets([reference, "(S (A a))"], [reference, "(S (A a))"], replace(COLLINS, cutoff=2))
    assert [sentence.length for sentence in found.sentences] == [3, 1]
    assert (found.overall.sentences, found.short.sentences, found.short.words) == (2, 1, 1)
    assert score_brackets([reference], [reference], replace(COLLINS, cutoff=3)).short.sentences == 1


QUOTES = replace(COLLINS, quotes=("''", "POS"))


def test_an_apostrophe_taken_for_a_quotation_mark_is_put_back():
    """The hypothesis deletes it as punctuation; with QUOTE_LABEL it is a word with a wrong tag instead."""
    reference = "(S (NP (NP (N dogs) (POS ')) (N tails)) (V wag))"
    hypothesis = "(S (NP (N dogs) ('' ')) (NP (N tails)) (V wag))"
    assert one(hypothesis, reference).status == "error"
    # S 0-4 matches; NP 0-2 is the inner noun phrase; NP 2-3 has no partner, NP 0-3 neither.
    assert one(hypothesis, reference, QUOTES) == SentenceCounts("scored", 4, 2, 3, 3, 0, 4, 3)
    assert one(reference, hypothesis, QUOTES) == SentenceCounts("scored", 4, 2, 3, 3, 0, 4, 3)


def test_a_quotation_mark_on_both_sides_stays_deleted():
    reference, hypothesis = "(S (N a) ('' ') (N b))", "(S (N a) ('' ') (N c) (N b))"
    assert "it has 3 scored words, but the reference has 2" in one(hypothesis, reference, QUOTES).why
    assert one(reference, reference, QUOTES).words == 2


def test_a_very_deep_tree_is_scored():
    deep = "(X " * 1500 + "(A a)" + ")" * 1500
    assert one(deep, deep).matched == 1500


def test_numbers_of_hypotheses_and_references_must_agree():
    with pytest.raises(UserError, match="There are 1 hypotheses but 2 references; tree n of one must belong to tree n"):
        score_brackets([SAW], [SAW, SAW])


def test_a_malformed_reference_is_refused():
    with pytest.raises(UserError, match="Reference 2: the tree that begins here is not closed"):
        score_brackets([SAW, SAW], [SAW, "(S (A a)"])


words = st.lists(st.sampled_from("abc"), min_size=1, max_size=8)
pairs = st.lists(
    st.tuples(st.integers(0, 7), st.integers(1, 8), st.sampled_from(["S", "X", "ADVP", "TOP"])), max_size=6
)


def parse(text: list[str], brackets: list[tuple[int, int, str]]) -> str:
    """Put brackets around neighbours, one after the other, and around everything."""
    parts = [f"(N {word})" for word in text]
    for start, count, label in brackets:
        first = start % len(parts)
        parts[first : first + count] = [f"({label} {' '.join(parts[first : first + count])})"]
    return f"(S {' '.join(parts)})"


@settings(deadline=None, max_examples=50)
@given(words, pairs, pairs)
def test_swapping_hypothesis_and_reference_swaps_precision_and_recall(text, some, others):
    one_tree, other = parse(text, some), parse(text, others)
    there, back = score_brackets([one_tree], [other]).overall, score_brackets([other], [one_tree]).overall
    assert (there.precision, there.recall, there.f1) == (back.recall, back.precision, pytest.approx(back.f1))
    assert there.tagging_accuracy == back.tagging_accuracy
    assert (there.crossing == 0) == (back.crossing == 0)
    assert there.matched <= min(there.in_reference, there.in_hypothesis)
    assert there.crossing <= there.in_hypothesis - there.matched
    assert score_brackets([one_tree], [one_tree]).overall.exact_match == 100


def test_the_rules_of_a_parameter_file_are_read():
    lines = ["# a comment", "DEBUG 0", "", "MAX_ERROR 3", "CUTOFF_LEN  25 ", "LABELED 0", "DELETE_LABEL #",
             "DELETE_LABEL\tTOP", "DELETE_LABEL_FOR_LENGTH -NONE-", "QUOTE_LABEL POS", "EQ_LABEL A B", "EQ_LABEL B C",
             "EQ_WORD This this"]  # fmt: skip
    assert read_rules(lines, "my.prm") == BracketRules(
        labelled=False, deleted=("#", "TOP"), deleted_for_length=("-NONE-",), equal_labels=(("A", "B"), ("B", "C")),
        equal_words=(("This", "this"),), quotes=("POS",), cutoff=25, most_errors=3,
    )  # fmt: skip
    assert read_rules([], "my.prm") == BracketRules()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("DELET_LABEL TOP", 'unknown parameter "DELET_LABEL". Did you mean "DELETE_LABEL"?'),
        ("DELETE_LABEL", 'DELETE_LABEL must be followed by LABEL, found "".'),
        ("DELETE_LABEL TOP # the outermost", 'DELETE_LABEL must be followed by LABEL, found "TOP # the outermost".'),
        ("EQ_LABEL ADVP", 'EQ_LABEL must be followed by LABEL LABEL, found "ADVP".'),
        ("CUTOFF_LEN forty", 'expected a whole number, found "forty".'),
        ("MAX_ERROR -1", 'expected a whole number, found "-1".'),
    ],
)
def test_a_wrong_line_of_a_parameter_file_is_refused(line, words):
    with pytest.raises(UserError) as caught:
        read_rules(["LABELED 1", line], "my.prm")
    assert str(caught.value) == f"my.prm: line 2: {words}"


def test_a_score_says_by_what_rules_it_was_made():
    assert (
        str(score_brackets([HER], [SAW])) == "F1 92.31  labelled brackets; without TOP -NONE- , : `` '' .; ADVP = PRT"
    )
    assert str(BracketRules(labelled=False, quotes=("POS",))) == "unlabelled brackets; quotes as POS"


def test_scores_are_plain_values():
    found = to_json(score_brackets([SAW, ""], [SAW, SAW]), [1, 2], each=True)
    assert (found["all"]["f1"], found["short"]["sentences"], found["rules"]["cutoff"]) == (100, 2, 40)
    assert found["not_scored"] == [{"line": 2, "status": "skipped", "why": "it has no scored words."}]
    assert [sentence["matched"] for sentence in found["sentences"]] == [6, 0]
    assert "sentences" not in to_json(score_brackets([SAW], [SAW]), [1])


shared = [
    pytest.mark.shared,
    pytest.mark.skipif(not EVALB.exists(), reason=f"no sample files of EVALB in {EVALB}"),
]


def lines_of(name: str) -> list[str]:
    return (EVALB / name).read_text().removesuffix("\n").split("\n")


@pytest.fixture(scope="module")
def sample():
    """EVALB's sample, scored by its own rules."""
    hypotheses, references = (
        [text for _, text in treebank_sentences(lines_of(f"sample.{kind}"))] for kind in ("tst", "gld")
    )
    return score_brackets(hypotheses, references, read_rules(lines_of("sample.prm"), "sample.prm"))


class TestEvalbsOwnSample:
    """EVALB's listing, digit by digit, but for two columns: it is older than the program.

    The words of sentences that were not scored are 0 now and were those of the reference; the sum of all crossings is 1
    now and was 16, though the average beside it was that of 1 already.
    """

    pytestmark = shared

    def test_every_sentence(self, sample):
        listed = [line.split() for line in lines_of("sample.rsl")[3:27]]
        for row in listed:
            row[9] = "0" if row[2] != "0" else row[9]
        assert [listing(number, counts) for number, counts in enumerate(sample.sentences, start=1)] == listed

    def test_the_line_of_sums(self, sample):
        found = sample.overall
        listed = lines_of("sample.rsl")[28].split()
        listed[5] = "1"
        assert [
            f"{found.recall:.2f}", f"{found.precision:.2f}", *map(str, (found.matched, found.in_reference)),
            *map(str, (found.in_hypothesis, found.crossing, found.words, found.right_tags)),
            f"{found.tagging_accuracy:.2f}",
        ] == listed  # fmt: skip

    @pytest.mark.parametrize(("part", "first"), [("overall", 32), ("short", 45)])
    def test_the_summary(self, sample, part, first):
        found = getattr(sample, part)
        listed = [line.split("=")[1].strip() for line in lines_of("sample.rsl")[first : first + 11]]
        measures = (
            found.recall, found.precision, found.exact_match, found.average_crossing, found.no_crossing,
            found.two_or_less_crossing, found.tagging_accuracy,
        )  # fmt: skip
        counts = (found.sentences, found.errors, found.skipped, found.scored)
        assert [*map(str, counts), *(f"{measure:.2f}" for measure in measures)] == listed

    def test_the_f_measure_that_later_versions_print(self, sample):
        assert f"{sample.overall.f1:.2f} {sample.short.f1:.2f}" == "89.12 83.20"

    def test_our_own_rules_are_those_of_collins(self):
        assert read_rules(lines_of("COLLINS.prm"), "COLLINS.prm") == COLLINS


def listing(number: int, counts: SentenceCounts) -> list[str]:
    """Return the columns of EVALB's listing for one sentence."""
    status = ["scored", "error", "skipped"].index(counts.status)
    numbers = (counts.matched, counts.in_reference, counts.in_hypothesis, counts.crossing, counts.words)
    return [
        *map(str, (number, counts.length, status)), f"{counts.recall:.2f}", f"{counts.precision:.2f}",
        *map(str, numbers), f"{counts.right_tags}", f"{percentage(counts.right_tags, counts.words):.2f}",
    ]  # fmt: skip
