"""Every architecture, with every choice of its settings, keeps the same promises (promises.py)."""

import pytest
import torch
from promises import PROMISES, small_rival
from promises import the_attention_shown_stays_within_the_source_and_sums_to_one as cross_attention_sums_to_one
from small_models import random_rows

from dragoman.models.transducer import Source
from dragoman.tokens import START

TRANSFORMERS = {
    "as in the paper": {},
    "norm first, gelu": {"norm": "pre", "activation": "gelu"},
    "learned positions": {"norm": "pre", "positions": "learned"},
    "no positions": {"positions": "none"},
    "narrow heads, shared output": {"key_width": 3, "value_width": 5, "share_output": True},
    "embeddings of their own": {"share_embeddings": False},
    "dot": {"score": "dot"},
    "narrow dot keys": {"score": "dot", "key_width": 3, "value_width": 5, "activation": "gelu"},
    "additive": {"score": "additive"},
    "narrow additive keys": {"score": "additive", "key_width": 3, "value_width": 5},
    "batch normalisation": {"normalisation": "batch"},
    "batch normalisation first": {"normalisation": "batch", "norm": "pre"},
    "rotary": {"rotary": True},
    "rotary alone": {"rotary": True, "positions": "none", "score": "dot", "key_width": 6, "value_width": 5},
    "a shallow decoder": {"layers": 3, "decoder_layers": 1},
    "a deep decoder": {"layers": 1, "decoder_layers": 3},
    "all at once": {"score": "additive", "normalisation": "batch", "positions": "none", "norm": "pre"},
    "window": {"pattern": "window", "window": 5},
    "dilated": {"pattern": "dilated", "window": 3},
    "sparse": {"pattern": "sparse", "window": 6},
    "window, rotary": {"pattern": "window", "window": 5, "rotary": True},
}
CHOICES = {
    "transformer": TRANSFORMERS,
    "decoder_only": {
        "norm first": {"norm": "pre"},
        "learned positions, narrow heads": {
            "positions": "learned", "share_embeddings": False, "key_width": 3, "value_width": 5,
        },
        "additive": {"positions": "none", "share_output": True, "score": "additive"},
        "window": {"pattern": "window", "window": 3},
        "dilated": {"pattern": "dilated", "window": 2, "layers": 3, "norm": "pre"},
        "sparse": {"pattern": "sparse", "window": 4, "layers": 2},
        "window, rotary": {"pattern": "window", "window": 3, "rotary": True},
        "rotary": {"rotary": True},
    },
    "recurrent": {
        "LSTM without attention": {"cell": "lstm", "score": "none"},
        "GRU without attention": {"cell": "gru", "score": "none", "width": 7},
        "additive": {"cell": "lstm", "score": "additive", "layers": 1, "share_output": True},
        "dot": {"cell": "gru", "score": "dot", "decoder_layers": 1},
        "general": {"cell": "gru", "score": "general", "share_embeddings": False},
        "scaled dot": {"cell": "lstm", "score": "scaled_dot", "width": 7},
        "location": {"cell": "lstm", "score": "location", "decoder_layers": 1},
    },
    "convs2s": {
        "as in the paper": {},
        "kernel 1": {"kernel": 1, "share_output": True, "score": "additive"},
        "kernel 4": {"kernel": 4, "positions": "learned", "score": "dot", "decoder_layers": 1},
        "kernel 5": {"kernel": 5, "layers": 3, "positions": "none", "share_embeddings": False, "width": 7},
    },
    "bytenet": {
        "as in the paper": {},
        "kernel 1": {"kernel": 1, "share_output": True},
        "kernel 4": {"kernel": 4, "positions": "learned", "layers": 3, "decoder_layers": 1},
        "kernel 2": {"kernel": 2, "layers": 6, "positions": "none", "share_embeddings": False, "width": 7},
    },
    "bag_of_embeddings": {
        "average": {"pooling": "average"},
        "average, one word back": {"pooling": "average", "kernel": 1, "layers": 1},
        "concatenate": {"pooling": "concatenate"},
        "concatenate, four words back": {
            "pooling": "concatenate", "kernel": 4, "longest": 8, "share_embeddings": False,
        },
    },
}  # fmt: skip
MODELS = [
    pytest.param({"architecture": architecture, **settings}, id=f"{architecture}: {name}")
    for architecture, choices in CHOICES.items()
    for name, settings in choices.items()
]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("settings", MODELS)
def test_it_promises_that(promise, settings):
    if promise is cross_attention_sums_to_one and settings["architecture"] == "decoder_only":
        pytest.skip("its weights of source and target sum to one together: see test_decoder_only.py")
    promise(small_rival(**settings))


@pytest.mark.parametrize("settings", MODELS)
def test_the_state_of_another_model_is_refused(settings):
    model = small_rival(**settings)
    memory = model.encode(Source.from_ids(random_rows([7, 3, 5])))
    with pytest.raises(AssertionError, match="the state of another model"):
        model.step(torch.full((3, 1), START), memory, object())


@pytest.mark.parametrize("settings", TRANSFORMERS.values(), ids=TRANSFORMERS.keys())
def test_the_kernels_of_single_precision_keep_steps_and_whole_prefix_together(settings):
    """With heads that are multiples of a vector, so that every kernel takes them."""
    wide = {"width": 32, "heads": 2, "inner_width": 32}
    model = small_rival(torch.float32, architecture="transformer", **{**wide, **settings})
    memory, prefix = model.encode(Source.from_ids(random_rows([7, 3, 5]))), random_rows([8, 8, 8], seed=2)
    with torch.inference_mode():
        state, steps = model.initial_state(memory), []
        for token in prefix.split(1, dim=1):
            logits, state = model.step(token, memory, state)
            steps.append(logits)
        whole = model.decode(prefix, memory)
    scale = max(1.0, whole.abs().max().item() / 10)  # batch normalisation with random statistics: logits of thousands
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=2e-4 * scale, rtol=2e-4)
