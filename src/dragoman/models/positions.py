"""Positional encodings (section 3.5). Each kind is called as `positions(first, length)` and returns T D."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dragoman.model_config import PositionsConfig


def sinusoids(length: int, width: int) -> Tensor:
    """Return the table (T D) of section 3.5: sines in the even columns, cosines in the odd ones."""
    if torch.get_default_device().type == "meta":  # only the shape is wanted; see weights_without_values
        return torch.empty(length, width)
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    table = torch.empty(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table.to(torch.get_default_dtype())


class SinusoidalPositions(nn.Module):
    """Sinusoidal positions; the table grows as needed."""

    table: Tensor

    def __init__(self, width: int, length: int = 512) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(length, width), persistent=False)

    def forward(self, first: int, length: int) -> Tensor:
        """Return the vectors (T D) of positions first, first + 1, …"""
        if first + length > len(self.table):
            with torch.inference_mode(False):  # a later training may save the table for its backward pass
                self.table = sinusoids(2 * (first + length), self.table.shape[1]).to(self.table)
        return self.table[first : first + length]


def apply_rotary_embedding(heads: Tensor, table: Tensor) -> Tensor:
    """Rotate pairs of elements of a head (… T K) by angles proportional to the position (RoPE).

    The product of a rotated query and key depends on their distance, not on their positions (Su et al. 2021,
    arXiv 2104.09864). `table` holds the sines and cosines of `sinusoids` (… T K); element i is paired with i + K/2.
    """
    sines, cosines = table[..., 0::2], table[..., 1::2]
    left, right = heads.chunk(2, dim=-1)
    return torch.cat([left * cosines - right * sines, right * cosines + left * sines], dim=-1).to(heads.dtype)


class LearnedPositions(nn.Module):
    """One learned vector per position (table 3, row E), for a fixed number of positions."""

    def __init__(self, width: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, width))
        nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, first: int, length: int) -> Tensor:
        """Return the vectors (T D) of positions first, first + 1, …"""
        assert first + length <= len(self.table), (
            f"position {first + length} exceeds the {len(self.table)} learned positions"
        )
        return self.table[first : first + length]


class NoPositions(nn.Module):
    """No positions: zeros. The encoder sees a bag of tokens; the decoder has its causal mask."""

    zeros: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("zeros", torch.zeros(width), persistent=False)

    def forward(self, _first: int, length: int) -> Tensor:
        """Return zeros (T D)."""
        return self.zeros.new_zeros(length, len(self.zeros))


_POSITIONS: dict[str, Callable[[PositionsConfig], nn.Module]] = {
    "sinusoidal": lambda config: SinusoidalPositions(config.width),
    "learned": lambda config: LearnedPositions(config.width, config.longest),
    "none": lambda config: NoPositions(config.width),
}


def build_positions(config: PositionsConfig) -> nn.Module:
    """Return the positions that a config selects."""
    return _POSITIONS[config.positions](config)
