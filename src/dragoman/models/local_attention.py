"""Restricted self-attention (table 1, last row): every position attends to about r others, whatever the length n.

A pattern defines the allowed positions and regroups the sequence so that each group is a small attention of its own:
time and memory grow with r·n, and no n×n matrix is built, forward or backward. The result is that of full attention
under `pattern.mask`, up to rounding.

- window: the r nearest positions; in a decoder the position itself and the r − 1 before it.
- dilated: as many positions with a dilation that doubles from layer to layer (1, 2, 4, …). By layer and not by head, so
  that all heads are regrouped alike, and a layer skips what the one below has gathered: r positions per layer reach
  about r·2^N positions in N layers.
- sparse: the position's own block of r, and the first positions of the sequence, which are global: all attend to them,
  and in an encoder they attend to all. The blocks of every other layer are shifted by half a block.

Shapes: B batch, H heads, K width of one head, n positions, M groups, C query positions per group, S key positions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from dragoman import native
from dragoman.models.attention import AttentionPattern, attend

_DILATION_CYCLE = 8  # layers until the dilation is 1 again: dilations of 1 … 128
_GLOBAL_POSITIONS = 8  # first positions of a sequence that a sparse pattern makes global
_BLOCKS_PER_CHUNK = 16  # blocks whose gradients are computed together
_MIN_BLOCK, _MAX_BLOCK = 32, 64  # queries per block: fewer waste calls, more waste masked positions


@dataclass(frozen=True)
class WindowPattern:
    """The `size` nearest positions, itself included, `dilation` apart."""

    size: int
    dilation: int = 1

    def reach(self, causal: bool) -> tuple[int, int]:
        """Return the number of allowed positions before and after a position."""
        return (self.size - 1, 0) if causal else (self.size // 2, (self.size - 1) // 2)

    def mask(self, length: int, causal: bool, device: torch.device | None = None) -> Tensor:
        """Return the mask (n n) of the allowed positions."""
        before, after = self.reach(causal)
        positions = torch.arange(length, device=device)
        offsets = positions - positions[:, None]
        return (
            (offsets >= -before * self.dilation) & (offsets <= after * self.dilation) & (offsets % self.dilation == 0)
        )

    def causal_positions(self, position: int) -> Tensor:
        """Return the sorted positions that a decoder position attends to; the last is its own."""
        return torch.arange(position % self.dilation, position + 1, self.dilation)[-self.size :]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
        """Attend to B H n K: positions that are a multiple of the dilation apart form a sequence of their own."""
        length = query.shape[2]
        if length <= 2 * self.size:
            return _attend_masked(self, query, key, value, mask, causal=causal)
        before, after = self.reach(causal)
        valid = _full_mask(query) if mask is None else mask
        query, key, value = (_split_by_dilation(part, self.dilation) for part in (query, key, value))
        valid = _split_by_dilation(valid[:, None, :, None], self.dilation)[:, 0, :, 0]  # BG n/G
        return _merge_by_dilation(_attend_banded(query, key, value, valid, before, after), self.dilation)[:, :, :length]


@dataclass(frozen=True)
class BlockPattern:
    """The position's own block of `size`, and some global positions at the beginning.

    The first block ends after `first_block` positions (a whole block if 0). Global positions belong to no block.
    """

    size: int
    first_block: int = 0
    global_positions: int = _GLOBAL_POSITIONS

    def mask(self, length: int, causal: bool, device: torch.device | None = None) -> Tensor:
        """Return the mask (n n) of the allowed positions."""
        positions = torch.arange(length, device=device)
        block = (positions + self.first_block_padding) // self.size
        allowed = (block == block[:, None]) | (positions < self.global_positions)
        return allowed.tril() if causal else allowed | (positions < self.global_positions)[:, None]

    def causal_positions(self, position: int) -> Tensor:
        """Return the sorted positions that a decoder position attends to; the last is its own."""
        begins = max(
            (position + self.first_block_padding) // self.size * self.size - self.first_block_padding,
            self.global_positions,
        )
        return torch.cat(
            [torch.arange(min(self.global_positions, position + 1)), torch.arange(begins, max(begins, position + 1))]
        )

    @property
    def first_block_padding(self) -> int:
        """The number of positions that the first block lacks."""
        return -self.first_block % self.size

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
        """Attend to B H n K: each block to itself and the global positions, and the global positions to all."""
        length = query.shape[2]
        if length <= 2 * self.size + self.global_positions:
            return _attend_masked(self, query, key, value, mask, causal=causal)
        valid = _full_mask(query) if mask is None else mask
        heads = self.attend_blocks(query, key, value, valid, causal)
        if causal:
            return heads
        everywhere, _ = attend(query[:, :, : self.global_positions], key, value, valid[:, None, None])
        return torch.cat([everywhere, heads[:, :, self.global_positions :]], dim=2)

    def attend_blocks(
        self, query: Tensor, key: Tensor, value: Tensor, valid: Tensor, causal: bool
    ) -> Tensor:  # B H n K
        """Attend from each block to itself and the global positions."""
        batch, _, length, _ = query.shape
        before, after = self.first_block_padding, -(length + self.first_block_padding) % self.size
        groups = (before + length + after) // self.size

        def blocks(part: Tensor) -> Tensor:  # B H n K to BM H C K
            rows = _pad(part.transpose(1, 2), 1, before, after)
            return rows.reshape(batch * groups, self.size, *rows.shape[2:]).transpose(1, 2)

        def with_global(part: Tensor) -> Tensor:  # B H n K to BM H G+C K
            common = part[:, None, :, : self.global_positions].expand(-1, groups, -1, -1, -1).flatten(0, 1)
            return torch.cat([common, blocks(part)], dim=2)

        allowed = self.block_mask(valid, before, after, causal).flatten(0, 1)[:, None]  # BM 1 C G+C
        output, _ = attend(blocks(query), with_global(key), with_global(value), allowed)
        return _concatenate_blocks(output, batch)[:, :, before : before + length]

    def block_mask(self, valid: Tensor, before: int, after: int, causal: bool) -> Tensor:  # B M C G+C
        """Return the mask of each block: the global positions, then its own that are not global."""
        device = valid.device
        positions = torch.arange(-before, valid.shape[1] + after, device=device).view(-1, self.size)  # M C
        common = valid[:, None, None, : self.global_positions].expand(-1, *positions.shape, -1)
        local = _pad(valid, 1, before, after).view(-1, *positions.shape) & (positions >= self.global_positions)
        local = local[:, :, None].expand(-1, -1, self.size, -1)
        if causal:
            common = common & (torch.arange(self.global_positions, device=device) <= positions[..., None])
            local = local & torch.ones(self.size, self.size, dtype=torch.bool, device=device).tril()
        return torch.cat([common, local], dim=-1)


PATTERNS: dict[str, Callable[[int, int], AttentionPattern | None]] = {  # by number of positions and layer index
    "full": lambda _size, _layer: None,
    "window": lambda size, _layer: WindowPattern(size),
    "dilated": lambda size, layer: WindowPattern(size, dilation=2 ** (layer % _DILATION_CYCLE)),
    "sparse": lambda size, layer: BlockPattern(size, first_block=layer % 2 * (size // 2)),
}


def _attend_masked(
    pattern: AttentionPattern, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool
) -> Tensor:  # B H n K
    """Attend under the pattern's mask: the fastest way for short sequences."""
    allowed = pattern.mask(query.shape[2], causal, query.device)[None, None]
    return attend(query, key, value, allowed if mask is None else allowed & mask[:, None, None])[0]


