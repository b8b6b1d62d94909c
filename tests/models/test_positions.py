"""Section 3.5: where a token stands."""

import math

import pytest
import torch
from small_models import random_rows, small_model

from dragoman.models.positions import (
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    apply_rotary_embedding,
    sinusoids,
)
from dragoman.models.transducer import Source


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

    torch.testing.assert_close(vectors.grad, 4 * (2 * vectors.detach() + sinusoids(20, 8)))


def test_waves_are_neither_learned_nor_stored():
    positions = SinusoidalPositions(8)
    assert list(positions.parameters()) == []
    assert positions.state_dict() == {}


def test_what_is_turned_keeps_its_length_and_stays_as_it_is_at_the_first_place():
    heads = torch.randn(2, 3, 5, 8, dtype=torch.float64)

    found = apply_rotary_embedding(heads, sinusoids(5, 8).double())

    torch.testing.assert_close(found.norm(dim=-1), heads.norm(dim=-1))
    assert torch.equal(found[:, :, 0], heads[:, :, 0])
    assert not torch.allclose(found[:, :, 1:], heads[:, :, 1:])


def test_each_pair_is_turned_by_its_own_angle():
    heads = torch.tensor([[1.0, 1.0, 0.0, 0.0]])  # pairs (1, 0) and (1, 0): number i with number i + 2

    found = apply_rotary_embedding(heads, sinusoids(4, 4)[3:])

    slow = 3 / 10_000 ** (2 / 4)
    assert found[0].tolist() == pytest.approx([math.cos(3), math.cos(slow), math.sin(3), math.sin(slow)], abs=1e-6)


def test_turned_queries_and_keys_see_only_how_far_apart_they_stand():
    query, key = torch.randn(2, 8, dtype=torch.float64)
    waves = sinusoids(40, 8).double()

    def product(asking, asked):
        return float(apply_rotary_embedding(query, waves[asking]) @ apply_rotary_embedding(key, waves[asked]))

    assert product(3, 1) == pytest.approx(product(32, 30), abs=1e-6)
    assert product(3, 1) != pytest.approx(product(1, 3), abs=1e-3)  # before is not behind
    assert product(3, 1) != pytest.approx(product(4, 1), abs=1e-3)


def test_a_table_that_grew_while_validating_serves_the_training_too():
    positions, heads = SinusoidalPositions(8, length=4), torch.randn(20, 8, requires_grad=True)
    with torch.inference_mode():
        positions(0, 20)
    apply_rotary_embedding(heads, positions(0, 20)).square().sum().backward()
    torch.testing.assert_close(heads.grad, 2 * heads.detach())  # what is turned keeps its length


def test_half_precision_is_turned_in_single():
    heads, waves = torch.randn(1, 600, 8, dtype=torch.bfloat16), sinusoids(600, 8)
    found = apply_rotary_embedding(heads, waves)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, apply_rotary_embedding(heads.float(), waves).bfloat16())


def test_learned_positions_give_each_place_its_own_vector_and_learn_it():
    positions = LearnedPositions(8, max_length=5)

    vectors = positions(1, 3)
    vectors.sum().backward()

    assert torch.equal(vectors, positions.table[1:4])
    assert positions.table.grad[:, 0].tolist() == [0, 1, 1, 1, 0]


def test_there_are_only_as_many_learned_places_as_were_learned():
    with pytest.raises(AssertionError, match="position 6 exceeds the 5 learned positions"):
        LearnedPositions(8, max_length=5)(5, 1)


def test_without_positions_the_encoder_sees_a_bag_of_tokens():
    model, source = small_model(positions="none"), random_rows([6])
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    states, reordered = (model.encode(Source.from_ids(ids)).states for ids in (source, source[:, order]))
    torch.testing.assert_close(reordered, states[:, order], atol=1e-9, rtol=0)
    assert torch.equal(NoPositions(8)(3, 2), torch.zeros(2, 8))
