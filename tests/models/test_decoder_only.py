"""The decoder-only Transformer: PyTorch's own with the same parameters, the same as a language model."""

import pytest
import torch
from model_promises import (
    CHOICES,
    CLOSE,
    batch,
    greedy,
    learned,
    learning_in_half_precision_has_a_loss_in_single,
    logits,
)
from small_models import VOCABULARY, gradients, padded_by, random_rows, small_model
from torch import nn

from dragoman.decoding.search import beam_search
from dragoman.model_config import DecoderOnlyConfig
from dragoman.models.attention import causal_mask
from dragoman.models.decoder_only import DecoderOnly
from dragoman.models.transducer import Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START

VARIANTS = list(CHOICES["decoder_only"].values())
patterns = pytest.mark.parametrize("settings", [settings for settings in VARIANTS if "pattern" in settings])


def joined(dtype=torch.float64, **settings):
    return small_model(dtype, architecture="decoder_only", **settings)


class Twin(nn.Module):
    """PyTorch's encoder under a causal mask, over source and target laid one behind the other."""

    def __init__(self, model, norm):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 24, 0.0, batch_first=True, norm_first=norm == "pre")
        last = nn.LayerNorm(16) if norm == "pre" else None
        self.stack = nn.TransformerEncoder(layer, len(model.layers), last, enable_nested_tensor=False).double().eval()
        self.embeddings = [model]  # in a list: they are not this module's own

    def forward(self, source, prefix):
        (model,) = self.embeddings
        words = torch.cat([model.source_embedding(source), model.target_embedding(prefix)], dim=1)
        length = words.shape[1]
        hidden = self.stack(words + model.positions(0, length), mask=~causal_mask(length), is_causal=False)
        return hidden[:, source.shape[1] :] @ model.output_weight.T


def twins(model, twin):
    """Return pairs of some of our parameters and the one of theirs that is all of them."""
    pairs = []
    for ours, theirs in zip(model.layers, twin.stack.layers, strict=True):
        projections = (ours.attention.query, ours.attention.key, ours.attention.value)
        pairs += [
            ([getattr(each, name) for each in projections], getattr(theirs.self_attn, f"in_proj_{name}"))
            for name in ("weight", "bias")
        ]
        for one, other in (
            (ours.attention.output, theirs.self_attn.out_proj),
            (ours.feed_forward.inner, theirs.linear1),
            (ours.feed_forward.outer, theirs.linear2),
            (ours.attention_residual.norm, theirs.norm1),
            (ours.feed_forward_residual.norm, theirs.norm2),
        ):
            pairs += [([one.weight], other.weight), ([one.bias], other.bias)]
    if twin.stack.norm is not None:
        pairs += [([model.norm.weight], twin.stack.norm.weight), ([model.norm.bias], twin.stack.norm.bias)]
    return pairs


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_it_is_pytorchs_stack_over_the_two_sequences_in_one(norm):
    model = joined(norm=norm, share_embeddings=False)
    twin = Twin(model, norm)
    pairs = twins(model, twin)
    with torch.no_grad():
        for ours, theirs in pairs:
            theirs.copy_(torch.cat(ours))
    source, prefix = random_rows([7, 7]), random_rows([5, 5], seed=2)
    direction = torch.randn(2, 5, VOCABULARY, dtype=torch.float64)

    found, expected = model.decode(prefix, model.encode(Source.from_ids(padded_by(source, 3)))), twin(source, prefix)
    gradient = dict(zip(model.parameters(), gradients((found * direction).sum(), model), strict=True))
    (expected * direction).sum().backward()

    torch.testing.assert_close(found, expected, **CLOSE)
    for ours, theirs in pairs:
        torch.testing.assert_close(torch.cat([gradient[one] for one in ours]), theirs.grad, **CLOSE)
    for ours in (model.source_embedding.weight, model.target_embedding.weight):
        torch.testing.assert_close(gradient[ours], ours.grad, **CLOSE)


@pytest.mark.parametrize("settings", [{"positions": "learned"}, *VARIANTS])
def test_where_the_source_ends_and_the_target_begins_does_not_matter(settings):
    """With one embedding for both, only the whole sequence counts: all of it may be target."""
    model = joined(**{**settings, "share_embeddings": True})
    words = random_rows([9, 9])
    nothing = torch.empty(2, 0, dtype=torch.long)

    expected = model.decode(words, model.encode(Source.from_ids(nothing)))

    for cut in (1, 4, 8):
        found = model.decode(words[:, cut:], model.encode(Source.from_ids(words[:, :cut])))
        torch.testing.assert_close(found, expected[:, cut:], **CLOSE)


