"""A Transformer whose self-attention is restricted keeps every promise of the full one, and learns."""

import pytest
import torch
from model_promises import TRANSFORMERS, logits
from small_models import VOCABULARY, random_rows, small_model
from torch.nn import functional as F

from dragoman.model_config import build_model_config
from dragoman.models.attention import MultiHeadAttention, dot_product
from dragoman.models.local_attention import WindowPattern
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer

PATTERNED = [settings for settings in TRANSFORMERS.values() if "pattern" in settings]
each = pytest.mark.parametrize("settings", PATTERNED, ids=lambda settings: settings["pattern"])
LONG = [70, 41, 1]  # several blocks, one, and a single word


def taken_in_full(model):
    """Make a model that looks everywhere of one that does not: the same parameters without the patterns."""
    for part in model.modules():
        if isinstance(part, MultiHeadAttention):
            part.pattern = None
    return model


@each
def test_a_record_holds_the_weights_that_were_used_and_looks_nowhere_else(settings):
    model = small_model(**settings)
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
def test_a_short_sentence_is_read_as_the_full_model_reads_it(settings):
    """Where everything is within reach a pattern changes nothing."""
    source, prefix = random_rows([3, 2]), random_rows([3, 3], seed=2)
    settings = {**settings, "window": 8, "layers": 1}
    found = logits(small_model(**settings), source, prefix)
    torch.testing.assert_close(
        found, logits(taken_in_full(small_model(**settings)), source, prefix), atol=1e-12, rtol=0
    )


def test_a_pattern_compares_by_the_scaled_dot_product_alone():
    with pytest.raises(AssertionError, match="needs the scaled dot product"):
        MultiHeadAttention(16, 2, 8, 8, dot_product, pattern=WindowPattern(3))


@pytest.mark.slow
@pytest.mark.parametrize("settings", PATTERNED[:1])
def test_it_learns_to_say_the_word_before(settings):
    """The source is a single word and tells nothing: what was before must be found by restricted attention."""
    torch.manual_seed(1)
    sizes = {"layers": 2, "width": 32, "inner_width": 32, "heads": 2, "dropout": 0.0, "norm": "pre"}
    model = Transformer(build_model_config({**sizes, **settings, "window": 8}), VOCABULARY, VOCABULARY)
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
