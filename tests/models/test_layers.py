"""Embeddings, dropout, the feed-forward layer, residual connections and batch normalisation."""

import math

import pytest
import torch
from torch import nn

from dragoman.models.layers import BatchNorm, Dropout, Embedding, FeedForward, Residual, norm_mask, random_bytes
from dragoman.tokens import PAD

CPU = torch.device("cpu")
MANY = 1 << 20


def test_an_embedding_is_a_row_of_the_matrix_times_the_root_of_the_width():
    embedding = Embedding(10, 16)
    tokens = torch.tensor([[4, 9], [7, 4]])
    torch.testing.assert_close(embedding(tokens), embedding.weight[tokens] * 4, atol=0, rtol=0)


def test_embeddings_start_with_a_length_of_about_one_a_number():
    """Section 3.4 multiplies by √d_model; the matrix starts so that the product has the size of a position's waves."""
    torch.manual_seed(1)
    assert Embedding(1000, 64)(torch.arange(1, 1000)).std().item() == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_padding_is_all_zeros_whatever_its_row_holds(poison):
    embedding = Embedding(10, 16)
    with torch.no_grad():
        embedding.weight[PAD] = poison

    vectors = embedding(torch.tensor([[4, PAD]]))
    vectors.square().sum().backward()

    assert vectors[0, 1].count_nonzero() == 0
    assert embedding.weight.grad[PAD].count_nonzero() == 0
    assert torch.isfinite(embedding.weight.grad).all()


@pytest.mark.parametrize("activation, bend", [("relu", nn.ReLU()), ("gelu", nn.GELU())])
def test_the_feed_forward_layer_is_equation_two(activation, bend):
    torch.manual_seed(1)
    layer = FeedForward(6, 10, activation)
    x = torch.randn(2, 3, 6)
    by_hand = bend(x @ layer.inner.weight.T + layer.inner.bias) @ layer.outer.weight.T + layer.outer.bias
    torch.testing.assert_close(layer(x), by_hand)


def test_the_papers_order_normalises_the_sum():
    torch.manual_seed(1)
    around = Residual(6, 0.0, "post")
    x, change = torch.randn(2, 3, 6), torch.randn(2, 3, 6)
    assert around.pre(x) is x
    torch.testing.assert_close(around.post(x, change), around.norm(x + change))


def test_norm_first_normalises_what_the_sub_layer_reads():
    torch.manual_seed(1)
    around = Residual(6, 0.0, "pre")
    x, change = torch.randn(2, 3, 6), torch.randn(2, 3, 6)
    torch.testing.assert_close(around.pre(x), around.norm(x))
    torch.testing.assert_close(around.post(x, change), x + change)


def test_what_goes_around_a_sub_layer_is_never_dropped():
    torch.manual_seed(1)
    around = Residual(6, 0.9, "pre").train()
    x = torch.randn(2, 3, 6)
    assert torch.equal(around.post(x, torch.zeros_like(x)), x)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_the_share_asked_for_is_dropped_and_the_mean_is_kept(share):
    torch.manual_seed(1)

    x = Dropout(share).train()(torch.ones(MANY))

    dropped = (x == 0).double().mean().item()
    spread = math.sqrt(share * (1 - share) / MANY)
    assert dropped == pytest.approx(share, abs=1 / 512 + 5 * spread)  # a share is rounded to 256ths
    assert x.double().mean().item() == pytest.approx(1.0, abs=5 * spread / (1 - share))
    assert x.unique().numel() == 2  # nothing, or the whole scaled up


def test_elements_are_dropped_independently_of_their_neighbours():
    """Eight masks are cut from one random number; if its bytes were alike, neighbours would fall together."""
    torch.manual_seed(1)
    kept = (Dropout(0.5).train()(torch.ones(MANY)) != 0).double().view(-1, 8)
    correlation = torch.corrcoef(kept.T) - torch.eye(8, dtype=torch.float64)
    assert correlation.abs().max() < 5 / math.sqrt(MANY / 8)


