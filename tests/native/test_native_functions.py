"""What the compiled functions compute is what torch computes, gradients included."""

import math

import pytest
import torch
from torch.nn import functional as F

from dragoman.native import functions as kernels

pytestmark = [
    pytest.mark.skipif(kernels.native_library() is None, reason="built without kernels"),
    pytest.mark.usefixtures("each_variant"),
]


def heads(batch, length, count=3, width=32):
    """B H T K as a projection leaves it: a view of B T (H K)."""
    return torch.randn(batch, length, count * width).view(batch, length, count, width).transpose(1, 2).requires_grad_()


def judged(query, key, value, mask):
    """Return output and gradients by the compiled function and by torch's own."""
    upstream = torch.randn(query.shape)
    results = []
    for attend in (kernels.attend, F.scaled_dot_product_attention):
        seen = attend(query, key, value, mask)
        results.append([seen, *torch.autograd.grad(seen, (query, key, value), upstream)])
    return results


@pytest.mark.parametrize(("looking", "looked_at"), [(1, 1), (5, 19), (16, 16), (23, 7), (40, 65), (1, 100)])
@pytest.mark.parametrize("masked", ["not", "padding", "anywhere"])
def test_attention_and_its_gradients_are_those_of_torch(looking, looked_at, masked):
    mask = {
        "not": None,
        "padding": torch.arange(looked_at) < torch.randint(1, looked_at + 1, (4, 1, 1, 1)),
        "anywhere": (torch.rand(4, 1, looking, looked_at) < 0.6).index_fill(3, torch.tensor([0]), True),
    }[masked]
    ours, theirs = judged(heads(4, looking), heads(4, looked_at), heads(4, looked_at), mask)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=5e-6)


def test_a_causal_mask_is_shared_by_all_sentences():
    mask = torch.ones(9, 9, dtype=torch.bool).tril()[None, None]
    query = heads(3, 9)
    ours, theirs = judged(query, heads(3, 9), heads(3, 9), mask)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=5e-6)


def test_a_row_that_may_look_nowhere_sees_zeros_and_passes_no_gradient_on():
    query, key, value = heads(2, 4), heads(2, 6), heads(2, 6)
    mask = torch.ones(2, 1, 4, 6, dtype=torch.bool)
    mask[1, :, 2] = False
    seen = kernels.attend(query, key, value, mask)
    gradient = torch.autograd.grad(seen.sum(), query)[0]
    assert seen[1, :, 2].eq(0).all()
    assert gradient[1, :, 2].eq(0).all()


def test_what_is_masked_does_not_matter_even_if_it_is_not_a_number():
    query, key, value = heads(1, 3), heads(1, 5), heads(1, 5)
    mask = torch.tensor([True, True, True, False, False])[None, None, None]
    expected = kernels.attend(query, key[:, :, :3], value[:, :, :3], None)
    spoilt = key.detach().clone()
    spoilt[:, :, 3:] = math.nan
    assert torch.equal(kernels.attend(query, spoilt, value, mask), expected)


def test_neighbours_and_padding_change_no_bit():
    query, key, value = heads(5, 7), heads(5, 9), heads(5, 9)
    longer = [F.pad(tensor, (0, 0, 0, 30)) for tensor in (key, value)]
    mask = (torch.arange(39) < 9).expand(5, 1, 1, 39)
    crowd = kernels.attend(query, *longer, mask)
    for sentence in range(5):
        one = slice(sentence, sentence + 1)
        assert torch.equal(kernels.attend(query[one], key[one], value[one], None)[0], crowd[sentence])


def test_nan_among_what_is_seen_is_not_hidden():
    query, key, value = heads(1, 3), heads(1, 5), heads(1, 5)
    spoilt = key.detach().clone()
    spoilt[0, 0, 1, 0] = math.nan
    assert kernels.attend(query, spoilt, value, None)[0, 0].isnan().all()


@pytest.mark.parametrize("scale", [1, 30, 1000])
def test_large_scores_do_not_overflow(scale):
    query, key, value = heads(2, 6), heads(2, 8), heads(2, 8)
    seen = kernels.attend(query * scale, key, value, None)
    torch.testing.assert_close(seen, F.scaled_dot_product_attention(query * scale, key, value), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.double(),
        lambda t: t[..., :20],
        lambda t: t.expand(-1, -1, 300, -1) if t.shape[2] == 1 else t,
    ],
)
def test_what_does_not_fit_is_left_to_torch(change):
    query = change(torch.randn(1, 2, 1, 32))
    assert not kernels.can_attend(query, query, query, None)


