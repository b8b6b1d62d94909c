import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.data.split import split_held_out
from dragoman.errors import UserError

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def sides(corpus, split):
    """Return the pairs of each side of a split."""
    pairs = list(corpus.pairs())
    return (
        [pair for pair in pairs if split.training.contains(*pair)],
        [pair for pair in pairs if split.validation.contains(*pair)],
    )


def test_as_many_pairs_are_held_out_as_asked_for(corpus_of):
    corpus = corpus_of([(f"source {number}", f"target {number}") for number in range(1000)])
    split = split_held_out(corpus, held_out=50, seed=1)
    training, validation = sides(corpus, split)
    assert (len(training), len(validation), split.held_out) == (950, 50, 50)
    assert split.notice is None


def test_a_tenth_is_held_out_at_most_and_that_is_said(corpus_of):
    split = split_held_out(corpus_of([(str(number), "x") for number in range(100)]), held_out=1000, seed=1)
    assert split.held_out == 10
    assert split.notice is not None
    assert split.notice.endswith("10 of 100 pairs are held out for validation.")


def test_the_notice_calls_the_pairs_what_the_task_calls_them(corpus_of):
    split = split_held_out(corpus_of([(str(number), "x") for number in range(20)]), 1000, 1, unit="recording")
    assert split.notice.endswith("2 of 20 recordings are held out for validation.")


@quick
@given(
    pairs=st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("xy ")), min_size=1), seed=st.integers(0, 99)
)
def test_equal_pairs_never_fall_on_both_sides_and_neither_side_is_empty(corpus_of, pairs, seed):
    pairs = [*pairs, ("one", "eins"), ("two", "zwei")]
    corpus = corpus_of(pairs)
    training, validation = sides(corpus, split_held_out(corpus, held_out=5, seed=seed))
    assert training and validation
    assert not set(training) & set(validation)
    assert sorted(training + validation) == sorted(pairs)


def test_the_sides_depend_on_the_seed(corpus_of):
    corpus = corpus_of([(str(number), "x") for number in range(500)])
    first, again, other = (split_held_out(corpus, 50, seed) for seed in (1, 1, 2))
    assert first == again
    assert first.validation.held_out_hashes != other.validation.held_out_hashes
    assert first.validation.fingerprint == again.validation.fingerprint
    assert len({first.validation.fingerprint, first.training.fingerprint, other.validation.fingerprint}) == 3


def test_moving_the_lines_moves_no_pair_to_the_other_side(corpus_of):
    pairs = [(str(number), "x") for number in range(500)]
    forward = split_held_out(corpus_of(pairs), 50, 1)
    backward = split_held_out(corpus_of(pairs[::-1], "backward"), 50, 1)
    assert forward == backward


@pytest.mark.parametrize("pairs", [[("a", "b")], [("a", "b")] * 50, [("a", "b"), ("", "c"), ("d", " ")]])
def test_one_pair_cannot_be_split(corpus_of, pairs):
    with pytest.raises(UserError, match=r"1 of them distinct; at least 2 are needed"):
        split_held_out(corpus_of(pairs), 1000, 1)
