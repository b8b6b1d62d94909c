"""The choices of the paper that a recipe can change: each is the same model step by step, in the search, everywhere."""

import math
from collections.abc import Mapping
from contextlib import ExitStack

import pytest
import torch
from small_models import VOCABULARY, random_rows, small_model
from torch import Tensor, nn

from dragoman import native
from dragoman.decoding.engine import Engine
from dragoman.decoding.search import beam_search
from dragoman.models.attention import AdditiveScore, attend, dot_product, scaled_dot_product, unfused_attention
from dragoman.models.layers import BatchNorm, norm_mask
from dragoman.models.positions import NoPositions
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.native import model as compiled_module
from dragoman.native.model import can_compile, compile_model
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START

WIDE = {"width": 32, "heads": 2, "inner_width": 32}  # whole vectors: what every kernel would take
CHOICES: dict[str, Mapping[str, object]] = {
    "dot": {"score": "dot"},
    "additive": {"score": "additive"},
    "batch": {"normalisation": "batch"},
    "batch first": {"normalisation": "batch", "norm": "pre"},
    "no positions": {"positions": "none"},
    "learned positions": {"positions": "learned"},
    "rotary": {"rotary": True},
    "rotary alone": {"rotary": True, "positions": "none", "score": "dot", "key_width": 6, "value_width": 5},
    "a shallow decoder": {"layers": 3, "decoder_layers": 1},
    "a deep decoder": {"layers": 1, "decoder_layers": 3},
    "narrow additive keys": {"score": "additive", "key_width": 3, "value_width": 5},
    "narrow dot keys": {"score": "dot", "key_width": 3, "value_width": 5, "activation": "gelu"},
    "all at once": {"score": "additive", "normalisation": "batch", "positions": "none", "norm": "pre"},
}
COMPILED = ("no positions", "learned positions", "rotary", "a shallow decoder", "a deep decoder")
every_choice = pytest.mark.parametrize("choice", CHOICES)


def chosen(choice: str, dtype: torch.dtype = torch.float64, **how: object) -> Transformer:
    """Return a model of this choice whose running statistics are no longer those of a new one."""
    model = small_model(dtype, **{**how, **CHOICES[choice]})
    for part in model.modules():
        if isinstance(part, BatchNorm):
            part.running_mean.uniform_(-0.5, 0.5)
            part.running_variance.uniform_(0.5, 2.0)
    return model


def written(lengths: list[int]) -> Tensor:
    """Return prefixes (B T) that begin with START."""
    rows = random_rows(lengths, seed=2)
    rows[:, 0] = START
    return rows


@every_choice
def test_what_is_recorded_is_what_is_computed(choice: str) -> None:
    """Recording takes the explicit path: with the recorded weights the layer gives what it gives unobserved."""
    model = chosen(choice)
    source, prefix = random_rows([5, 3]), written([6, 6])
    with torch.inference_mode():
        memory, _ = model.run_encoder(Source.from_ids(source), record=True)
        assert torch.allclose(memory.states, model.encode(Source.from_ids(source)).states, atol=1e-9)
        assert torch.allclose(
            model.run_decoder(prefix, memory, record=True)[0], model.hidden_states(prefix, memory), atol=1e-9
        )
        for weights in vars(model.attention_maps(Source.from_ids(source), prefix)).values():
            assert all(torch.allclose(layer.sum(-1), torch.ones(()).double()) for layer in weights)


@every_choice
def test_the_beam_search_finds_what_the_whole_pass_gives_the_same_probability(choice: str) -> None:
    model = chosen(choice, torch.float32, **WIDE)
    sources = random_rows([5, 3, 7])
    with torch.inference_mode():
        found = beam_search(
            compile_model(model, "float32"), Source.from_ids(sources), DecodingConfig(beam=3, extra_length=4), n_best=3
        )
        for source, best in zip(sources, found, strict=True):
            memory = model.encode(Source.from_ids(source[None, source != PAD]))
            for one in best:
                said = torch.tensor([*one.tokens] if one.truncated else [*one.tokens, END])
                logits = model.decode(torch.tensor([[START, *one.tokens]]), memory)[0].log_softmax(-1)
                probability = logits[: len(said)].gather(1, said[:, None]).sum()
                assert probability.item() == pytest.approx(one.log_probability, abs=2e-3, rel=1e-4)


@every_choice
def test_the_engine_finds_the_same_in_any_company_and_in_either_precision_asked_for(choice: str) -> None:
    model = chosen(choice, torch.float32, **WIDE)
    sources = [[*row[row != PAD].tolist(), END] for row in random_rows([3, 1, 4])]
    for precision in ("float32", "int8"):
        engine = Engine(model, DecodingConfig(beam=2, extra_length=2, precision=precision))
        together = engine.search(sources, n_best=2)
        alone = [engine.search([source], n_best=2)[0] for source in sources]
        assert [[one.tokens for one in row] for row in together] == [[one.tokens for one in row] for row in alone]


