"""Ablation of attention heads: a model in which some heads have no effect.

A head reaches the rest of the model through its columns of W^O only (section 3.2.2). With these set to zero it has no
effect, and all shapes stay the same, so that native code can be used.
"""

import copy
from collections.abc import Iterable
from typing import TypeGuard, cast

import torch
from torch import nn

from dragoman.model_config import AttentionKind, HeadIndex
from dragoman.models.attention import MultiHeadAttention
from dragoman.models.transducer import Transducer
from dragoman.models.transformer import DecoderLayer, EncoderLayer, Transformer


def can_ablate_heads(model: Transducer) -> TypeGuard[Transformer]:
    """Return whether a model has attention heads that can be ablated."""
    return isinstance(model, Transformer)


def ablate_heads(model: Transformer, heads: Iterable[HeadIndex]) -> Transformer:
    """Return a model in which these heads have no effect; it shares all parameters but some W^O with `model`."""
    shared = {id(parameter): parameter for parameter in model.parameters()}
    ablated = copy.deepcopy(model, cast(dict[int, object], shared))
    with torch.inference_mode(False), torch.no_grad():
        for kind, layer, head in heads:
            attention = find_attention(ablated, kind, layer)
            width = attention.output.in_features // attention.heads
            weight = attention.output.weight.clone()
            weight[:, head * width : (head + 1) * width] = 0.0
            attention.output.weight = nn.Parameter(weight, requires_grad=False)
    return ablated.eval()


def find_attention(model: Transformer, kind: AttentionKind, layer: int) -> MultiHeadAttention:
    """Return the multi-head attention of one layer."""
    if kind == "encoder":
        return cast(EncoderLayer, model.encoder[layer]).attention
    decoder_layer = cast(DecoderLayer, model.decoder[layer])
    return decoder_layer.attention if kind == "decoder" else decoder_layer.cross_attention