def test_the_gradient_passes_where_the_value_passed():
    torch.manual_seed(1)
    x = torch.ones(1000, requires_grad=True)
    dropped = Dropout(0.3).train()(x)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped)


def test_dropout_does_nothing_outside_training_and_draws_no_random_number():
    x = torch.randn(5)
    before = torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert torch.equal(torch.get_rng_state(), before)


def test_the_same_seed_drops_the_same_elements():
    dropout, x = Dropout(0.3).train(), torch.ones(1000)
    torch.manual_seed(7)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(7)
    again = dropout(x)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_keeps_the_type_of_what_it_drops_from(dtype):
    """The mask is made in float32; a model in bfloat16 once came out of it in float32 and met a bfloat16 matrix."""
    assert Dropout(0.3).train()(torch.ones(10, dtype=dtype)).dtype == dtype


def test_dropout_reads_memory_that_lies_in_another_order():
    torch.manual_seed(1)
    x = torch.arange(1.0, 13.0).view(3, 4).T
    dropped = Dropout(0.5).train()(x)
    assert torch.equal(dropped, torch.where(dropped == 0, 0.0, 2 * x))


def test_almost_everything_can_be_dropped():
    assert Dropout(0.999).train()(torch.ones(100)).count_nonzero() == 0


@pytest.mark.parametrize("first", range(8))
def test_every_byte_of_a_random_number_takes_all_its_values_equally_often(first):
    """The eighth holds the sign: numbers drawn from 0 up would never set its highest bit."""
    torch.manual_seed(1)

    column = random_bytes(8 * MANY // 4, CPU)[first::8]

    seen = column.long().bincount(minlength=256).double()
    expected = len(column) / 256
    chi_square = ((seen - expected).square() / expected).sum().item()
    assert seen.min() > 0
    assert 255 - 7 * math.sqrt(2 * 255) < chi_square < 255 + 7 * math.sqrt(2 * 255)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9])
def test_as_many_bytes_come_as_are_asked_for(count):
    assert random_bytes(count, CPU).shape == (count,)


def test_batch_normalisation_is_that_of_torch_over_the_positions_that_are_no_padding():
    ours, judge = BatchNorm(4), nn.BatchNorm1d(4)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    for seed in range(3):
        x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(seed))
        with norm_mask(mask):
            normalised = ours(x)
        assert torch.allclose(normalised[mask], judge(x[mask]), atol=1e-6)
    assert torch.allclose(ours.running_mean, judge.running_mean)
    assert torch.allclose(ours.running_variance, judge.running_var)
    assert torch.allclose(ours.eval()(x)[mask], judge.eval()(x[mask]), atol=1e-6)


def test_what_stands_at_padding_changes_neither_a_batch_nor_the_statistics():
    mask = torch.tensor([[True, True, False], [True, True, True]])
    x = torch.randn(2, 3, 4)
    other = x.masked_fill(~mask[..., None], math.nan)
    norms = BatchNorm(4), BatchNorm(4)
    with norm_mask(mask):
        first, second = (norm(values) for norm, values in zip(norms, (x, other), strict=True))
    assert torch.equal(first, second)
    assert torch.equal(norms[0].running_variance, norms[1].running_variance)


def test_a_batch_of_one_position_is_normalised_by_the_running_statistics():
    norm = BatchNorm(4)
    x = torch.randn(1, 1, 4)
    with norm_mask(torch.ones(1, 1, dtype=torch.bool)):
        assert torch.allclose(norm(x), x, atol=1e-4)
    assert torch.equal(norm.running_mean, torch.zeros(4))


def test_batch_normalisation_in_training_must_be_told_what_is_padding():
    with pytest.raises(AssertionError, match="norm_mask"):
        BatchNorm(4)(torch.randn(1, 2, 4))
