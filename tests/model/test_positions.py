"""Section 3.5: where a token stands."""

import math

import pytest
import torch

from dragoman.model.positions import LearnedPositions, SinusoidalPositions, sinusoids


def test_the_waves_are_those_of_section_three_point_five():
    found = sinusoids(4, 6)[3]

    first, second, third = (3 / 10_000 ** (pair / 6) for pair in (0, 2, 4))
    by_hand = [math.sin(first), math.cos(first), math.sin(second), math.cos(second), math.sin(third), math.cos(third)]
    assert found.tolist() == pytest.approx(by_hand, abs=1e-7)


def test_the_first_place_is_all_sines_of_zero_and_cosines_of_zero():
    assert sinusoids(1, 6).tolist() == [[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]]


def test_far_away_places_are_as_exact_as_near_ones():
    """Computed in float32, the angle of place 100,000 would already be wrong in the third digit."""
    table = sinusoids(100_001, 8)
    assert table[100_000, 2].item() == pytest.approx(math.sin(100_000 / 10_000 ** (2 / 8)), abs=1e-7)


def test_a_step_sees_the_place_that_the_whole_sequence_sees():
    positions = SinusoidalPositions(8)
    assert torch.equal(positions(5, 1), positions(0, 9)[5:6])


def test_the_table_grows_when_a_place_beyond_it_is_asked_for():
    positions = SinusoidalPositions(8, length=4)
    before = positions(0, 4).clone()

    beyond = positions(3, 10)

    assert torch.equal(beyond, sinusoids(13, 8)[3:])
    assert torch.equal(positions(0, 4), before)


def test_a_table_that_grew_keeps_the_type_of_the_model():
    positions = SinusoidalPositions(8, length=4).double()
    assert positions(0, 20).dtype == torch.float64
    assert torch.equal(positions(0, 4), sinusoids(4, 8).double())  # and the numbers it had


def test_a_table_that_grew_while_translating_can_be_trained_with():
    positions = SinusoidalPositions(8, length=4)
    with torch.inference_mode():
        positions(0, 20)
    vectors = torch.randn(20, 8, requires_grad=True)

    (vectors * 2 + positions(0, 20)).square().sum().backward()

    assert torch.isfinite(vectors.grad).all()


def test_waves_are_neither_learned_nor_stored():
    positions = SinusoidalPositions(8)
    assert list(positions.parameters()) == []
    assert positions.state_dict() == {}


def test_learned_positions_give_each_place_its_own_vector_and_learn_it():
    positions = LearnedPositions(8, longest=5)

    vectors = positions(1, 3)
    vectors.sum().backward()

    assert torch.equal(vectors, positions.table[1:4])
    assert positions.table.grad[:, 0].tolist() == [0, 1, 1, 1, 0]


def test_there_are_only_as_many_learned_places_as_were_learned():
    with pytest.raises(AssertionError, match="place 6 is beyond the 5 learned ones"):
        LearnedPositions(8, longest=5)(5, 1)