@pytest.mark.parametrize("choice", [name for name in CHOICES if name not in COMPILED])
def test_what_the_compiled_search_does_not_know_it_refuses(choice: str) -> None:
    model = chosen(choice, torch.float32, **WIDE)
    assert not can_compile(model)
    assert compile_model(model, "int8") is model


@pytest.mark.parametrize("choice", COMPILED)
def test_the_compiled_search_gives_the_logits_of_what_it_knows(choice: str) -> None:
    model = chosen(choice, torch.float32, **WIDE)
    if not can_compile(model):
        pytest.skip("no compiler")
    fast, source = compiled_module.NativeTransformer(model, "float32"), random_rows([5, 3, 7])
    with torch.inference_mode():
        slow, quick = model.encode(Source.from_ids(source)), fast.encode(Source.from_ids(source))
        token = torch.full((3, 1), START)
        logits, _ = model.step(token, slow, model.initial_state(slow))
        others, _ = fast.step(token, quick, fast.initial_state(quick))
    assert torch.allclose(logits, others, atol=1e-4)


@pytest.mark.parametrize("choice", ["dot", "additive"])
def test_no_kernel_of_the_scaled_product_sees_another_score(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("this kernel computes the scaled dot product")

    for name in ("attend", "attend_cached"):
        monkeypatch.setattr(native, name, refuse)
    model = chosen(choice, torch.float32, **WIDE)
    model.train().decode(written([6, 6]), model.encode(Source.from_ids(random_rows([5, 3])))).sum().backward()
    Engine(model, DecodingConfig(beam=2, extra_length=4)).search([[4, 5, END], [6, END]])


def test_the_dot_product_lacks_only_the_scaling() -> None:
    query, key, value = torch.randn(3, 2, 4, 5, 16, dtype=torch.float64)
    scaled, _ = attend(query * math.sqrt(16), key, value, None)
    for around in (None, unfused_attention()):
        with ExitStack() as stack:
            if around:
                stack.enter_context(around)
            assert torch.allclose(attend(query, key, value, None, score_function=dot_product)[0], scaled)


def test_additive_scores_are_those_of_the_formula() -> None:
    compare = AdditiveScore(heads=2, key_width=3)
    query, key = torch.randn(1, 2, 4, 3), torch.randn(1, 2, 5, 3)
    scores = compare(query, key)
    by_hand = compare.direction[1] @ torch.tanh(query[0, 1, 2] + key[0, 1, 4])
    assert scores.shape == (1, 2, 4, 5)
    assert torch.allclose(scores[0, 1, 2, 4], by_hand, atol=1e-6)


def test_a_score_decides_the_weights() -> None:
    query, key, value = torch.randn(3, 1, 1, 4, 16)
    recorded = [
        attend(query, key, value, None, score_function=one, record=True)[1] for one in (dot_product, scaled_dot_product)
    ]
    assert not torch.allclose(*recorded)  # type: ignore[arg-type]


def test_batch_normalisation_is_that_of_torch_over_the_positions_that_are_no_padding() -> None:
    ours, judge = BatchNorm(4), nn.BatchNorm1d(4)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    for seed in range(3):
        x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(seed))
        with norm_mask(mask):
            normalised = ours(x)
        assert torch.allclose(normalised[mask], judge(x[mask]), atol=1e-6)
    assert torch.allclose(ours.running_mean, judge.running_mean)  # type: ignore[arg-type]
    assert torch.allclose(ours.running_variance, judge.running_var)  # type: ignore[arg-type]
    assert torch.allclose(ours.eval()(x)[mask], judge.eval()(x[mask]), atol=1e-6)


def test_what_stands_at_padding_changes_neither_a_batch_nor_the_statistics() -> None:
    mask = torch.tensor([[True, True, False], [True, True, True]])
    x = torch.randn(2, 3, 4)
    other = x.masked_fill(~mask[..., None], math.nan)
    norms = BatchNorm(4), BatchNorm(4)
    with norm_mask(mask):
        first, second = (norm(values) for norm, values in zip(norms, (x, other), strict=True))
    assert torch.equal(first, second)
    assert torch.equal(norms[0].running_variance, norms[1].running_variance)


def test_a_batch_of_one_position_is_normalised_by_the_running_statistics() -> None:
    norm = BatchNorm(4)
    x = torch.randn(1, 1, 4)
    with norm_mask(torch.ones(1, 1, dtype=torch.bool)):
        assert torch.allclose(norm(x), x, atol=1e-4)
    assert torch.equal(norm.running_mean, torch.zeros(4))


def test_batch_normalisation_in_training_must_be_told_what_is_padding() -> None:
    with pytest.raises(AssertionError, match="norm_mask"):
        BatchNorm(4)(torch.randn(1, 2, 4))


def test_without_positions_the_encoder_sees_a_bag_of_tokens() -> None:
    model, source = chosen("no positions"), random_rows([6])
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    with torch.inference_mode():
        assert torch.allclose(
            model.encode(Source.from_ids(source[:, order])).states,
            model.encode(Source.from_ids(source)).states[:, order],
            atol=1e-9,
        )
    assert torch.equal(NoPositions(8)(3, 2), torch.zeros(2, 8))
    assert len(source[0]) < VOCABULARY
