"""Equation 1, its two ways of being computed, and the heads around it."""

import math
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import random_rows, small_model
from torch import nn

from dragoman import native
from dragoman.decoding.engine import Engine
from dragoman.models.attention import (
    AdditiveScore,
    MultiHeadAttention,
    attend,
    causal_mask,
    dot_product,
    scaled_dot_product,
    unfused_attention,
)
from dragoman.models.transducer import Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
types = pytest.mark.parametrize("dtype", TOLERANCE)
widths = pytest.mark.parametrize(
    "key_width, value_width", [(8, 8), (8, 5), (3, 8)]
)  # the last two leave the fast kernel


def query_key_value(dtype=torch.float64, key_width=8, value_width=8, *, queries=5, keys=7):
    torch.manual_seed(1)
    shapes = [(2, 3, queries, key_width), (2, 3, keys, key_width), (2, 3, keys, value_width)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def some_mask(queries=5, keys=7):
    """Return a mask with something to see for everyone, and not the same for all."""
    mask = torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(2)) > 0.5
    mask[..., 0] = True
    return mask


def test_attention_is_the_sum_done_by_hand():
    query = torch.tensor([[[[1.0, 0.0]]]])
    key = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    value = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])

    output, weights = attend(query, key, value, None, record=True)

    first = math.exp(1 / math.sqrt(2))  # the scores are 1/√2 and 0
    second = math.exp(0)
    total = first + second
    assert weights.flatten().tolist() == pytest.approx([first / total, second / total])
    assert output.flatten().tolist() == pytest.approx([(first + 3 * second) / total, (2 * first + 4 * second) / total])


@types
@widths
@pytest.mark.parametrize("mask", [None, some_mask(), causal_mask(7)[2:], some_mask()[:, :, :1]])
def test_the_fused_and_the_explicit_way_agree_in_value_and_gradient(dtype, key_width, value_width, mask):
    inputs = query_key_value(dtype, key_width, value_width)

    fused, _ = attend(*inputs, mask)
    written_out, _ = attend(*inputs, mask, record=True)

    torch.testing.assert_close(fused, written_out, atol=TOLERANCE[dtype], rtol=0)
    gradients = torch.autograd.grad(fused.sum(), inputs), torch.autograd.grad(written_out.sum(), inputs)
    torch.testing.assert_close(*gradients, atol=10 * TOLERANCE[dtype], rtol=0)


def test_weights_are_returned_only_to_those_who_ask():
    assert attend(*query_key_value(), None)[1] is None
    assert attend(*query_key_value(), None, record=True)[1].shape == (2, 3, 5, 7)


def test_the_explicit_block_takes_the_explicit_way_and_then_the_old_one_again():
    inputs = query_key_value(torch.float32)
    written_out, _ = attend(*inputs, None, record=True)

    with unfused_attention():
        inside, weights = attend(*inputs, None)
    outside, _ = attend(*inputs, None)

    assert torch.equal(inside, written_out)
    assert weights is None
    assert not torch.equal(outside, written_out)  # the fused kernel rounds differently


def test_an_error_inside_the_explicit_block_ends_it_too():
    inputs = query_key_value(torch.float32)
    fused, _ = attend(*inputs, None)

    with pytest.raises(ZeroDivisionError), unfused_attention():
        raise ZeroDivisionError

    assert torch.equal(attend(*inputs, None)[0], fused)


@types
def test_the_weights_shown_are_the_weights_used(dtype):
    query, key, value = query_key_value(dtype, 8, 5)
    mask = some_mask()

    output, weights = attend(query, key, value, mask, record=True)
    fused, _ = attend(query, key, value, mask)

    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), atol=1e-6, rtol=0)
    assert (weights >= 0).all()
    assert weights.masked_select(~mask).count_nonzero() == 0
    torch.testing.assert_close(weights @ value, output, atol=1e-6, rtol=0)
    torch.testing.assert_close(weights @ value, fused, atol=1e-6, rtol=0)


@types
@widths
@pytest.mark.parametrize("record", [False, True])
def test_who_may_look_nowhere_gets_zeros_and_has_no_gradient(dtype, key_width, value_width, record):
    inputs = query_key_value(dtype, key_width, value_width)
    mask = some_mask()
    mask[0, 0, 2] = False
    mask[1] = False

    output, weights = attend(*inputs, mask, record=record)
    for_query, for_key, for_value = torch.autograd.grad(output.square().sum(), inputs)

    nowhere = ~mask.any(-1).expand(2, 3, 5)
    assert output[nowhere].count_nonzero() == 0
    assert for_query[nowhere].count_nonzero() == 0
    assert for_key[1].count_nonzero() == for_value[1].count_nonzero() == 0
    assert all(torch.isfinite(part).all() for part in (output, for_query, for_key, for_value))
    assert weights is None or weights[nowhere].count_nonzero() == 0


@given(st.integers(0, 2**31), st.floats(0, 1), st.booleans())
@settings(max_examples=50, deadline=None)
def test_no_mask_at_all_leads_to_a_nan(seed, share, record):
    inputs = query_key_value()
    mask = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(seed)) < share

    output, _ = attend(*inputs, mask, record=record)

    assert torch.isfinite(output).all()
    assert all(torch.isfinite(part).all() for part in torch.autograd.grad(output.sum(), inputs))


