"""ConvS2S: what torch's own convolutions say with the same parameters, how far it sees."""

import math

import pytest
import torch
from model_promises import CLOSE, batch, learned
from small_models import VOCABULARY, random_rows, small_model
from torch.nn import functional as F

from dragoman.model_config import ConvS2SConfig
from dragoman.models.convs2s import Convolution, ConvS2S
from dragoman.models.transducer import Source
from dragoman.tokens import RESERVED_TOKENS, START


def convolutional(dtype=torch.float64, **settings):
    return small_model(dtype, architecture="convs2s", **settings)


def convolved(convolution, x, padding):
    """Return what torch's own convolution makes of x (B T D) with the same parameters and so many zeros around it."""
    weight = convolution.map.weight.unflatten(1, (-1, x.shape[2])).transpose(1, 2)  # outputs, inputs, k
    padded = F.pad(x.transpose(1, 2), padding)
    return F.conv1d(padded, weight, convolution.map.bias, dilation=convolution.dilation).transpose(1, 2)


@pytest.mark.parametrize("dilation", [1, 2, 4])
@pytest.mark.parametrize(("kernel", "behind", "ahead"), [(1, 0, 0), (2, 0, 1), (3, 1, 1), (4, 1, 2), (5, 2, 2)])
def test_a_convolution_is_torchs_own(kernel, behind, ahead, dilation):
    convolution = Convolution(6, 4, kernel, dilation).double()
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    everywhere = torch.ones(2, 9, dtype=torch.bool)

    around = convolved(convolution, x, (behind * dilation, ahead * dilation))
    before = convolved(convolution, x, ((kernel - 1) * dilation, 0))

    torch.testing.assert_close(convolution.convolve_centred(x, everywhere), around, **CLOSE)
    torch.testing.assert_close(convolution.convolve_causal(x), before, **CLOSE)


def test_the_encoder_is_the_papers_formula():
    model = convolutional()
    source = random_rows([7])
    word = model.source_embedding(source) + model.source_positions(0, 7)
    x = model.encoder_entrance(word)
    for layer in model.encoder:
        x = (x + F.glu(convolved(layer.convolution, x, (1, 1)), dim=-1)) * math.sqrt(0.5)
    z = model.encoder_exit(x)

    key, value = model.encode(Source.from_ids(source)).states.chunk(2, dim=-1)

    torch.testing.assert_close(key, z, **CLOSE)
    torch.testing.assert_close(value, (z + word) * math.sqrt(0.5), **CLOSE)


@pytest.mark.parametrize(("score", "scale"), [("scaled_dot", 4.0), ("dot", 1.0)])
def test_the_decoder_is_the_papers_formula(score, scale):
    model = convolutional(score=score)
    memory, prefix = model.encode(Source.from_ids(random_rows([7]))), random_rows([5], seed=2)
    key, value = memory.states.chunk(2, dim=-1)
    word = model.target_embedding(prefix) + model.target_positions(0, 5)
    x = model.decoder_entrance(word)
    for layer in model.decoder:
        gated = F.glu(convolved(layer.convolution, x, (2, 0)), dim=-1)
        query = (layer.query(gated) + word) * math.sqrt(0.5)
        seen = (query @ key.mT / scale).softmax(dim=-1) @ value
        x = ((gated + seen) * math.sqrt(0.5) + x) * math.sqrt(0.5)

    torch.testing.assert_close(model.hidden_states(prefix, memory), model.decoder_exit(x), **CLOSE)


def sight(found, embedding, tokens):
    """Return which of distinct tokens (T) a value depends on: whose embedding gets a gradient."""
    (gradient,) = torch.autograd.grad(found.square().sum(), embedding.weight, retain_graph=True)
    return gradient[tokens].count_nonzero(dim=1) > 0


def seeing(layers, kernel, words=40):
    """Return a model and a row of words, no two alike, by whose gradients it tells what it sees."""
    torch.manual_seed(1)
    config = ConvS2SConfig(layers=layers, kernel=kernel, width=8, share_embeddings=False, share_output=False)
    vocabulary = RESERVED_TOKENS + words
    return ConvS2S(config, vocabulary, vocabulary).double().eval(), torch.arange(RESERVED_TOKENS, vocabulary)


@pytest.mark.parametrize(("layers", "kernel"), [(1, 3), (2, 3), (3, 5), (2, 4), (4, 1)])
def test_the_encoder_sees_as_far_as_its_layers_are_deep(layers, kernel):
    model, words = seeing(layers, kernel)

    key, _ = model.encode(Source.from_ids(words[None])).states[0].chunk(2, dim=-1)

    seen = sight(key[20], model.source_embedding, words).nonzero().squeeze(1).tolist()
    assert seen == list(range(20 - layers * ((kernel - 1) // 2), 20 + layers * (kernel // 2) + 1))


@pytest.mark.parametrize(("layers", "kernel"), [(1, 3), (2, 3), (3, 5), (2, 4), (4, 1)])
def test_the_decoder_sees_as_far_back_as_its_layers_are_deep_and_all_of_the_source(layers, kernel):
    model, words = seeing(layers, kernel)

    hidden = model.hidden_states(words[None], model.encode(Source.from_ids(words[None])))[0, 20]

    seen = sight(hidden, model.target_embedding, words).nonzero().squeeze(1).tolist()
    assert seen == list(range(20 - layers * (kernel - 1), 21))
    assert sight(hidden, model.source_embedding, words).all()


def test_one_head_a_layer_is_shown_and_no_self_attention():
    model = convolutional(layers=3)
    source, prefix = batch()

    shown = model.attention_maps(Source.from_ids(source), prefix)

    assert (shown.encoder, shown.decoder) == ([], [])
    assert [tuple(weights.shape) for weights in shown.cross] == [(3, 1, 6, 7)] * 3


def test_the_state_does_not_grow_with_the_prefix():
    model = convolutional(kernel=4)
    memory = model.encode(Source.from_ids(batch()[0]))
    state = model.initial_state(memory)
    for _ in range(9):
        _, state = model.step(torch.full((3, 1), START), memory, state)

    wider = state.reorder(torch.zeros(3, 5, dtype=torch.long))

    assert [tuple(layer.shape) for layer in wider.layers] == [(3, 5, 3, 16)] * 2


def test_signals_keep_their_size_through_many_layers():
    torch.manual_seed(1)
    config = ConvS2SConfig(layers=12, width=64, dropout=0.0)
    model = ConvS2S(config, 100, 100)
    source, prefix = torch.randint(RESERVED_TOKENS, 100, (2, 8, 20))

    memory = model.encode(Source.from_ids(source))
    hidden = model.hidden_states(prefix, memory)

    assert 0.3 < memory.states.std() < 3
    assert 0.3 < hidden.std() < 3


@pytest.mark.slow
def test_it_learns_to_reverse():
    torch.manual_seed(1)
    config = ConvS2SConfig(layers=2, width=32, dropout=0.0)
    model = ConvS2S(config, VOCABULARY, VOCABULARY)
    assert learned(model, lambda rows: rows.flip(1), steps=100) > 0.9