def _attend_banded(query: Tensor, key: Tensor, value: Tensor, valid: Tensor, before: int, after: int) -> Tensor:
    """Attend from each position of B H n K to so many before and after it that are valid (B n).

    The sequences are concatenated and split into blocks. The C positions of a block attend to the block and its
    surroundings, a view without a copy; positions of another sequence are masked.
    """
    batch, _, length, _ = query.shape
    before, after = min(before, length - 1), min(after, length - 1)  # a large dilation leaves only short sequences
    block = min(max((before + after + 1) // 2, _MIN_BLOCK), _MAX_BLOCK, length)
    around, padding, groups = before + after, -length % block, -(-length // block)
    query_blocks = _pad(query.transpose(1, 2), 1, 0, padding)  # B n H K
    query_blocks = query_blocks.reshape(batch * groups, block, *query_blocks.shape[2:]).transpose(1, 2)  # BM H C K
    offset = torch.arange(block + around, device=query.device)
    positions = torch.arange(groups, device=query.device)[:, None] * block + offset - before  # M S
    inside = ((positions >= 0) & (positions < length)).repeat(batch, 1)
    is_valid = _pad(_pad(valid, 1, 0, padding).flatten(), 0, before, after).unfold(0, block + around, block)  # BM S
    distance = offset - torch.arange(block, device=query.device)[:, None]  # C S
    allowed = (inside & is_valid)[:, None] & (distance >= 0) & (distance <= around)  # BM C S
    output = _attend_band_blocks(query_blocks, key, value, allowed[:, None], before, after)  # BM H C K
    return _concatenate_blocks(output, batch)[:, :, :length]


def _attend_band_blocks(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, before: int, after: int) -> Tensor:
    """Attend from blocks (BM H C K) to their positions in sequences (B H n K) and so many before and after."""
    block, key_length = mask.shape[2:]
    if native.can_attend(query, key[:, :, :key_length], value[:, :, :key_length], mask):
        rows = native.make_rows_contiguous(query.float())
        output: Tensor = _BandedAttention.apply(rows, key.float(), value.float(), mask, before, after)  # type: ignore[no-untyped-call]
        return output.to(query.dtype)
    key, value = (_SplitBlocks.apply(part, block, before, after) for part in (key, value))  # type: ignore[no-untyped-call]
    return attend(query, key, value, mask)[0]


class _BandedAttention(Function):
    """`attend` and `_SplitBlocks` in one, for the native kernel; the backward pass takes a few blocks at a time.

    The gradients of all blocks with their surroundings at once would need several times the sequence's memory.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, before: int, after: int
    ) -> Tensor:  # BM H C K
        block = query.shape[2]
        ctx.cut = key.shape, value.shape, before
        key, value = (_split_blocks(part, block, before, after) for part in (key, value))
        out, log_sums = native.attend_forward(query, key, value, mask, keep_sums=any(ctx.needs_input_grad))
        ctx.save_for_backward(query, key, value, mask, out, log_sums)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        query, key = ctx.saved_tensors[:2]
        query_gradient, block = torch.empty_like(query), query.shape[2]
        rows = [_zero_blocks(part, block) for part in (key, ctx.saved_tensors[2])]
        for first in range(0, len(query), _BLOCKS_PER_CHUNK):
            chunk = slice(first, first + _BLOCKS_PER_CHUNK)
            query_gradient[chunk], *gradients = native.attend_backward(
                *(part[chunk] for part in (*ctx.saved_tensors, *upstream))
            )
            for row, blocks in zip(rows, gradients, strict=True):
                _accumulate_blocks(row[first:], blocks.transpose(1, 2))
        key_shape, value_shape, before = ctx.cut
        key_row, value_row = rows
        return (
            query_gradient,
            _merge_blocks(key_row, key_shape, before),
            _merge_blocks(value_row, value_shape, before),
            *[None] * 3,
        )


class _SplitBlocks(Function):
    """`_split_blocks` with a backward pass that adds whole blocks; that of `unfold` adds single elements."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, block: int, before: int, after: int) -> Tensor:
        ctx.cut = part.shape, block, before
        return _split_blocks(part, block, before, after)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        shape, block, before = ctx.cut
        row = _zero_blocks(upstream[0], block)
        _accumulate_blocks(row, upstream[0].transpose(1, 2))
        return _merge_blocks(row, shape, before), None, None, None


def _split_blocks(part: Tensor, block: int, before: int, after: int) -> Tensor:
    """Split B H n K into blocks with so many positions before and after each (BM H S K): a view of one copy."""
    batch, heads, length, width = part.shape
    total = batch * -(-length // block) * block
    row = part.new_zeros(before + total + after, heads, width)
    row[before : before + total].view(batch, -1, heads, width)[:, :length] = part.transpose(1, 2)
    return row.unfold(0, before + block + after, block).transpose(2, 3)


def _zero_blocks(blocks: Tensor, block: int) -> Tensor:
    """Return zeros (M+ C H K) for the sum of the gradients of blocks with their surroundings (BM H S K)."""
    groups, heads, key_length, width = blocks.shape
    return blocks.new_zeros(groups + -(-key_length // block) - 1, block, heads, width)


def _accumulate_blocks(row: Tensor, gradients: Tensor) -> None:
    """Add the gradients of some blocks with their surroundings (BM S H K) to the row of all blocks (M+ C H K)."""
    block, groups = row.shape[1], len(gradients)
    for number, first in enumerate(range(0, gradients.shape[1], block)):
        piece = gradients[:, first : first + block]
        row[number : number + groups, : piece.shape[1]] += piece


def _merge_blocks(row: Tensor, shape: torch.Size, before: int) -> Tensor:
    """Merge a row of blocks (M+ C H K) into sequences (B H n K)."""
    batch, heads, length, width = shape
    total = batch * -(-length // row.shape[1]) * row.shape[1]
    whole_row = row.flatten(0, 1)[before : before + total]
    return whole_row.view(batch, -1, heads, width)[:, :length].transpose(1, 2)


def _split_by_dilation(part: Tensor, dilation: int) -> Tensor:
    """Regroup B H n K by position modulo the dilation: BG H n/G K."""
    if dilation == 1:
        return part
    longer = _pad(part, 2, 0, -part.shape[2] % dilation)
    batch, heads, length, width = longer.shape
    return longer.view(batch, heads, length // dilation, dilation, width).permute(0, 3, 1, 2, 4).flatten(0, 1)


def _merge_by_dilation(part: Tensor, dilation: int) -> Tensor:
    """Undo `_split_by_dilation`: BG H n/G K to B H n K."""
    if dilation == 1:
        return part
    groups, heads, length, width = part.shape
    return part.reshape(groups // dilation, dilation, heads, length, width).permute(0, 2, 3, 1, 4).flatten(2, 3)


def _concatenate_blocks(blocks: Tensor, batch: int) -> Tensor:
    """Concatenate the blocks of each sequence: BM H C K to B H n K."""
    return blocks.transpose(1, 2).reshape(batch, -1, blocks.shape[1], blocks.shape[3]).transpose(1, 2)


def _pad(part: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Pad an axis with zeros at both ends."""
    if not before and not after:
        return part
    return F.pad(part, (0, 0) * (part.dim() - 1 - axis) + (before, after))


def _full_mask(query: Tensor) -> Tensor:
    """Return a mask (B n) of ones for sequences B H n K."""
    return torch.ones(query.shape[0], query.shape[2], dtype=torch.bool, device=query.device)
