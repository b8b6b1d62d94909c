"""A Transformer whose self-attention is restricted keeps every promise of the full one, and learns."""

import pytest
import torch
from small_models import VOCABULARY, padded_by, random_rows, small_model
from torch.nn import functional as F

from dragoman.model_config import build_model_config
from dragoman.models.attention import MultiHeadAttention, dot_product
from dragoman.models.local_attention import WindowPattern
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.native.model import can_compile
from dragoman.tokens import PAD, RESERVED_TOKENS

PATTERNED = [
    {"pattern": "window", "window": 5},
    {"pattern": "dilated", "window": 3},
    {"pattern": "sparse", "window": 6},
    {"pattern": "window", "window": 5, "rotary": True},
]
each = pytest.mark.parametrize("how", PATTERNED, ids=lambda how: how["pattern"])
LONG = [70, 41, 1]  # several blocks, one, and a single word


def logits(model, source, prefix):
    return model.decode(prefix, model.encode(Source.from_ids(source)))[prefix != PAD]


def taken_in_full(model):
    """Make a model that looks everywhere of one that does not: the same parameters without the patterns."""
    for part in model.modules():
        if isinstance(part, MultiHeadAttention):
            part.pattern = None
    return model


@each
def test_padding_and_neighbours_do_not_change_the_logits(how):
    model = small_model(**how)
    source, prefix = random_rows(LONG), random_rows([50, 80, 30], seed=2)
    together = model.decode(padded_by(prefix, 9), model.encode(Source.from_ids(padded_by(source, 64))))

    for row, (read, written) in enumerate(zip(LONG, [50, 80, 30], strict=True)):
        alone = logits(model, source[row : row + 1, :read], prefix[row : row + 1, :written])
        torch.testing.assert_close(together[row, :written], alone, atol=1e-12, rtol=0)


@each
def test_the_future_does_not_change_the_past(how):
    model = small_model(**how)
    memory = model.encode(Source.from_ids(random_rows(LONG)))
    prefix = random_rows([90, 90, 90], seed=2)
    changed = torch.cat([prefix[:, :60], random_rows([30, 30, 30], seed=3)], dim=1)

    before, after = model.decode(prefix, memory), model.decode(changed, memory)

    torch.testing.assert_close(before[:, :60], after[:, :60], atol=1e-12, rtol=0)
    assert not torch.allclose(before[:, 60:], after[:, 60:])


@each
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_every_step_gives_the_logits_of_the_whole_prefix_whichever_hypothesis_it_continues(how, dtype, tolerance):
    model = small_model(dtype, width=32, heads=2, **how)
    memory = model.encode(Source.from_ids(random_rows(LONG))).keep(torch.tensor([1, 0]))
    generator = torch.Generator().manual_seed(4)
    state = model.initial_state(memory)
    prefixes = torch.empty(2, 1, 0, dtype=torch.long)
    for place in range(30):
        token = torch.randint(RESERVED_TOKENS, VOCABULARY, prefixes.shape[:2], generator=generator)
        prefixes = torch.cat([prefixes, token[..., None]], dim=2)
        found, state = model.step(token, memory, state)
        if place % 7 == 0:
            parents = torch.randint(prefixes.shape[1], (2, 3), generator=generator)
            found = found.gather(1, parents[..., None].expand(-1, -1, VOCABULARY))
            prefixes = prefixes.gather(1, parents[..., None].expand(-1, -1, place + 1))
            state = state.reorder(parents)

    for hypothesis in range(3):
        whole = model.decode(prefixes[:, hypothesis], memory)[:, -1]
        torch.testing.assert_close(found[:, hypothesis], whole, atol=tolerance, rtol=0)


@each
def test_a_record_holds_the_weights_that_were_used_and_looks_nowhere_else(how):
    model = small_model(**how)
    source, prefix = random_rows(LONG), random_rows([50, 80, 30], seed=2)
    memory, encoder = model.run_encoder(Source.from_ids(source), record=True)
    hidden, decoder, cross = model.run_decoder(prefix, memory, record=True)

    torch.testing.assert_close(
        memory.states[memory.mask], model.encode(Source.from_ids(source)).states[memory.mask], atol=1e-12, rtol=0
    )
    torch.testing.assert_close(hidden, model.hidden_states(prefix, memory), atol=1e-12, rtol=0)
    for layers, recorded, causal in ((model.encoder, encoder, False), (model.decoder, decoder, True)):
        for layer, weights in zip(layers, recorded, strict=True):
            allowed = layer.attention.pattern.mask(weights.shape[2], causal)
            assert not weights.masked_select(~allowed).any()
            assert weights.masked_select(allowed).any()
    assert all(weights.shape == (3, 4, 80, 70) for weights in cross)


@each
def test_a_short_sentence_is_read_as_the_full_model_reads_it(how):
    """Where everything is within reach a pattern changes nothing."""
    source, prefix = random_rows([3, 2]), random_rows([3, 3], seed=2)
    how = {**how, "window": 8, "layers": 1}
    found = logits(small_model(**how), source, prefix)
    torch.testing.assert_close(found, logits(taken_in_full(small_model(**how)), source, prefix), atol=1e-12, rtol=0)


@each
def test_a_restricted_model_is_not_left_to_the_compiled_loops(how):
    assert not can_compile(small_model(torch.float32, width=64, inner_width=64, heads=4, **how))


def test_a_pattern_compares_by_the_scaled_dot_product_alone():
    with pytest.raises(AssertionError, match="needs the scaled dot product"):
        MultiHeadAttention(16, 2, 8, 8, dot_product, pattern=WindowPattern(3))


@pytest.mark.slow
@pytest.mark.parametrize("how", PATTERNED[:1])
def test_it_learns_to_say_the_word_before(how):
    """The source is a single word and tells nothing: what was before must be found by restricted attention."""
    torch.manual_seed(1)
    sizes = {"layers": 2, "width": 32, "inner_width": 32, "heads": 2, "dropout": 0.0, "norm": "pre"}
    model = Transformer(build_model_config({**sizes, **how, "window": 8}), VOCABULARY, VOCABULARY)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for seed in range(100):
        words = random_rows([30] * 4, seed=seed)
        said = model.decode(words, model.encode(Source.from_ids(words[:, :1])))[:, 1:]
        loss = F.cross_entropy(said.flatten(0, 1), words[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 1.6 < 2 < losses[0]  # guessing costs ln 9 = 2.2
