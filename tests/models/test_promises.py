"""Every architecture, with every choice of its settings, keeps the same promises (promises.py)."""

import pytest
import torch
from promises import (
    CHOICES,
    PROMISES,
    TRANSFORMERS,
    recorded_attention_sums_to_one_over_real_positions_of_the_past,
    stepwise,
)
from small_models import random_rows, small_model

from dragoman.models.decoder_only import DecoderOnly
from dragoman.models.transducer import Source
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
    with pytest.raises(AssertionError, match="the state of another model"):
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
