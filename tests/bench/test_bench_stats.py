"""Medians, spreads and ratios."""

import pytest

from dragoman.bench.stats import SampleStats, paired_ratio


def test_the_median_is_reported_with_the_lowest_and_the_highest():
    measure = SampleStats.from_values([5.0, 1.0, 9.0])
    assert (measure.median, measure.lowest, measure.highest) == (5.0, 1.0, 9.0)
    assert measure.format("{:.0f}".format) == "5 (1–9)"
    assert f"{measure:+.1f}" == "+5.0 (+1.0–+9.0)"
    assert measure.to_json() == {"median": 5.0, "lowest": 1.0, "highest": 9.0, "values": [5.0, 1.0, 9.0]}


def test_the_median_of_an_even_number_lies_between_the_middle_two():
    assert SampleStats.from_values([4.0, 1.0, 2.0, 9.0]).median == 3.0


def test_one_turn_has_no_spread():
    assert f"{SampleStats.from_values([-5.0]):.0f}" == "−5"
    assert f"{SampleStats.from_values([float('inf')]):.0f}" == "not finite"


def test_a_ratio_compares_the_turns_of_one_round():
    """The machine was half as fast in the second round: that is no difference between the two."""
    found = paired_ratio(SampleStats.from_values([10.0, 5.0, 12.0]), SampleStats.from_values([5.0, 2.5, 4.0]))
    assert found.values == (2.0, 2.0, 3.0)
    assert found.median == 2.0


def test_turns_without_a_partner_cannot_be_compared():
    with pytest.raises(ValueError, match="shorter"):
        paired_ratio(SampleStats.from_values([1.0, 2.0]), SampleStats.from_values([1.0]))
