"""ByteNet: what torch's own dilated convolutions say, how fast its sight grows, how it unfolds."""

import pytest
import torch
from model_promises import CLOSE, batch, learned
from small_models import VOCABULARY, random_rows, small_model
from torch.nn import functional as F

from dragoman.model_config import ByteNetConfig
from dragoman.models.bytenet import ByteNet, layer_dilation
from dragoman.models.transducer import Memory, Source
from dragoman.tokens import RESERVED_TOKENS, START


def dilated(dtype=torch.float64, **settings):
    return small_model(dtype, architecture="bytenet", **settings)


def by_hand(block, x, padding):
    """Return what torch's own convolution makes of a block's input (B T D), with so many zeros around it."""
    narrow = F.relu(block.norms[1](block.narrow(F.relu(block.norms[0](x)))))
    convolution = block.convolution
    weight = convolution.map.weight.unflatten(1, (-1, narrow.shape[2])).transpose(1, 2)
    padded = F.pad(narrow.transpose(1, 2), padding)
    found = F.conv1d(padded, weight, convolution.map.bias, dilation=convolution.dilation).transpose(1, 2)
    return x + block.widen(F.relu(block.norms[2](found)))


def test_the_stacks_are_the_papers_formula():
    model = dilated(layers=3)
    source, prefix = random_rows([5]), random_rows([5], seed=2)
    x = torch.cat([model.source_embedding(source) + model.source_positions(0, 5), model.beyond[None, None]], dim=1)
    for block, dilation in zip(model.encoder, (1, 2, 4), strict=True):
        x = by_hand(block, x, (dilation, dilation))
    memory = model.encoder_norm(x)
    x = model.target_embedding(prefix) + model.target_positions(0, 5) + memory[:, :5]
    for block, dilation in zip(model.decoder, (1, 2, 4), strict=True):
        x = by_hand(block, x, (2 * dilation, 0))

    found = model.encode(Source.from_ids(source))

    torch.testing.assert_close(found.states, memory, **CLOSE)
    torch.testing.assert_close(model.hidden_states(prefix, found), model.exit(F.relu(model.decoder_norm(x))), **CLOSE)


def test_the_dilation_doubles_and_begins_again_after_sixteen():
    assert [layer_dilation(layer) for layer in range(12)] == [1, 2, 4, 8, 16, 1, 2, 4, 8, 16, 1, 2]


def seeing(layers, kernel, words=100):
    """Return a model and a row of words, no two alike, by whose gradients it tells what it sees."""
    torch.manual_seed(1)
    config = ByteNetConfig(layers=layers, kernel=kernel, width=8, share_embeddings=False, share_output=False)
    vocabulary = RESERVED_TOKENS + words
    return ByteNet(config, vocabulary, vocabulary).double().eval(), torch.arange(RESERVED_TOKENS, vocabulary)


def sight(found, embedding, words):
    """Return which words a value depends on: whose embedding gets a gradient."""
    (gradient,) = torch.autograd.grad((found * torch.arange(8)).sum(), embedding.weight, retain_graph=True)
    return (gradient[words].count_nonzero(dim=1) > 0).nonzero().squeeze(1).tolist()


@pytest.mark.parametrize(
    ("layers", "kernel", "reach"), [(1, 3, 1), (2, 3, 3), (3, 3, 7), (5, 3, 31), (6, 3, 32), (3, 5, 14), (4, 1, 0)]
)
def test_sight_grows_exponentially_with_depth(layers, kernel, reach):
    """A place sees (k - 1)(1 + 2 + 4 + …) others: half of them on either side, or all of them behind it."""
    model, words = seeing(layers, kernel)

    memory = model.encode(Source.from_ids(words[None]))
    blind = Memory(torch.zeros_like(memory.states), memory.mask)
    hidden = model.hidden_states(words[None], blind)[0]

    assert sight(memory.states[0, 50], model.source_embedding, words) == list(range(50 - reach, 50 + reach + 1))
    assert sight(hidden[70], model.target_embedding, words) == list(range(70 - 2 * reach, 71))


def test_the_source_is_unfolded_to_its_length_times_the_factor_and_beyond_are_zeros():
    model = dilated()
    source = random_rows([10, 4])
    memory = model.encode(Source.from_ids(source))

    assert memory.mask.sum(1).tolist() == [12, 5]
    reading = model.hidden_states(torch.full((2, 20), START), memory)
    forgetful = Memory(F.pad(memory.states, (0, 0, 0, 8)), F.pad(memory.mask, (0, 8), value=True))
    torch.testing.assert_close(reading[0], model.hidden_states(torch.full((2, 20), START), forgetful)[0], **CLOSE)


def test_a_sentence_is_unfolded_alike_alone_and_beside_a_longer_one():
    """In single precision 25 × 1.2 is a little more than 30: beside a longer sentence it had a place more."""
    source = random_rows([25, 40])

    together, alone = dilated().encode(Source.from_ids(source)), dilated().encode(Source.from_ids(source[:1, :25]))

    assert together.mask.sum(1).tolist() == [30, 48]
    torch.testing.assert_close(together.states[:1, :30], alone.states, **CLOSE)


def test_the_place_beyond_the_end_knows_what_stood_before_it():
    model = dilated()
    source = random_rows([5])
    other = source.clone()
    other[0, 4] = 4 if source[0, 4] != 4 else 5

    assert not torch.allclose(
        model.encode(Source.from_ids(source)).states[0, 5], model.encode(Source.from_ids(other)).states[0, 5], atol=1e-3
    )


def test_target_place_t_reads_source_place_t_and_nothing_of_the_source_ahead_of_its_sight():
    model, words = seeing(layers=2, kernel=3)

    hidden = model.hidden_states(words[None], model.encode(Source.from_ids(words[None])))[0, 50]

    assert sight(hidden, model.source_embedding, words) == list(range(50 - 6 - 3, 50 + 3 + 1))


def test_no_attention_is_shown():
    shown = dilated().attention_maps(Source.from_ids(batch()[0]), batch()[1])
    assert (shown.encoder, shown.decoder, shown.cross) == ([], [], [])


def test_the_state_holds_what_each_convolution_reaches_back():
    model = dilated(layers=3, kernel=4)
    memory = model.encode(Source.from_ids(batch()[0]))
    state = model.initial_state(memory)
    for _ in range(9):
        _, state = model.step(torch.full((3, 1), START), memory, state)

    assert [tuple(layer.shape) for layer in state.layers] == [(3, 1, 3, 8), (3, 1, 6, 8), (3, 1, 12, 8)]


@pytest.mark.slow
def test_it_learns_to_copy():
    torch.manual_seed(1)
    model = ByteNet(ByteNetConfig(layers=2, width=32, dropout=0.0), VOCABULARY, VOCABULARY)
    assert learned(model, lambda rows: rows, steps=50) > 0.9
