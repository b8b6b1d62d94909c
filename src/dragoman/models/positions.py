"""Where a token stands (section 3.5). All kinds are asked the same way: `positions(first, length)` gives T D."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dragoman.model_config import PositionsConfig


def sinusoids(length: int, width: int) -> Tensor:
    """Section 3.5's two equations: sines in the even columns, cosines in the odd ones (T D)."""
    place = torch.arange(length, dtype=torch.float64)[:, None]
    speed = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    table = torch.empty(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(place * speed)
    table[:, 1::2] = torch.cos(place * speed)
    return table.to(torch.get_default_dtype())


class SinusoidalPositions(nn.Module):
    """Fixed waves, for as many places as are asked for."""

    table: Tensor

    def __init__(self, width: int, length: int = 512) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(length, width), persistent=False)

    def forward(self, first: int, length: int) -> Tensor:
        """Return the vectors (T D) of places first, first + 1, …"""
        if first + length > len(self.table):
            with torch.inference_mode(False):  # a later training may keep them for its way back
                self.table = sinusoids(2 * (first + length), self.table.shape[1]).to(self.table)
        return self.table[first : first + length]


def apply_rotary_embedding(heads: Tensor, table: Tensor) -> Tensor:
    """Turn each pair of numbers of a head (… T K) by an angle that grows with its place.

    The product of a query and a key, both turned, depends on how far apart they stand, not on where (Su et al. 2021,
    arXiv 2104.09864). The angles' sines and cosines are `sinusoids` (… T K); number i is paired with number i + K/2.
    """
    sines, cosines = table[..., 0::2], table[..., 1::2]
    left, right = heads.chunk(2, dim=-1)
    return torch.cat([left * cosines - right * sines, right * cosines + left * sines], dim=-1).to(heads.dtype)


class LearnedPositions(nn.Module):
    """One learned vector a place (table 3, row E); there are only as many places as were learned."""

    def __init__(self, width: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, width))
        nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, first: int, length: int) -> Tensor:
        """Return the vectors (T D) of places first, first + 1, …"""
        assert first + length <= len(self.table), f"place {first + length} is beyond the {len(self.table)} learned ones"
        return self.table[first : first + length]


class NoPositions(nn.Module):
    """Zeros: the model sees a bag of tokens, but for what the causal mask tells the decoder."""

    zeros: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("zeros", torch.zeros(width), persistent=False)

    def forward(self, _first: int, length: int) -> Tensor:
        """Return the vectors (T D) of as many places, all alike."""
        return self.zeros.new_zeros(length, len(self.zeros))


POSITIONS: dict[str, Callable[[PositionsConfig], nn.Module]] = {
    "sinusoidal": lambda how: SinusoidalPositions(how.width),
    "learned": lambda how: LearnedPositions(how.width, how.longest),
    "none": lambda how: NoPositions(how.width),
}


def build_positions(config: PositionsConfig) -> nn.Module:
    """Build the positions that a recipe asks for."""
    return POSITIONS[config.positions](config)
