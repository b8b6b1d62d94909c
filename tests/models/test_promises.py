"""Every architecture, with every choice of its settings, keeps the same promises (model_promises.py)."""

from dataclasses import dataclass, replace

import pytest
import torch
from model_promises import (
    CHOICES,
    PROMISES,
    TRANSFORMERS,
    a_state_can_be_read_on_from_twice,
    every_step_gives_the_logits_of_the_whole_prefix,
    hypotheses_branch_die_and_leave_without_disturbing_each_other,
    recorded_attention_sums_to_one_over_real_positions_of_the_past,
    stepwise,
)
from small_models import SMALL, random_rows, small_model
from torch import Tensor

from dragoman.model_config import TransformerConfig
from dragoman.models.decoder_only import DecoderOnly
from dragoman.models.transducer import Source, gather_parents
from dragoman.models.transformer import DecoderLayer
from dragoman.tokens import START

MODELS = [
    pytest.param({"architecture": architecture, **settings}, id=f"{architecture}: {name}")
    for architecture, choices in CHOICES.items()
    for name, settings in choices.items()
]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return small_model(**request.param)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_it_promises_that(promise, model):
    sums = recorded_attention_sums_to_one_over_real_positions_of_the_past
    if promise is sums and isinstance(model, DecoderOnly):
        pytest.skip("its weights of source and target sum to one together: see test_decoder_only.py")
    promise(model)


def test_the_state_of_another_model_is_refused(model):
    memory = model.encode(Source.from_ids(random_rows([7, 3, 5])))
    with pytest.raises(AssertionError, match=r"expected \w+, got object"):
        model.step(torch.full((3, 1), START), memory, object())


@pytest.mark.parametrize("settings", TRANSFORMERS.values(), ids=TRANSFORMERS.keys())
def test_the_kernels_of_single_precision_keep_steps_and_whole_prefix_together(settings):
    """With heads that are multiples of a vector, so that every kernel takes them."""
    model = small_model(torch.float32, **{"width": 32, "heads": 2, "inner_width": 32, **settings})
    memory, prefix = model.encode(Source.from_ids(random_rows([7, 3, 5]))), random_rows([8, 8, 8], seed=2)
    with torch.inference_mode():
        steps, whole = stepwise(model, prefix, memory), model.decode(prefix, memory)
    scale = max(1.0, whole.abs().max().item() / 10)  # batch normalisation with random statistics: logits of thousands
    torch.testing.assert_close(steps, whole, atol=2e-4 * scale, rtol=2e-4)


@dataclass(frozen=True)
class MeanCache:
    """The sum over the positions so far, and the projected encoder output."""

    total: Tensor  # B W D
    memory: tuple[Tensor, Tensor]  # B H S K each

    def reorder(self, parents):
        return replace(self, total=gather_parents(self.total, parents))

    def keep(self, sentences):
        return MeanCache(self.total[sentences], tuple(part[sentences] for part in self.memory))

    def reserve(self, beam, length):
        return self


class MeanLayer(DecoderLayer):
    """A decoder layer that averages over the prefix instead of attending to it, as a recurrent one would sum."""

    def forward(self, x, memory, mask, memory_mask, *, record=False):
        totals = self.attention_residual.pre(x).cumsum(dim=1)
        x = self.attention_residual.post(x, totals / torch.arange(1, x.shape[1] + 1)[:, None])
        x, cross_weights = self.cross_attention_block(x, memory, memory_mask, record=record)
        return x, None, cross_weights

    def initial_cache(self, memory_states):
        memory = self.cross_attention.project_keys_values(memory_states)
        return MeanCache(memory_states.new_zeros(len(memory_states), 1, memory_states.shape[2]), memory)

    def step(self, x, cache, ancestors, memory_mask):
        cache = replace(cache, total=cache.total + self.attention_residual.pre(x))
        x = self.attention_residual.post(x, cache.total / ancestors.shape[2])
        return self.cross_attention_block(x, cache.memory, memory_mask)[0], cache


@pytest.mark.parametrize(
    "promise",
    [
        every_step_gives_the_logits_of_the_whole_prefix,
        hypotheses_branch_die_and_leave_without_disturbing_each_other,
        a_state_can_be_read_on_from_twice,
    ],
    ids=lambda promise: promise.__name__,
)
def test_a_decoder_layer_may_have_a_cache_of_another_type(promise):
    model = small_model()
    model.decoder[1] = MeanLayer(TransformerConfig(**SMALL), 1).double()
    promise(model)
