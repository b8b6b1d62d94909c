"""Heads whose attention is made by hand, so that what is to be measured of them is known."""

import numpy as np
import pytest

from dragoman.viewer.head_statistics import HeadStatistics, SentenceAttention

END, COMMA = 3, 9


def reading(weights, columns, rows=None, *, frequency=None, special=None, **options):
    """Return a reading of one head over pieces of which END is special and COMMA is punctuation."""
    columns = np.array(columns)
    rows = columns if rows is None else np.array(rows)
    return SentenceAttention(
        weights=np.asarray(weights, dtype=np.float32)[None, None],
        row_tokens=rows,
        column_tokens=columns,
        special_rows=rows == END if special is None else np.array(special),
        special_columns=columns == END if special is None else np.array(special),
        punctuation_columns=columns == COMMA,
        column_frequency=np.ones(len(columns), dtype=np.int64) if frequency is None else np.array(frequency),
        **options,
    )


def numbers(*readings):
    found = HeadStatistics(1, 1)
    for each in readings:
        found.add(each)
    return found.head_measures(0, 0)


def looking_at(columns, size):
    """Return weights of rows that each look at one column alone."""
    return np.eye(size)[columns]


def test_a_head_that_looks_one_back_is_positional_wherever_there_is_something_to_look_back_at():
    found = numbers(reading(looking_at([4, 0, 1, 2, 3], 5), [5, 6, 7, 8, END], is_self_attention=True))
    assert (found.positional, found.offset) == (1.0, -1)
    assert found.distance == pytest.approx(1.0)  # the first looks at END, which is no word
    assert found.earned_badges() == ["positional"]


def test_a_head_that_looks_ahead_half_of_the_time_is_half_positional():
    found = numbers(reading(looking_at([1, 2, 0, 0, 4], 5), [5, 6, 7, 8, END], is_self_attention=True))
    assert (found.positional, found.offset) == (0.5, 1)
    assert "positional" not in found.earned_badges()


def test_an_offset_that_few_queries_have_a_key_at_is_none():
    found = numbers(reading(looking_at([3, 0, 2, 2], 4), [5, 6, 7, END], is_self_attention=True))
    assert (found.positional, found.offset) == (0.5, -1)  # not (1.0, 3): only one of three could look so far ahead


def test_two_sentences_count_by_their_queries():
    ahead = reading(looking_at([1, 2, 2], 3), [5, 6, END], is_self_attention=True)
    still = reading(looking_at([0, 1, 2, 3, 4], 5), [5, 6, 7, 8, END], is_self_attention=True)
    found = numbers(ahead, still)
    assert (found.positional, found.offset) == (pytest.approx(4 / 6), 0)


def test_weight_on_end_is_a_sink_and_no_word():
    weights = [[0.1, 0.2, 0.7], [0.2, 0.1, 0.7], [0.0, 0.0, 1.0]]
    found = numbers(reading(weights, [5, 6, END], is_self_attention=True))
    assert found.sink == pytest.approx(0.7)
    assert found.confidence == pytest.approx(0.2)
    assert found.distance == pytest.approx((0.2 + 0.2) / (0.3 + 0.3))
    assert "sink" in found.earned_badges()


def test_weight_on_punctuation_is_compared_with_an_even_look():
    found = numbers(reading(np.tile([0.1, 0.6, 0.2, 0.1], (4, 1)), [5, COMMA, 6, END], is_self_attention=True))
    assert found.punctuation == pytest.approx(0.6)
    assert found.punctuation_baseline == pytest.approx(0.25)
    assert "punctuation" in found.earned_badges()


def test_entropy_is_in_bits():
    found = numbers(
        reading([[0.25] * 4, [1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25] * 4], [5, 6, 7, END], is_self_attention=True)
    )
    assert found.entropy == pytest.approx((2 + 0 + 1) / 3, abs=1e-6)


def test_a_head_that_looks_at_the_rarest_word_is_compared_with_chance():
    frequency = [9, 1, 5, 9, 99]
    found = numbers(
        reading(looking_at([1, 1, 1, 0, 4], 5), [5, 6, 7, 8, END], frequency=frequency, is_self_attention=True)
    )
    assert (found.rare, found.rare_baseline) == (0.75, 0.25)
    assert "rare" in found.earned_badges()


def test_equally_rare_words_all_count_and_make_chance_better():
    found = numbers(
        reading(looking_at([1, 2, 0, 3], 4), [5, 6, 7, END], frequency=[2, 1, 1, 9], is_self_attention=True)
    )
    assert (found.rare, found.rare_baseline) == (pytest.approx(2 / 3), pytest.approx(2 / 3))


