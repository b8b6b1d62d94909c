"""The judge from outside: PyTorch's own Transformer with the same parameters (promise B8)."""

import pytest
import torch
from small_models import gradients, random_rows, small_model
from torch import Tensor, nn

from dragoman.models.attention import MultiHeadAttention, causal_mask
from dragoman.models.layers import FeedForward
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.tokens import PAD

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}

Twins = list[tuple[list[Tensor], Tensor]]  # some of our parameters, and the one of theirs that is all of them


class Twin(nn.Module):
    """PyTorch's two stacks between our embeddings and our output."""

    def __init__(self, model: Transformer, norm: str, activation: str) -> None:
        super().__init__()
        settings = {"d_model": 16, "nhead": 4, "dim_feedforward": 24, "dropout": 0.0, "activation": activation}
        settings |= {"batch_first": True, "norm_first": norm == "pre"}

        def last_norm() -> nn.Module | None:
            return nn.LayerNorm(16) if norm == "pre" else None  # the paper has none after its last layer

        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**settings), len(model.encoder), last_norm(), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**settings), len(model.decoder), last_norm())
        self.embeddings = [model]  # in a list: they are not this module's own
        self.to(model.output_weight.dtype)

    def forward(self, source: Tensor, prefix: Tensor) -> Tensor:
        (model,) = self.embeddings
        length = prefix.shape[1]
        memory = self.encoder(
            model.source_embedding(source) + model.source_positions(0, source.shape[1]),
            src_key_padding_mask=source == PAD,
        )
        hidden = self.decoder(
            model.target_embedding(prefix) + model.target_positions(0, length),
            memory,
            tgt_mask=~causal_mask(length),
            tgt_key_padding_mask=prefix == PAD,
            memory_key_padding_mask=source == PAD,
        )
        return hidden @ model.output_weight.T


def attention_twins(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> Twins:
    return [
        ([ours.query.weight, ours.key.weight, ours.value.weight], theirs.in_proj_weight),
        ([ours.query.bias, ours.key.bias, ours.value.bias], theirs.in_proj_bias),
        *linear_twins(ours.output, theirs.out_proj),
    ]


def linear_twins(ours: nn.Module, theirs: nn.Module) -> Twins:
    return [([ours.weight], theirs.weight), ([ours.bias], theirs.bias)]


def feed_forward_twins(ours: FeedForward, theirs: nn.Module) -> Twins:
    return linear_twins(ours.inner, theirs.linear1) + linear_twins(ours.outer, theirs.linear2)


def twins(model: Transformer, twin: Twin) -> Twins:
    pairs: Twins = []
    for ours, theirs in zip(model.encoder, twin.encoder.layers, strict=True):
        pairs += attention_twins(ours.attention, theirs.self_attn)
        pairs += feed_forward_twins(ours.feed_forward, theirs)
        pairs += linear_twins(ours.attention_residual.norm, theirs.norm1)
        pairs += linear_twins(ours.feed_forward_residual.norm, theirs.norm2)
    for ours, theirs in zip(model.decoder, twin.decoder.layers, strict=True):
        pairs += attention_twins(ours.attention, theirs.self_attn)
        pairs += attention_twins(ours.cross_attention, theirs.multihead_attn)
        pairs += feed_forward_twins(ours.feed_forward, theirs)
        pairs += linear_twins(ours.attention_residual.norm, theirs.norm1)
        pairs += linear_twins(ours.cross_attention_residual.norm, theirs.norm2)
        pairs += linear_twins(ours.feed_forward_residual.norm, theirs.norm3)
    for ours, theirs in [(model.encoder_norm, twin.encoder.norm), (model.decoder_norm, twin.decoder.norm)]:
        pairs += linear_twins(ours, theirs) if theirs is not None else []
    return pairs


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_with_the_same_parameters_pytorch_computes_the_same_logits_and_gradients(dtype, norm, activation):
    model = small_model(dtype, norm=norm, activation=activation)
    twin = Twin(model, norm, activation)
    pairs = twins(model, twin)
    with torch.no_grad():
        for ours, theirs in pairs:
            theirs.copy_(torch.cat(ours))
    source, prefix = random_rows([7, 3, 5]), random_rows([4, 6, 2], seed=2)
    real = prefix != PAD
    direction = torch.randn(int(real.sum()), model.output_weight.shape[0], dtype=dtype)  # of no symmetry

    logits = model.decode(prefix, model.encode(Source.from_ids(source)))[real]
    their_logits = twin(source, prefix)[real]
    gradient = dict(zip(model.parameters(), gradients((logits * direction).sum(), model), strict=True))
    (their_logits * direction).sum().backward()

    close = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(logits, their_logits, **close)
    for ours, theirs in pairs:
        torch.testing.assert_close(torch.cat([gradient[one] for one in ours]), theirs.grad, **close)
    for ours in (model.source_embedding.weight, model.output_weight):  # the gradient that has come all the way through
        torch.testing.assert_close(gradient[ours], ours.grad, **close)


def test_every_parameter_of_both_stacks_is_compared():
    model = small_model(norm="pre")
    twin = Twin(model, "pre", "relu")

    pairs = twins(model, twin)

    compared = sum(ours.numel() for group, _ in pairs for ours in group)
    embeddings = model.source_embedding.weight.numel() + model.output_weight.numel()
    assert compared == sum(parameter.numel() for parameter in model.parameters()) - embeddings
    assert compared == sum(parameter.numel() for parameter in twin.parameters())
