"""Restricted self-attention: what full attention gives under the same mask, without its n×n matrix."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from dragoman.models.attention import attend, unfused_attention
from dragoman.models.local_attention import PATTERNS, BlockPattern, WindowPattern

windows = st.builds(WindowPattern, st.integers(1, 24), st.sampled_from([1, 2, 3, 4, 8]))
blocks = st.integers(1, 24).flatmap(
    lambda places: st.builds(BlockPattern, st.just(places), st.integers(0, places - 1), st.integers(0, 10))
)
patterns = windows | blocks
each = pytest.mark.parametrize(
    "pattern",
    [WindowPattern(8), WindowPattern(8, dilation=4), BlockPattern(8), BlockPattern(8, first_block=3)],
    ids=repr,
)
both_ways = pytest.mark.parametrize("causal", [False, True])


def random_parts(batch, heads, length, *, width=4, value_width=3, dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, length, heads, size) for size in (width, width, value_width)]
    made = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    return [part.transpose(1, 2).requires_grad_() for part in made]


def random_padding(batch, length, seed):
    """Return a mask (B n) of sentences of any length, one of which may be empty, with a hole here and there."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, length + 1, (batch, 1), generator=generator)
    return (torch.arange(length) < lengths) & (torch.rand(batch, length, generator=generator) > 0.1)


def under_the_mask(parts, pattern, mask, causal):
    """Return what full attention gives where both masks allow it."""
    allowed = pattern.mask(parts[0].shape[2], causal)[None, None]
    return attend(*parts, allowed if mask is None else allowed & mask[:, None, None], record=True)[0]


def assert_alike(found, expected, parts, tolerance=1e-12):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)
    upstream = torch.randn(found.shape, generator=torch.Generator().manual_seed(3), dtype=found.dtype)
    gradients = (torch.autograd.grad(out, parts, upstream, materialize_grads=True) for out in (found, expected))
    torch.testing.assert_close(*gradients, atol=10 * tolerance, rtol=0)


@given(
    patterns,
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 160),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_a_pattern_is_full_attention_under_its_mask_in_value_and_gradient(
    pattern, batch, heads, length, causal, pads, seed
):
    parts = random_parts(batch, heads, length, seed=seed)
    mask = random_padding(batch, length, seed) if pads else None

    found = pattern.attend(*parts, mask, causal=causal)

    assert_alike(found, under_the_mask(parts, pattern, mask, causal), parts)


@each
@both_ways
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 3e-6), (torch.bfloat16, 3e-2)])
def test_the_compiled_kernel_and_half_precision_give_the_same(pattern, causal, dtype, tolerance):
    parts = random_parts(2, 2, 200, width=16, value_width=16, dtype=dtype)
    mask = random_padding(2, 200, seed=5)

    found = pattern.attend(*parts, mask, causal=causal)

    assert_alike(found, under_the_mask(parts, pattern, mask, causal), parts, tolerance)


@each
@both_ways
def test_the_explicit_block_gives_the_same(pattern, causal):
    parts = random_parts(2, 2, 150)
    with unfused_attention():
        found = pattern.attend(*parts, None, causal=causal)
    assert_alike(found, under_the_mask(parts, pattern, None, causal), parts)


@each
def test_it_does_not_matter_how_the_numbers_lie_in_memory(pattern):
    parts = random_parts(2, 2, 150, width=16, value_width=16, dtype=torch.float32)
    turned = [part.mT.contiguous().mT for part in parts]
    expected = pattern.attend(*parts, None, causal=False)
    torch.testing.assert_close(pattern.attend(*turned, None, causal=False), expected, atol=1e-6, rtol=0)


@both_ways
def test_several_threads_give_what_one_gives_to_the_last_bit(causal):
    parts = random_parts(1, 4, 2000, width=32, value_width=32, dtype=torch.float32)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            seen = WindowPattern(128).attend(*parts, None, causal=causal)
            found.append([seen, *torch.autograd.grad(seen.square().sum(), parts)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


class Largest(TorchDispatchMode):
    """Keeps the size of the largest tensor that any operation returned."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = function(*args, **(kwargs or {}))
        for tensor in returned if isinstance(returned, list | tuple) else [returned]:
            self.size = max(self.size, tensor.numel() if isinstance(tensor, torch.Tensor) else 0)
        return returned


@each
@both_ways
@pytest.mark.parametrize("dtype, width", [(torch.float32, 16), (torch.float64, 4)])
def test_no_matrix_of_all_places_by_all_places_is_ever_made(pattern, causal, dtype, width):
    length = 2000
    parts = random_parts(1, 1, length, width=width, value_width=width, dtype=dtype)
    with Largest() as largest:
        seen = pattern.attend(*parts, None, causal=causal)
        torch.autograd.grad(seen.sum(), parts)
    assert largest.size <= length * 100  # a block of 32 sees itself and 7 more; in full it would be 2 000 each


@both_ways
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 3e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize(
    "pattern, length", [(WindowPattern(128, dilation=128), 300), (WindowPattern(2, dilation=128), 100)]
)
def test_the_short_sequences_that_a_wide_gap_leaves_are_not_filled_up_to_whole_blocks(
    pattern, length, dtype, tolerance, causal
):
    """128 sequences of three places were 8 192 places, and looked at 1.5 million."""
    parts = random_parts(1, 1, length, width=16, value_width=16, dtype=dtype)
    with Largest() as largest:
        seen = pattern.attend(*parts, None, causal=causal)
        torch.autograd.grad(seen.sum(), parts, retain_graph=True)
    assert largest.size <= length * 100
    assert_alike(seen, under_the_mask(parts, pattern, None, causal), parts, tolerance)


def test_the_masks_are_those_drawn_by_hand():
    def drawn(pattern, length, causal):
        return ["".join(".#"[allowed] for allowed in row) for row in pattern.mask(length, causal).int().tolist()]

    assert drawn(WindowPattern(3), 5, False) == ["##...", "###..", ".###.", "..###", "...##"]
    assert drawn(WindowPattern(2), 4, False) == ["#...", "##..", ".##.", "..##"]
    assert drawn(WindowPattern(3), 5, True) == ["#....", "##...", "###..", ".###.", "..###"]
    assert drawn(WindowPattern(2, dilation=2), 5, True) == ["#....", ".#...", "#.#..", ".#.#.", "..#.#"]
    assert drawn(BlockPattern(2, global_positions=1), 5, False) == ["#####", "##...", "#.##.", "#.##.", "#...#"]
    assert drawn(BlockPattern(2, first_block=1, global_positions=1), 5, True) == [
        "#....",
        "##...",
        "###..",
        "#..#.",
        "#..##",
    ]


@given(patterns, st.integers(0, 100))
@settings(max_examples=100, deadline=None)
def test_a_step_looks_back_where_the_mask_of_the_whole_sequence_does(pattern, place):
    assert pattern.causal_positions(place).tolist() == pattern.mask(place + 1, True)[place].nonzero().flatten().tolist()


def test_the_gap_doubles_and_the_blocks_move_from_layer_to_layer():
    assert [PATTERNS["dilated"](16, layer).dilation for layer in (0, 1, 2, 7, 8)] == [1, 2, 4, 128, 1]
    assert [PATTERNS["sparse"](16, layer).first_block for layer in (0, 1, 2)] == [0, 8, 0]
    assert PATTERNS["window"](16, 3) == WindowPattern(16)
    assert PATTERNS["full"](16, 3) is None