def test_in_the_decoder_only_what_is_visible_is_compared():
    weights = [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    start = [True, False, False]
    found = numbers(
        reading(weights, [2, 5, 6], special=start, frequency=[9, 4, 1], is_self_attention=True, is_causal=True)
    )
    # Row 0 reads START; row 1 sees one word, so it has no choice; row 2 sees both and looks at the commoner one.
    assert (found.rare, found.rare_baseline) == (0.0, 0.5)
    assert (found.positional, found.offset) == (1.0, -1)
    assert found.sink == 0.5


def test_a_copying_head_finds_the_same_piece_and_not_itself():
    found = numbers(reading(looking_at([2, 1, 2, 3], 4), [5, 6, 5, END], is_self_attention=True))
    assert found.copy == 0.5  # the first finds its like, the third stays at itself, the second has none
    across = numbers(reading(looking_at([1, 0, 2], 3), columns=[6, 5, END], rows=[5, 6, END]))
    assert across.copy == 1.0
    assert "copy" in across.earned_badges()


def test_alignment_is_read_when_a_piece_is_written_and_one_step_later():
    links = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], dtype=bool)
    late = looking_at([3, 1, 0, 2], 4)  # what row t + 1 looks at is what piece t translates
    found = numbers(reading(late, columns=[5, 6, 7, END], rows=[15, 16, 17, END], links=links))
    assert (found.alignment, found.alignment_shifted) == (0.0, 1.0)
    assert found.alignment_baseline == pytest.approx(1 / 3)
    assert "alignment" in found.earned_badges()


def test_a_head_that_only_follows_the_diagonal_is_not_alignment_like():
    links = np.eye(4, dtype=bool)
    links[3, 3] = False
    found = numbers(reading(np.eye(4), columns=[5, 6, 7, END], rows=[15, 16, 17, END], links=links))
    assert (found.alignment, found.alignment_baseline) == (1.0, 1.0)
    assert found.earned_badges() == ["positional"]


def test_what_the_text_does_not_hold_is_not_measured():
    found = numbers(reading(np.eye(2), [5, END], is_self_attention=True))
    assert (found.rare, found.copy, found.alignment, found.alignment_baseline) == (None, None, None, None)
    assert HeadStatistics(1, 1).head_measures(0, 0).earned_badges() == []


def test_every_head_has_its_own_numbers_and_is_named_by_its_place():
    found = HeadStatistics(2, 2)
    weights = np.stack([looking_at([0, 1, 2], 3), looking_at([2, 2, 2], 3)] * 2).reshape(2, 2, 3, 3)
    one = reading(np.eye(3), [5, 6, END], is_self_attention=True)
    found.add(SentenceAttention(**{**vars(one), "weights": weights.astype(np.float32)}))
    heads = found.report()
    assert [(head["layer"], head["head"]) for head in heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [head["sink"] for head in heads] == [0.0, 1.0, 0.0, 1.0]
    assert heads[1]["badges"] == ["sink"]


def over_time(weights, silent, **options):
    """Return a reading of one head over positions in time, of which some are silent."""
    weights = np.asarray(weights, dtype=np.float32)
    none = np.zeros(weights.shape[1], dtype=bool)
    rows = np.zeros(len(weights), dtype=np.int64)
    return SentenceAttention(
        weights=weights[None, None], row_tokens=rows, column_tokens=np.zeros(len(none), dtype=np.int64),
        special_rows=rows > 0, special_columns=none, punctuation_columns=none,
        column_frequency=np.zeros(len(none), dtype=np.int64), silent_columns=np.array(silent, dtype=bool), **options,
    )  # fmt: skip


def test_a_head_that_looks_at_silence_is_told_from_one_that_looks_everywhere():
    silent = [True, False, False, True]
    still = numbers(over_time(looking_at([0, 0, 3, 3], 4), silent, is_self_attention=True))
    even = numbers(over_time(np.full((4, 4), 0.25), silent, is_self_attention=True))
    assert (still.silence, still.silence_baseline, still.earned_badges()) == (1.0, 0.5, ["silence"])
    assert (even.silence, even.earned_badges()) == (0.5, [])


def test_the_width_of_a_head_is_the_standard_deviation_of_the_time_that_it_attends_to():
    found = numbers(over_time([[0.5, 0, 0.5], [0, 1, 0], [0, 0.5, 0.5]], [0, 0, 0], is_self_attention=True))
    assert found.width == pytest.approx((1.0 + 0.0 + 0.5) / 3)
    assert found.distance == pytest.approx((1.0 + 0.0 + 0.5) / 3)
    assert found.monotonic is None


def test_attention_over_time_has_no_words_and_is_held_against_chance():
    links = np.array([[1, 1, 0, 0], [0, 0, 1, 0]], dtype=bool)
    found = numbers(over_time(looking_at([1, 2], 4), [0, 0, 0, 0], links=links))
    assert (found.alignment, found.alignment_baseline, found.monotonic) == (1.0, 0.375, 1.0)
    assert found.earned_badges() == ["alignment"]
    assert (found.positional, found.distance, found.rare, found.copy, found.sink, found.punctuation) == (None,) * 6
    assert numbers(over_time(looking_at([2, 1, 3], 4), [0, 0, 0, 0])).monotonic == 0.5


def test_only_attention_over_time_is_reported_with_its_measures():
    words, times = HeadStatistics(1, 1), HeadStatistics(1, 1)
    words.add(reading(np.eye(3), [5, 6, END], is_self_attention=True))
    times.add(over_time(np.eye(3), [0, 1, 0], is_self_attention=True))
    assert "silence" not in words.report()[0]
    assert times.report()[0]["silence"] == pytest.approx(1 / 3, abs=1e-4)
