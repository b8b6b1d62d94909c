import math

import pytest
import torch

from dragoman.tokens import PAD
from dragoman.training import loss as losses
from dragoman.training.loss import projected_cross_entropy, smoothed_cross_entropy


@pytest.fixture
def example():
    """Hidden states (B T D), an output matrix (V D) and targets (B T) with padding in them."""
    numbers = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, 5, 4, dtype=torch.float64, generator=numbers, requires_grad=True)
    output = torch.randn(7, 4, dtype=torch.float64, generator=numbers, requires_grad=True)
    target = torch.randint(PAD + 1, 7, (3, 5), generator=numbers)
    target[0, 3:] = PAD
    target[2, 1:] = PAD
    return hidden, output, target


def gradients(loss, *of):
    return torch.autograd.grad(loss * 0.3, of)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("numbers_at_a_time", [1, 7, 15, 1 << 21])
def test_the_fused_loss_is_the_formula_in_value_and_gradient(monkeypatch, example, smoothing, numbers_at_a_time):
    monkeypatch.setattr(losses, "CHUNK_LOGITS", numbers_at_a_time)
    hidden, output, target = example
    fused, _ = projected_cross_entropy(hidden, output, target, smoothing)
    formula = smoothed_cross_entropy(hidden @ output.T, target, smoothing)
    torch.testing.assert_close(fused, formula, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        gradients(fused, hidden, output), gradients(formula, hidden, output), rtol=1e-11, atol=1e-14
    )


def test_the_formula_is_torchs_own_label_smoothing(example):
    hidden, output, target = example
    logits = hidden @ output.T
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
    )
    torch.testing.assert_close(smoothed_cross_entropy(logits, target, 0.1), expected, rtol=1e-12, atol=0)


def test_the_loss_for_the_record_is_not_smoothed(example):
    hidden, output, target = example
    _, plain = projected_cross_entropy(hidden, output, target, 0.1)
    torch.testing.assert_close(plain, smoothed_cross_entropy(hidden @ output.T, target, 0.0), rtol=1e-12, atol=0)


def test_logits_of_hundreds_overflow_nothing():
    hidden, output = torch.full((1, 2, 1), 500.0), torch.tensor([[-1.0], [1.0], [0.0], [0.5], [1.0]])
    loss, plain = projected_cross_entropy(hidden, output, torch.tensor([[PAD + 1, PAD + 1]]), 0.1)
    assert torch.isfinite(loss)
    assert plain.item() == pytest.approx(2 * math.log(2), rel=1e-5)  # two tokens share the probability


def test_what_stands_in_padding_does_not_matter(example):
    hidden, output, target = example
    poisoned = hidden.detach().clone()
    poisoned[target == PAD] = float("nan")
    clean, _ = projected_cross_entropy(hidden, output, target, 0.1)
    assert projected_cross_entropy(poisoned, output, target, 0.1)[0] == clean


def test_the_loss_of_hidden_vectors_in_half_precision_is_summed_in_single():
    """Of a sum kept in bfloat16 only three digits were left."""
    hidden = torch.randn(20, 30, 8, generator=torch.Generator().manual_seed(1)).bfloat16().requires_grad_()
    output = torch.randn(11, 8, generator=torch.Generator().manual_seed(2))
    target = torch.randint(PAD + 1, 11, (20, 30), generator=torch.Generator().manual_seed(3))

    with torch.autocast("cpu", torch.bfloat16):
        found = projected_cross_entropy(hidden, output, target, 0.1)

    logits = (hidden @ output.bfloat16().T).float()
    expected = smoothed_cross_entropy(logits, target, 0.1), smoothed_cross_entropy(logits, target, 0.0)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    assert gradients(found[0], hidden)[0].dtype == torch.bfloat16


def test_a_bias_of_the_output_projection_counts_and_is_learned():
    torch.manual_seed(1)
    hidden, output, bias = (
        torch.randn(*shape, dtype=torch.float64).requires_grad_() for shape in ((2, 3, 4), (9, 4), (9,))
    )
    target = torch.randint(PAD + 1, 9, (2, 3))
    loss, _ = projected_cross_entropy(hidden, output, target, 0.0, bias=bias)
    expected = torch.nn.functional.cross_entropy(
        (hidden @ output.T + bias).flatten(0, 1), target.flatten(), reduction="sum"
    )
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, bias), torch.autograd.grad(expected, bias))