def test_what_comes_in_bfloat16_is_looked_at_in_float32():
    query, key, value = (heads(2, 6).detach().bfloat16().requires_grad_() for _ in range(3))
    seen = kernels.attend(query, key, value, None)
    expected = kernels.attend(query.float(), key.float(), value.float(), None)
    assert seen.dtype == torch.bfloat16
    torch.testing.assert_close(seen.float(), expected, rtol=0.01, atol=0.01)
    assert torch.autograd.grad(seen.sum(), value)[0].dtype == torch.bfloat16


def test_a_mask_that_differs_from_head_to_head_is_left_to_torch():
    query = torch.randn(1, 2, 3, 32)
    assert not kernels.can_attend(query, query, query, torch.ones(1, 2, 3, 3, dtype=torch.bool))


@pytest.mark.parametrize("count", [1, 15, 16, 63, 64, 65, 1000])
def test_dropout_is_a_function_of_the_seed(count):
    x, around = torch.randn(count), torch.randn(count)
    once = kernels.dropout(x, around, 128, seed=7)
    assert torch.equal(once, kernels.dropout(x, around, 128, seed=7))
    torch.testing.assert_close(once, around + kernels.dropout(x, None, 128, seed=7))


@pytest.mark.parametrize("dropped", [1, 26, 77, 128, 255])
def test_the_share_that_is_dropped_is_the_one_asked_for(dropped):
    many = 1 << 20
    kept = kernels.dropout(torch.ones(many), None, dropped, seed=2**62 + 3)
    share = (kept == 0).double().mean().item()
    expected = dropped / 256
    assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / many)
    torch.testing.assert_close(kept[kept != 0].unique(), torch.tensor([256 / (256 - dropped)]))


@pytest.mark.parametrize("distance", [1, 2, 4, 16, 32, 64, 128])
def test_one_decision_says_nothing_about_another(distance):
    """Neither about a neighbour nor about one that hangs on the same random number."""
    many = 1 << 20
    kept = (kernels.dropout(torch.ones(many), None, 128, seed=11) != 0).double() - 0.5
    correlation = (kept[:-distance] * kept[distance:]).mean().item() * 4
    assert abs(correlation) < 5 / math.sqrt(many)


@pytest.mark.parametrize("other", [12, 11 + 2**32, 11 + 2**62])
def test_another_seed_gives_an_unrelated_mask(other):
    many = 1 << 20
    one, two = ((kernels.dropout(torch.ones(many), None, 128, seed) != 0).double() - 0.5 for seed in (11, other))
    assert abs((one * two).mean().item() * 4) < 5 / math.sqrt(many)


def test_the_gradient_of_dropout_drops_the_same_elements():
    x, around = torch.randn(3, 50, requires_grad=True), torch.randn(3, 50, requires_grad=True)
    out = kernels.dropout(x, around, 77, seed=5)
    through, past = torch.autograd.grad(out, (x, around), torch.ones_like(out))
    assert torch.equal(past, torch.ones_like(past))
    torch.testing.assert_close(out - around, x * through)


@pytest.mark.parametrize("width", [3, 16, 100, 6000])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_and_its_gradient_are_those_of_torch(width, smoothing):
    logits = (3 * torch.randn(50, width)).requires_grad_()
    target = torch.randint(width, (50,))
    expected = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    slope = torch.autograd.grad(expected, logits)[0]
    found = logits.detach().clone()
    smoothed, plain = kernels.cross_entropy(found, target, smoothing)
    assert smoothed == pytest.approx(expected.item(), rel=1e-5)
    assert plain == pytest.approx(F.cross_entropy(logits, target, reduction="sum").item(), rel=1e-5)
    torch.testing.assert_close(found, slope, rtol=1e-4, atol=2e-6)


def test_cross_entropy_of_far_apart_logits_stays_finite():
    logits = torch.tensor([[3e4, -3e4, 0.0] * 11])
    smoothed, plain = kernels.cross_entropy(logits, torch.tensor([1]), 0.1)
    assert math.isfinite(smoothed)
    assert plain == pytest.approx(6e4, rel=1e-3)


def test_cross_entropy_of_nan_is_nan():
    assert math.isnan(kernels.cross_entropy(torch.full((1, 40), math.nan), torch.tensor([1]), 0.1)[0])
