"""What must not matter: padding, whatever stands in it, and the future (promises B2 and B3)."""

import math
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import VOCABULARY, gradients, random_rows, small_model

from dragoman.models.attention import unfused_attention
from dragoman.models.transducer import Source
from dragoman.tokens import PAD, RESERVED_TOKENS

lengths = st.lists(st.integers(1, 6), min_size=1, max_size=4)
some_empty = st.lists(st.integers(0, 5), min_size=2, max_size=4).filter(any)
seeds = st.integers(0, 2**31)
norms = pytest.mark.parametrize("norm", ["post", "pre"])
poisons = pytest.mark.parametrize("poison", [math.nan, 1e30])


def logits(model, source, prefix):
    """Return the logits at the real positions of the prefix (N V)."""
    return model.decode(prefix, model.encode(Source.from_ids(source)))[prefix != PAD]


@poisons
@norms
@pytest.mark.parametrize("share_embeddings", [True, False])
def test_nothing_escapes_from_the_embedding_of_padding(poison, norm, share_embeddings):
    model = small_model(norm=norm, share_embeddings=share_embeddings)
    source, prefix = random_rows([7, 3, 5]), random_rows([4, 6, 2], seed=2)
    expected = logits(model, source, prefix)
    expected_gradients = gradients(expected.square().sum(), model)
    with torch.no_grad():
        model.source_embedding.weight[PAD] = poison
        model.target_embedding.weight[PAD] = poison

    found = logits(model, source, prefix)

    assert torch.equal(found, expected)
    for ours, theirs in zip(gradients(found.square().sum(), model), expected_gradients, strict=True):
        assert torch.equal(ours, theirs)


@given(st.data(), st.sampled_from([torch.float32, torch.float64]), st.sampled_from(["post", "pre"]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_future_does_not_change_the_past_by_a_single_bit(data, dtype, norm, record):
    model = small_model(dtype, norm=norm)
    prefix = random_rows([9, 9, 9], seed=data.draw(seeds))
    now = data.draw(st.integers(1, 8))
    future = st.lists(st.sampled_from([PAD, *range(RESERVED_TOKENS, VOCABULARY)]), min_size=9 - now, max_size=9 - now)
    other = prefix.clone()
    other[:, now:] = torch.tensor([data.draw(future) for _ in prefix])
    memory = model.encode(Source.from_ids(random_rows([7, 3, 5])))

    before = model.run_decoder(prefix, memory, record=record)[0] @ model.output_weight.T
    after = model.run_decoder(other, memory, record=record)[0] @ model.output_weight.T

    assert torch.equal(before[:, :now], after[:, :now])


@given(some_empty, lengths, st.sampled_from(["post", "pre"]), st.sampled_from([nullcontext, unfused_attention]))
@settings(max_examples=30, deadline=None)
def test_no_lengths_lead_to_a_nan_even_if_a_source_is_empty(source_lengths, prefix_lengths, norm, way):
    model = small_model(norm=norm)
    source = random_rows(source_lengths)
    prefix = random_rows((prefix_lengths * 4)[: len(source_lengths)], seed=2)

    with way():
        found = model.decode(prefix, model.encode(Source.from_ids(source)))

    assert torch.isfinite(found).all()
    assert all(torch.isfinite(gradient).all() for gradient in gradients(found.square().sum(), model))


@norms
def test_the_attention_shown_is_the_attention_of_the_forward_pass(norm):
    """Promise B13, for every head of every layer at once."""
    model = small_model(norm=norm, key_width=3, value_width=5)
    source, prefix = random_rows([7, 3, 5]), random_rows([4, 6, 2], seed=2)

    shown = model.attention_maps(Source.from_ids(source), prefix)
    memory, _ = model.run_encoder(Source.from_ids(source), record=True)
    hidden, _, _ = model.run_decoder(prefix, memory, record=True)

    assert [len(part) for part in (shown.encoder, shown.decoder, shown.cross)] == [2, 2, 2]
    for weights in (*shown.encoder, *shown.decoder, *shown.cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), atol=1e-6, rtol=0)
    for weights in (*shown.encoder, *shown.cross):
        assert weights.masked_select((source == PAD)[:, None, None]).count_nonzero() == 0
    for weights in shown.decoder:
        assert weights.triu(1).count_nonzero() == 0
    torch.testing.assert_close(memory.states, model.encode(Source.from_ids(source)).states, atol=1e-12, rtol=0)
    torch.testing.assert_close(hidden, model.hidden_states(prefix, memory), atol=1e-12, rtol=0)


def test_sentences_of_a_memory_can_be_picked():
    model = small_model()
    memory = model.encode(Source.from_ids(random_rows([7, 3, 5])))

    kept = memory.keep(torch.tensor([2, 0]))

    assert torch.equal(kept.states, memory.states[[2, 0]])
    assert torch.equal(kept.mask, memory.mask[[2, 0]])
