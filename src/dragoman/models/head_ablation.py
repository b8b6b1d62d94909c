"""A model without some of its heads: what happens without a head says more of it than where it looks.

A head reaches the rest of the model through its columns of W^O alone (section 3.2.2). Where these are zero it has no
effect, while every shape, and so every compiled loop, stays what it was.
"""

import copy
from collections.abc import Iterable
from typing import Literal, TypeGuard, cast

import torch
from torch import nn

from dragoman.models.attention import MultiHeadAttention
from dragoman.models.transducer import Transducer
from dragoman.models.transformer import DecoderLayer, EncoderLayer, Transformer

AttentionKind = Literal["encoder", "decoder", "cross"]
HeadIndex = tuple[AttentionKind, int, int]  # kind, layer and head, counted from 0


def can_ablate_heads(model: Transducer) -> TypeGuard[Transformer]:
    """Say whether a model's attention is in heads that can be switched off: that of its rivals is part of a layer."""
    return isinstance(model, Transformer)


def ablate_heads(model: Transformer, heads: Iterable[HeadIndex]) -> Transformer:
    """Return a model in which these heads have no effect; it shares all parameters but a few W^O with `model`."""
    shared = {id(parameter): parameter for parameter in model.parameters()}
    changed = copy.deepcopy(model, cast(dict[int, object], shared))
    with torch.inference_mode(False), torch.no_grad():
        for kind, layer, head in heads:
            attention = find_attention(changed, kind, layer)
            width = attention.output.in_features // attention.heads
            weight = attention.output.weight.clone()
            weight[:, head * width : (head + 1) * width] = 0.0
            attention.output.weight = nn.Parameter(weight, requires_grad=False)
    return changed.eval()


def find_attention(model: Transformer, kind: AttentionKind, layer: int) -> MultiHeadAttention:
    """Return the heads of one layer."""
    if kind == "encoder":
        return cast(EncoderLayer, model.encoder[layer]).attention
    found = cast(DecoderLayer, model.decoder[layer])
    return found.attention if kind == "decoder" else found.cross_attention
