"""The compiled Transformer is the Transformer: the same numbers, in any company, for every kind of it."""

import copy

import pytest
import torch

from dragoman.model_config import TransformerConfig
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.native import functions
from dragoman.native.model import NativeTransformer, compile_model
from dragoman.tokens import END, PAD, START

pytestmark = [
    pytest.mark.skipif(functions.native_library() is None, reason="built without kernels"),
    pytest.mark.usefixtures("each_variant"),
]

KINDS = {
    "post": {},
    "pre": {"norm": "pre"},
    "gelu": {"activation": "gelu", "norm": "pre"},
    "learned": {"positions": "learned", "longest": 64},
    "untied": {"share_output": False},
    "separate": {"share_embeddings": False},
    "rotary": {"rotary": True, "norm": "pre"},
    "wide heads": {"heads": 2, "key_width": 48, "value_width": 48},
    "no positions": {"positions": "none"},
    "a shallow decoder": {"layers": 3, "decoder_layers": 1},
    "a deep decoder": {"layers": 1, "decoder_layers": 3},
}


def model(kind="pre", **more):
    torch.manual_seed(5)
    settings = {"layers": 2, "width": 64, "inner_width": 96, "heads": 2, "dropout": 0.0} | KINDS[kind] | more
    built = Transformer(TransformerConfig(**settings), 71, 71).eval()
    for parameter in built.parameters():  # biases and norms begin as zeros and ones, which would hide a mistake
        torch.nn.init.normal_(parameter, std=0.2) if parameter.dim() == 1 else None
    return built


def source(sentences=5, longest=19):
    rows = torch.randint(4, 71, (sentences, longest), generator=torch.Generator().manual_seed(8))
    for number, row in enumerate(rows):
        row[longest - 1 - 3 * number :] = PAD
        row[longest - 2 - 3 * number] = END
    return rows


def steps(transducer, rows, count=20):
    """Read tokens as a search would, with hypotheses that multiply, change places and leave; return all logits."""
    generator = torch.Generator().manual_seed(3)
    memory = transducer.encode(Source.from_ids(rows))
    state, token, found = transducer.initial_state(memory), torch.full((len(rows), 1), START), []
    for step in range(count):
        logits, state = transducer.step(token, memory, state)
        found.append(logits)
        parents = torch.randint(0, token.shape[1], (len(token), 4), generator=generator)
        state = state.reorder(parents)
        token = torch.randint(4, 71, parents.shape, generator=generator)
        if step == 7:
            rest = torch.tensor([3, 1, 0])
            memory, state, token = memory.keep(rest), state.keep(rest), token[rest]
    return found


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_every_step_is_that_of_the_model(kind):
    built = model(kind)
    fast = compile_model(built, "float32")
    assert isinstance(fast, NativeTransformer)
    for mine, expected in zip(steps(fast, source()), steps(built, source()), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=2e-5)


@torch.inference_mode()
def test_what_the_encoder_leaves_is_that_of_the_model():
    built, rows = model(), source()
    mine, expected = compile_model(built, "float32").encode(Source.from_ids(rows)), built.encode(Source.from_ids(rows))
    assert torch.equal(mine.mask, expected.mask)
    torch.testing.assert_close(mine.states[mine.mask], expected.states[mine.mask], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("tokens", "pauses"), [(10, 15), (40, 3), (1000, 1)])
@torch.inference_mode()
def test_an_encoder_that_pauses_between_sentences_and_layers_leaves_the_same_bits(tokens, pauses, monkeypatch):
    """Of five sentences of 19 tokens: one layer of one, two sentences, or all between two pauses."""
    monkeypatch.setattr("dragoman.native.model._ENCODED_TOKENS", tokens)
    fast, rows, called = compile_model(model(layers=3), "float32"), Source.from_ids(source()), []
    assert torch.equal(fast.encode(rows, lambda: called.append(1)).states, fast.encode(rows).states)
    assert len(called) == pauses


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_weights_of_one_byte_come_close(kind):
    built = model(kind)
    for mine, expected in zip(steps(compile_model(built, "int8"), source()), steps(built, source()), strict=True):
        assert (mine - expected).square().mean().sqrt() < 0.03 * expected.std()


@pytest.mark.parametrize("precision", ["float32", "int8"])
@torch.inference_mode()
def test_neighbours_and_padding_change_no_bit(precision):
    fast, rows = compile_model(model(), precision), source()
    crowd = fast.encode(Source.from_ids(rows))
    together, _ = fast.step(torch.full((5, 1), START), crowd, fast.initial_state(crowd))
    for number, row in enumerate(rows):
        alone = fast.encode(Source.from_ids(row[row != PAD][None]))
        logits, _ = fast.step(torch.full((1, 1), START), alone, fast.initial_state(alone))
        assert torch.equal(logits[0], together[number])


@torch.inference_mode()
def test_a_product_in_bytes_is_exact_but_for_the_rounding_of_both_sides():
    """With weights and inputs that are whole numbers up to 127 nothing is rounded at all."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randint(-127, 128, (50, 64), generator=generator).float()
    weight[:, 0] = 127  # so that one step is worth one
    built = model("untied")
    with torch.no_grad():
        built.projection.weight[:50] = weight
    packed = NativeTransformer(built, "int8").references[-1]
    assert torch.equal(packed.scales[:50], torch.ones(50))
    assert torch.equal(packed.offsets[:50], 128 * weight.sum(dim=1).int())


@torch.inference_mode(False)
def test_changed_parameters_are_packed_anew():
    built = model()
    first = compile_model(built, "float32")
    assert compile_model(built, "float32") is first
    with torch.no_grad():
        built.decoder[0].feed_forward.inner.bias += 1
    second = compile_model(built, "float32")
    assert second is not first
    with torch.inference_mode():
        torch.testing.assert_close(steps(second, source(), 2)[1], steps(built, source(), 2)[1], rtol=1e-4, atol=2e-5)


def test_a_copy_of_a_model_packs_for_itself():
    built = model()
    compile_model(built, "int8")
    other = copy.deepcopy(built)
    assert compile_model(other, "int8").model is other


@pytest.mark.parametrize(
    "settings",
    [
        {"width": 40, "heads": 2}, {"inner_width": 90}, {"heads": 8}, {"key_width": 16, "value_width": 32, "heads": 2},
        {"score": "dot"}, {"score": "additive"}, {"normalisation": "batch"}, {"normalisation": "batch", "norm": "post"},
        {"pattern": "window"}, {"pattern": "dilated"}, {"pattern": "sparse"}, {"pattern": "window", "rotary": True},
    ],
    ids=str,
)  # fmt: skip
def test_other_widths_scores_norms_and_patterns_stay_with_torch(settings):
    built = model(**settings)
    assert compile_model(built, "float32") is built


def test_double_precision_stays_with_torch():
    built = model().double()
    assert compile_model(built, "float32") is built
