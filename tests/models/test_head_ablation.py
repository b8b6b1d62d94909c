"""A head whose columns of W^O are zero is a head that was never there."""

import copy
import types

import pytest
import torch
from small_models import random_rows, small_model

from dragoman.models.attention import attend
from dragoman.models.head_ablation import ablate_heads, find_attention
from dragoman.models.transducer import Source
from dragoman.native.model import compile_model

HEADS = [("encoder", 0, 1), ("decoder", 1, 3), ("cross", 1, 0)]


def masked(model, kind, layer, head):
    """Return a copy of a model in which the output of one head is set to zero before W^O, by the explicit way."""
    changed = copy.deepcopy(model)
    attention = find_attention(changed, kind, layer)

    def look(self, looking, key, value, mask, *, record=False):
        heads, weights = attend(self.split_heads(self.query(looking)), key, value, mask, record=True)
        heads = heads.clone()
        heads[:, head] = 0
        return self.output(heads.transpose(1, 2).flatten(2)), weights if record else None

    attention.attend_projected = types.MethodType(look, attention)
    return changed


def logits(model):
    source, prefix = random_rows([7, 4]), random_rows([5, 5], seed=2)
    with torch.inference_mode():
        return model.decode(prefix, model.encode(Source.from_ids(source)))


@pytest.mark.parametrize("place", HEADS, ids=str)
def test_zero_columns_are_the_same_as_a_masked_head(place):
    model = small_model()
    assert torch.allclose(logits(ablate_heads(model, [place])), logits(masked(model, *place)), rtol=0, atol=1e-12)
    assert not torch.allclose(logits(ablate_heads(model, [place])), logits(model), atol=1e-3)


def test_several_heads_are_switched_off_together():
    model = small_model()
    one_after_the_other = model
    for place in HEADS:
        one_after_the_other = ablate_heads(one_after_the_other, [place])
    assert torch.equal(logits(ablate_heads(model, HEADS)), logits(one_after_the_other))


def test_the_model_itself_is_left_as_it_was():
    model = small_model()
    before = logits(model)
    ablate_heads(model, HEADS)
    assert torch.equal(logits(model), before)


def test_only_the_changed_matrices_are_copied():
    model = small_model()
    ours = {id(parameter) for parameter in model.parameters()}
    assert sum(id(parameter) not in ours for parameter in ablate_heads(model, HEADS).parameters()) == len(HEADS)


def test_the_compiled_model_knows_of_it_even_if_the_whole_one_was_packed_before():
    model = small_model(torch.float32, width=64, inner_width=64, heads=2)
    compile_model(model, "float32").encode(Source.from_ids(random_rows([4])))
    with torch.inference_mode():
        changed = ablate_heads(model, [("encoder", 1, 1)])
        states = compile_model(changed, "float32").encode(Source.from_ids(random_rows([4]))).states
        assert torch.allclose(states, changed.encode(Source.from_ids(random_rows([4]))).states, atol=1e-4)
        assert not torch.allclose(states, model.encode(Source.from_ids(random_rows([4]))).states, atol=1e-2)
