"""Restricted self-attention (table 1, last row): every place looks at about r others, whatever the length n.

A pattern says where looking is allowed, and attends there by regrouping the places so that each group is a small
attention of its own: time and memory grow with r·n, and no n×n matrix is made, on the way forward or back. What comes
out is full attention under `pattern.mask`, to rounding.

- window: the r nearest places, itself among them; in a decoder itself and the r − 1 before it.
- dilated: as many places, with a gap between them that doubles from layer to layer (1, 2, 4, …). By layer and not by
  head, so that all heads are regrouped alike, and so that what a layer skipped its predecessor has already gathered:
  r places a layer reach about r·2^N places in N layers.
- sparse: its own block of r places, and the first places of the sequence, which all look at and which (in an encoder)
  look at all. Every other layer's blocks are shifted by half a block: blocks that never moved would never meet.

Shapes: B batch, H heads, K width of one head, n places, M groups, C places looking in a group, S places looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from dragoman.kernels import functions as kernels
from dragoman.model.attention import Pattern, attend

CYCLE = 8  # layers after which a dilated window begins with its neighbours again: gaps of 1 … 128
GLOBAL = 8  # places at the beginning of a sequence that a sparse pattern lets everyone see
AT_ONCE = 16  # blocks whose gradients are in memory at the same time
SMALLEST_BLOCK, LARGEST_BLOCK = 32, 64  # places that look together: fewer waste calls, more waste what is masked


def restricted_attend(
    query: Tensor,  # B H n K
    key: Tensor,  # B H n K
    value: Tensor,  # B H n K
    pattern: Pattern,
    mask: Tensor | None = None,  # B n, False where padding stands
    causal: bool = False,
) -> Tensor:  # B H n K
    """Equation 1 where the pattern allows it; a row that may look nowhere gets zeros."""
    return pattern.attend(query, key, value, mask, causal=causal)


@dataclass(frozen=True)
class Window:
    """The nearest places: so many, counting the place itself, each so far from the next."""

    places: int
    gap: int = 1

    def reach(self, causal: bool) -> tuple[int, int]:
        """Return how many places before and how many after its own a place looks at."""
        return (self.places - 1, 0) if causal else (self.places // 2, (self.places - 1) // 2)

    def mask(self, length: int, causal: bool, device: torch.device | None = None) -> Tensor:
        """Return n n: where each place may look."""
        before, after = self.reach(causal)
        place = torch.arange(length, device=device)
        away = place - place[:, None]
        return (away >= -before * self.gap) & (away <= after * self.gap) & (away % self.gap == 0)

    def back(self, place: int) -> Tensor:
        """Return the places, in their order, that a place of a decoder looks at; the last is its own."""
        return torch.arange(place % self.gap, place + 1, self.gap)[-self.places :]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
        """Attend to B H n K: places that are a multiple of the gap apart are a sequence of their own."""
        length = query.shape[2]
        if length <= 2 * self.places:
            return masked(self, query, key, value, mask, causal=causal)
        before, after = self.reach(causal)
        valid = whole(query) if mask is None else mask
        query, key, value = (strided(part, self.gap) for part in (query, key, value))
        valid = strided(valid[:, None, :, None], self.gap)[:, 0, :, 0]  # BG n/G
        return together(banded(query, key, value, valid, before, after), self.gap)[:, :, :length]


@dataclass(frozen=True)
class Blocks:
    """Its own block of so many places, and a few places at the beginning that all share.

    The first block ends after `first` places (a whole block, if 0). Shared places count as shared, not as of a block.
    """

    places: int
    first: int = 0
    shared: int = GLOBAL

    def mask(self, length: int, causal: bool, device: torch.device | None = None) -> Tensor:
        """Return n n: where each place may look."""
        place = torch.arange(length, device=device)
        block = (place + self.lead) // self.places
        allowed = (block == block[:, None]) | (place < self.shared)
        return allowed.tril() if causal else allowed | (place < self.shared)[:, None]

    def back(self, place: int) -> Tensor:
        """Return the places, in their order, that a place of a decoder looks at; the last is its own."""
        begins = max((place + self.lead) // self.places * self.places - self.lead, self.shared)
        return torch.cat([torch.arange(min(self.shared, place + 1)), torch.arange(begins, max(begins, place + 1))])

    @property
    def lead(self) -> int:
        """Return how many places the first block lacks."""
        return -self.first % self.places

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
        """Attend to B H n K: each block by itself with the shared places before it, and the shared places to all."""
        length = query.shape[2]
        if length <= 2 * self.places + self.shared:
            return masked(self, query, key, value, mask, causal=causal)
        valid = whole(query) if mask is None else mask
        heads = self.by_block(query, key, value, valid, causal)
        if causal:
            return heads
        everywhere, _ = attend(query[:, :, : self.shared], key, value, valid[:, None, None])
        return torch.cat([everywhere, heads[:, :, self.shared :]], dim=2)

    def by_block(self, query: Tensor, key: Tensor, value: Tensor, valid: Tensor, causal: bool) -> Tensor:  # B H n K
        """Let each block look at itself and at the shared places."""
        batch, _, length, _ = query.shape
        before, after = self.lead, -(length + self.lead) % self.places
        groups = (before + length + after) // self.places

        def blocks(part: Tensor) -> Tensor:  # B H n K to BM H C K
            rows = padded(part.transpose(1, 2), 1, before, after)
            return rows.reshape(batch * groups, self.places, *rows.shape[2:]).transpose(1, 2)

        def preceded(part: Tensor) -> Tensor:  # B H n K to BM H G+C K
            common = part[:, None, :, : self.shared].expand(-1, groups, -1, -1, -1).flatten(0, 1)
            return torch.cat([common, blocks(part)], dim=2)

        allowed = self.allowed(valid, before, after, causal).flatten(0, 1)[:, None]  # BM 1 C G+C
        seen, _ = attend(blocks(query), preceded(key), preceded(value), allowed)
        return in_rows(seen, batch)[:, :, before : before + length]

    def allowed(self, valid: Tensor, before: int, after: int, causal: bool) -> Tensor:  # B M C G+C
        """Say where each block may look: at the shared places, then at its own, unless those are shared ones."""
        device = valid.device
        place = torch.arange(-before, valid.shape[1] + after, device=device).view(-1, self.places)  # M C
        common = valid[:, None, None, : self.shared].expand(-1, *place.shape, -1)
        own = padded(valid, 1, before, after).view(-1, *place.shape) & (place >= self.shared)
        own = own[:, :, None].expand(-1, -1, self.places, -1)
        if causal:
            common = common & (torch.arange(self.shared, device=device) <= place[..., None])
            own = own & torch.ones(self.places, self.places, dtype=torch.bool, device=device).tril()
        return torch.cat([common, own], dim=-1)


PATTERNS: dict[str, Callable[[int, int], Pattern | None]] = {  # of so many places, in this layer, counted from 0
    "full": lambda _places, _layer: None,
    "window": lambda places, _layer: Window(places),
    "dilated": lambda places, layer: Window(places, gap=2 ** (layer % CYCLE)),
    "sparse": lambda places, layer: Blocks(places, first=layer % 2 * (places // 2)),
}


def masked(
    pattern: Pattern, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool
) -> Tensor:  # B H n K
    """Attend in full under the pattern's mask: the cheapest way for sequences hardly longer than it reaches."""
    allowed = pattern.mask(query.shape[2], causal, query.device)[None, None]
    return attend(query, key, value, allowed if mask is None else allowed & mask[:, None, None])[0]