@pytest.mark.parametrize("record", [False, True])
def test_scores_too_large_for_an_exponential_are_no_trouble(record):
    query, key, value = query_key_value(torch.float32)
    output, _ = attend(1e4 * query, 1e4 * key, value, some_mask(), record=record)
    largest = (query @ key.mT).masked_fill(~some_mask(), -math.inf).argmax(dim=-1, keepdim=True)
    torch.testing.assert_close(output, value.gather(2, largest.expand_as(output)))


def test_a_causal_mask_lets_each_position_see_itself_and_what_came_before():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def torch_twin(ours: MultiHeadAttention, width: int) -> nn.MultiheadAttention:
    twin = nn.MultiheadAttention(width, ours.heads, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        twin.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        twin.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        twin.out_proj.weight.copy_(ours.output.weight)
        twin.out_proj.bias.copy_(ours.output.bias)
    return twin


def test_multi_head_attention_is_that_of_pytorch_with_the_same_parameters():
    torch.manual_seed(1)
    ours = MultiHeadAttention(width=12, heads=3, key_width=4, value_width=4).double()
    looking, looked_at = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    mask = some_mask()

    found, weights = ours(looking, looked_at, mask, record=True)
    theirs, their_weights = torch_twin(ours, 12)(
        looking,
        looked_at,
        looked_at,
        attn_mask=~mask.expand(2, 3, 5, 7).flatten(0, 1),  # theirs is True where looking is forbidden
        average_attn_weights=False,
    )

    torch.testing.assert_close(found, theirs, atol=1e-12, rtol=0)
    torch.testing.assert_close(weights, their_weights, atol=1e-12, rtol=0)


@pytest.mark.parametrize("record", [False, True])
def test_keys_values_and_the_model_may_each_have_a_width_of_their_own(record):
    """Section 3.2.2, head by head: Concat(head_1, …, head_h) W^O with head_i = Attention(Q W_i, K W_i, V W_i)."""
    torch.manual_seed(1)
    ours = MultiHeadAttention(width=10, heads=3, key_width=2, value_width=7).double()
    looking, looked_at = torch.randn(2, 5, 10).double(), torch.randn(2, 4, 10).double()

    found, _ = ours(looking, looked_at, None, record=record)

    query, key, value = ours.query(looking), ours.key(looked_at), ours.value(looked_at)
    heads = []
    for head in range(3):
        narrow, wide = slice(2 * head, 2 * head + 2), slice(7 * head, 7 * head + 7)
        weights = (query[..., narrow] @ key[..., narrow].mT / math.sqrt(2)).softmax(-1)
        heads.append(weights @ value[..., wide])
    torch.testing.assert_close(found, ours.output(torch.cat(heads, dim=-1)), atol=1e-12, rtol=0)


def test_projected_keys_and_values_can_be_kept_for_several_looks():
    torch.manual_seed(1)
    ours = MultiHeadAttention(width=10, heads=3, key_width=2, value_width=7).double()
    looking, looked_at = torch.randn(2, 5, 10).double(), torch.randn(2, 4, 10).double()

    kept = ours.project_keys_values(looked_at)
    apart = torch.cat(
        [ours.attend_projected(looking[:, place : place + 1], *kept, None)[0] for place in range(5)], dim=1
    )

    torch.testing.assert_close(apart, ours(looking, looked_at, None)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("kernels", [nullcontext, unfused_attention])
def test_the_dot_product_lacks_only_the_scaling(kernels):
    query, key, value = torch.randn(3, 2, 4, 5, 16, dtype=torch.float64)
    scaled, _ = attend(query * math.sqrt(16), key, value, None)
    with kernels():
        torch.testing.assert_close(attend(query, key, value, None, score_function=dot_product)[0], scaled)


def test_additive_scores_are_those_of_the_formula():
    score = AdditiveScore(heads=2, key_width=3)
    query, key = torch.randn(1, 2, 4, 3), torch.randn(1, 2, 5, 3)
    scores = score(query, key)
    by_hand = score.direction[1] @ torch.tanh(query[0, 1, 2] + key[0, 1, 4])
    assert scores.shape == (1, 2, 4, 5)
    torch.testing.assert_close(scores[0, 1, 2, 4], by_hand)


def test_a_score_decides_the_weights():
    query, key, value = torch.randn(3, 1, 1, 4, 16)
    scaled, unscaled = (
        attend(query, key, value, None, score_function=score, record=True)[1]
        for score in (scaled_dot_product, dot_product)
    )
    torch.testing.assert_close(scaled, (query @ key.mT / 4).softmax(-1))
    torch.testing.assert_close(unscaled, (query @ key.mT).softmax(-1))


@pytest.mark.parametrize("score", ["dot", "additive"])
def test_no_kernel_of_the_scaled_product_sees_another_score(score, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("this kernel computes the scaled dot product")

    for name in ("attend", "attend_cached"):
        monkeypatch.setattr(native, name, refuse)
    model = small_model(torch.float32, score=score, width=32, heads=2, inner_width=32)
    prefix = random_rows([6, 6], seed=2)
    model.train().decode(prefix, model.encode(Source.from_ids(random_rows([5, 3])))).sum().backward()
    Engine(model.eval(), DecodingConfig(beam=2, extra_length=4)).search([[4, 5, END], [6, END]])
