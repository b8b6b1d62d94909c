"""Derivatives against finite differences, in float64 (promise B17)."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call

from dragoman.models.attention import MultiHeadAttention, attend, causal_mask
from dragoman.models.layers import Embedding, FeedForward, Residual
from dragoman.tokens import PAD
from dragoman.training.loss import ProjectedCrossEntropy, projected_cross_entropy


def numbers(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def is_right(module: nn.Module, *inputs: Tensor) -> bool:
    """Check a module's gradients with respect to its inputs and to all of its parameters."""
    module = module.double()
    names = list(dict(module.named_parameters()))
    parameters = [parameter.detach().requires_grad_() for parameter in module.parameters()]

    def function(*arguments: Tensor) -> Tensor:
        given, rest = arguments[: len(inputs)], arguments[len(inputs) :]
        return functional_call(module, dict(zip(names, rest, strict=True)), given)

    return gradcheck(function, (*inputs, *parameters))


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("value_width", [3, 2])
@pytest.mark.parametrize("mask", [None, causal_mask(4)[1:], torch.tensor([[True, False, True, True]])])
def test_the_gradient_of_attention(record, value_width, mask):
    query, key, value = numbers(2, 2, 3, 3), numbers(2, 2, 4, 3, seed=2), numbers(2, 2, 4, value_width, seed=3)
    assert gradcheck(lambda *inputs: attend(*inputs, mask, record=record)[0], (query, key, value))


def test_the_gradient_of_recorded_weights():
    query, key, value = numbers(2, 2, 3, 3), numbers(2, 2, 4, 3, seed=2), numbers(2, 2, 4, 3, seed=3)
    assert gradcheck(lambda *inputs: attend(*inputs, causal_mask(4)[1:], record=True)[1], (query, key, value))


@pytest.mark.parametrize("record", [False, True])
def test_the_gradient_of_attention_that_may_look_nowhere(record):
    query, key, value = numbers(1, 2, 3, 3), numbers(1, 2, 4, 3, seed=2), numbers(1, 2, 4, 3, seed=3)
    mask = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
    assert gradcheck(lambda *inputs: attend(*inputs, mask, record=record)[0], (query, key, value))


def test_the_gradient_of_several_heads():
    class Looking(MultiHeadAttention):
        def forward(self, looking: Tensor, looked_at: Tensor) -> Tensor:
            return super().forward(looking, looked_at, None)[0]

    torch.manual_seed(1)
    assert is_right(Looking(4, 2, 3, 2), numbers(1, 2, 4), numbers(1, 3, 4, seed=2))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_gradient_of_the_feed_forward_layer(activation):
    torch.manual_seed(1)
    assert is_right(FeedForward(4, 6, activation), numbers(2, 3, 4))


@pytest.mark.parametrize("order", ["post", "pre"])
def test_the_gradient_of_the_way_around_a_sub_layer(order):
    class Around(Residual):
        def forward(self, x: Tensor) -> Tensor:
            return self.post(x, self.pre(x).sin())

    torch.manual_seed(1)
    assert is_right(Around(4, 0.0, order), numbers(2, 3, 4))


def test_the_gradient_of_an_embedding():
    embedding = Embedding(6, 4).double()
    tokens = torch.tensor([[5, 4, 5], [4, PAD, PAD]])
    assert gradcheck(lambda weight: functional_call(embedding, {"weight": weight}, (tokens,)), (numbers(6, 4),))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_of_the_fused_loss(smoothing):
    target = torch.tensor([4, 1, 6, 3, 3])
    hidden, output = numbers(5, 4), numbers(7, 4, seed=2)
    assert gradcheck(lambda *inputs: ProjectedCrossEntropy.apply(*inputs, target, smoothing)[0], (hidden, output))


def test_the_gradient_of_the_loss_stops_at_padding():
    target = torch.tensor([[4, 1, PAD], [6, PAD, PAD]])
    hidden, output = numbers(2, 3, 4), numbers(7, 4, seed=2)

    loss, _ = projected_cross_entropy(hidden, output, target, 0.1)
    loss.backward()

    assert hidden.grad[target == PAD].count_nonzero() == 0
    assert gradcheck(lambda *inputs: projected_cross_entropy(*inputs, target, 0.1)[0], (hidden, output))