def banded(query: Tensor, key: Tensor, value: Tensor, valid: Tensor, before: int, after: int) -> Tensor:
    """Let each place of B H n K look at so many before and after it, of those that are valid (B n).

    The sequences are laid one behind another and cut into blocks. The C places of a block look at their own and at
    those around them, all in one view without a copy; what belongs to another sequence is masked.
    """
    batch, _, length, _ = query.shape
    before, after = min(before, length - 1), min(after, length - 1)  # a wide gap leaves only short sequences
    block = min(max((before + after + 1) // 2, SMALLEST_BLOCK), LARGEST_BLOCK, length)
    around, more, groups = before + after, -length % block, -(-length // block)
    looking = padded(query.transpose(1, 2), 1, 0, more)  # B n H K
    looking = looking.reshape(batch * groups, block, *looking.shape[2:]).transpose(1, 2)  # BM H C K
    offset = torch.arange(block + around, device=query.device)
    place = torch.arange(groups, device=query.device)[:, None] * block + offset - before  # M S
    inside = ((place >= 0) & (place < length)).repeat(batch, 1)
    real = padded(padded(valid, 1, 0, more).flatten(), 0, before, after).unfold(0, block + around, block)  # BM S
    reached = offset - torch.arange(block, device=query.device)[:, None]  # C S
    allowed = (inside & real)[:, None] & (reached >= 0) & (reached <= around)  # BM C S
    seen = attend_around(looking, key, value, allowed[:, None], before, after)  # BM H C K
    return in_rows(seen, batch)[:, :, :length]


def attend_around(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, before: int, after: int) -> Tensor:
    """Let blocks (BM H C K) look at sequences (B H n K) where they stand, and so many places before and after."""
    block, looked_at = mask.shape[2:]
    if kernels.can_attend(query, key[:, :, :looked_at], value[:, :, :looked_at], mask):
        looking = kernels.dense(query.float())
        seen: Tensor = Banded.apply(looking, key.float(), value.float(), mask, before, after)  # type: ignore[no-untyped-call]
        return seen.to(query.dtype)
    key, value = (Around.apply(part, block, before, after) for part in (key, value))  # type: ignore[no-untyped-call]
    return attend(query, key, value, mask)[0]


class Banded(Function):
    """`attend` and `Around` in one, for the compiled kernel: the way back goes through a few blocks at a time.

    Gradients of all blocks at once, each with what it sees around it, would need several times the sequence's memory.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, before: int, after: int
    ) -> Tensor:  # BM H C K
        """Attend, and leave what the way back needs."""
        block = query.shape[2]
        ctx.cut = key.shape, value.shape, before
        key, value = (cut(part, block, before, after) for part in (key, value))
        out, log_sums = kernels.attended(query, key, value, mask, keep_sums=any(ctx.needs_input_grad))
        ctx.save_for_backward(query, key, value, mask, out, log_sums)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Add up what the blocks say, some at a time."""
        query, key = ctx.saved_tensors[:2]
        query_gradient, block = torch.empty_like(query), query.shape[2]
        rows = [rows_for(part, block) for part in (key, ctx.saved_tensors[2])]
        for first in range(0, len(query), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            query_gradient[some], *told = kernels.gradients_of(
                *(part[some] for part in (*ctx.saved_tensors, *upstream))
            )
            for row, blocks in zip(rows, told, strict=True):
                add_up(row[first:], blocks.transpose(1, 2))
        key_shape, value_shape, before = ctx.cut
        key_row, value_row = rows
        return query_gradient, uncut(key_row, key_shape, before), uncut(value_row, value_shape, before), *[None] * 3


class Around(Function):
    """`cut` with a way back that adds up whole blocks; that of `unfold` goes number by number."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, block: int, before: int, after: int) -> Tensor:
        """Cut."""
        ctx.cut = part.shape, block, before
        return cut(part, block, before, after)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        """Add up what each place was told by all the blocks that saw it."""
        shape, block, before = ctx.cut
        row = rows_for(upstream[0], block)
        add_up(row, upstream[0].transpose(1, 2))
        return uncut(row, shape, before), None, None, None


def cut(part: Tensor, block: int, before: int, after: int) -> Tensor:
    """Cut B H n K into blocks with so many places before and after each (BM H S K): a view of a single copy."""
    batch, heads, length, width = part.shape
    total = batch * -(-length // block) * block
    row = part.new_zeros(before + total + after, heads, width)
    row[before : before + total].view(batch, -1, heads, width)[:, :length] = part.transpose(1, 2)
    return row.unfold(0, before + block + after, block).transpose(2, 3)


def rows_for(blocks: Tensor, block: int) -> Tensor:
    """Return zeros (M+ C H K) for the sum of all that is told to blocks and what is around them (BM H S K)."""
    groups, heads, seen, width = blocks.shape
    return blocks.new_zeros(groups + -(-seen // block) - 1, block, heads, width)


def add_up(row: Tensor, told: Tensor) -> None:
    """Add what was told to some blocks and their surroundings (BM S H K) to the row of all blocks (M+ C H K)."""
    block, groups = row.shape[1], len(told)
    for number, first in enumerate(range(0, told.shape[1], block)):
        piece = told[:, first : first + block]
        row[number : number + groups, : piece.shape[1]] += piece


def uncut(row: Tensor, shape: torch.Size, before: int) -> Tensor:
    """Turn a row of blocks (M+ C H K) back into sequences (B H n K)."""
    batch, heads, length, width = shape
    total = batch * -(-length // row.shape[1]) * row.shape[1]
    whole_row = row.flatten(0, 1)[before : before + total]
    return whole_row.view(batch, -1, heads, width)[:, :length].transpose(1, 2)


def strided(part: Tensor, gap: int) -> Tensor:
    """Regroup B H n K by the remainder of the place: BG H n/G K."""
    if gap == 1:
        return part
    longer = padded(part, 2, 0, -part.shape[2] % gap)
    batch, heads, length, width = longer.shape
    return longer.view(batch, heads, length // gap, gap, width).permute(0, 3, 1, 2, 4).flatten(0, 1)


def together(part: Tensor, gap: int) -> Tensor:
    """Undo `strided`: BG H n/G K to B H n K."""
    if gap == 1:
        return part
    groups, heads, length, width = part.shape
    return part.reshape(groups // gap, gap, heads, length, width).permute(0, 2, 3, 1, 4).flatten(2, 3)


def in_rows(seen: Tensor, batch: int) -> Tensor:
    """Lay the blocks of a sentence one behind another: BM H C K to B H n K."""
    return seen.transpose(1, 2).reshape(batch, -1, seen.shape[1], seen.shape[3]).transpose(1, 2)


def padded(part: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Return a tensor with so many zeros more at both ends of an axis."""
    if not before and not after:
        return part
    return F.pad(part, (0, 0) * (part.dim() - 1 - axis) + (before, after))


def whole(query: Tensor) -> Tensor:
    """Return the mask (B n) of sequences B H n K without padding."""
    return torch.ones(query.shape[0], query.shape[2], dtype=torch.bool, device=query.device)