@pytest.mark.parametrize("settings", VARIANTS)
def test_without_a_source_it_is_a_language_model(settings):
    model = joined(**settings)
    prefix = random_rows([6, 6, 6], seed=2)
    nothing, padding = torch.empty(3, 0, dtype=torch.long), torch.full((3, 4), PAD)

    expected = model.decode(prefix, model.encode(Source.from_ids(nothing)))
    memory = model.encode(Source.from_ids(padding))
    state, steps = model.initial_state(model.encode(Source.from_ids(nothing))), []
    for token in prefix.split(1, dim=1):
        found, state = model.step(token, memory, state)
        steps.append(found)

    torch.testing.assert_close(model.decode(prefix, memory), expected, **CLOSE)
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, **CLOSE)


def test_text_is_written_without_a_source():
    model = joined()
    config = DecodingConfig(beam=1, extra_length=6)

    ((found,),) = beam_search(model, Source.from_ids(torch.full((1, 1), PAD)), config)

    assert found.tokens == greedy(model, torch.empty(1, 0, dtype=torch.long), len(found.tokens))


@pytest.mark.parametrize("settings", VARIANTS)
def test_the_weights_of_source_and_target_add_up_to_one_together(settings):
    model = joined(**settings)
    source, prefix = batch()

    shown = model.attention_maps(Source.from_ids(source), prefix)

    assert len(shown.encoder) == len(shown.decoder) == len(shown.cross) == len(model.layers)
    for own, cross in zip(shown.decoder, shown.cross, strict=True):
        assert (tuple(own.shape), tuple(cross.shape)) == ((3, 4, 6, 6), (3, 4, 6, 7))
        torch.testing.assert_close(own.sum(-1) + cross.sum(-1), torch.ones_like(own[..., 0]), **CLOSE)
        assert own.triu(1).count_nonzero() == 0
        assert cross.masked_select((source == PAD)[:, None, None]).count_nonzero() == 0
    for weights in shown.encoder:
        assert weights.triu(1).count_nonzero() == 0
        torch.testing.assert_close(weights[0].sum(-1), torch.ones_like(weights[0, ..., 0]), **CLOSE)


@patterns
def test_a_pattern_counts_places_along_the_whole_sequence(settings):
    model = joined(**settings)
    source, prefix = random_rows([7, 3]), random_rows([6, 6], seed=2)

    shown = model.attention_maps(Source.from_ids(source), prefix)

    for layer, own, cross in zip(model.layers, shown.decoder, shown.cross, strict=True):
        for row, length in enumerate((7, 3)):
            allowed = layer.attention.pattern.mask(length + 6, True)[length:]
            assert torch.equal(cross[row, 0, :, :length] > 0, allowed[:, :length])
            assert torch.equal(own[row, 0] > 0, allowed[:, length:])


@patterns
def test_long_rows_are_regrouped_as_the_mask_says(settings):
    """These are long enough for the way that makes no matrix of all pairs."""
    model = joined(**settings)
    source, prefix = random_rows([90, 41]), random_rows([70, 70], seed=2)
    memory, _ = model.run_source(Source.from_ids(source), record=True)

    expected, _ = model.target_states(prefix, memory, record=True)

    torch.testing.assert_close(model.hidden_states(prefix, model.encode(Source.from_ids(source))), expected, **CLOSE)
    state = model.initial_state(memory)
    for token in prefix[:, :40].split(1, dim=1):
        found, state = model.step(token, memory, state)
    torch.testing.assert_close(found[:, 0], expected[:, 39] @ model.output_weight.T, **CLOSE)


def test_a_beam_shares_what_its_hypotheses_have_read():
    model = joined()
    memory = model.encode(Source.from_ids(random_rows([7, 3])))
    _, state = model.step(torch.full((2, 1), START), memory, model.initial_state(memory))

    wider = state.reorder(torch.zeros(2, 4, dtype=torch.long))
    _, longer = model.step(torch.full((2, 4), END), memory, wider)

    assert [key.shape[2] for key, _ in wider.layers] == [7 + 1] * 2
    assert [key.shape[2] for key, _ in longer.layers] == [7 + 1 + 4] * 2


@pytest.mark.parametrize("settings", [{"norm": "pre"}, {"pattern": "window", "window": 3}])
def test_also_with_heads_that_our_kernels_take_it_learns_in_half_precision(settings):
    learning_in_half_precision_has_a_loss_in_single(joined(width=64, **settings))


def test_padding_takes_no_learned_positions():
    model = joined(positions="learned", longest=12)
    source, prefix = random_rows([3, 8]), random_rows([9, 4], seed=2)

    together = logits(model, source, prefix)

    alone = logits(model, source[:1, :3], prefix[:1])
    torch.testing.assert_close(together[:9], alone, **CLOSE)


@pytest.mark.slow
def test_it_learns_to_reverse():
    torch.manual_seed(1)
    config = DecoderOnlyConfig(layers=2, width=32, inner_width=64, heads=4, dropout=0.0, norm="pre")
    model = DecoderOnly(config, VOCABULARY, VOCABULARY)
    assert learned(model, lambda rows: rows.flip(1), steps=80, words=3) > 0.8
