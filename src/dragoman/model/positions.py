"""Where a token stands (section 3.5). All kinds are asked the same way: `positions(first, length)` gives T D.

The kinds that look at the tokens, too, are asked by `of` and `beside`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dragoman.recipe import Model


def sinusoids(length: int, width: int) -> Tensor:
    """Section 3.5's two equations: sines in the even columns, cosines in the odd ones (T D)."""
    place = torch.arange(length, dtype=torch.float64)[:, None]
    speed = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    table = torch.empty(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(place * speed)
    table[:, 1::2] = torch.cos(place * speed)
    return table.to(torch.get_default_dtype())


class Positions(nn.Module):
    """What is the same for all kinds whose vectors depend on the place alone."""

    def of(self, tokens: Tensor) -> Tensor:
        """Return the vectors (T D, or B T D) of whole rows of tokens (B T)."""
        found: Tensor = self(0, tokens.shape[1])
        return found

    def beside(self, place: int, counts: Tensor) -> Tensor:  # noqa: ARG002
        """Return the vectors (1 D, or B W D) of one place, with so many marked tokens up to it (B W)."""
        found: Tensor = self(place, 1)
        return found

    def marked(self, token: Tensor) -> Tensor:
        """Return 1 for every token that is counted, else 0."""
        return torch.zeros_like(token)


class SinusoidalPositions(Positions):
    """Fixed waves, for as many places as are asked for."""

    table: Tensor

    def __init__(self, width: int, length: int = 512) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(length, width), persistent=False)

    def forward(self, first: int, length: int) -> Tensor:
        """Return the vectors (T D) of places first, first + 1, …"""
        if first + length > len(self.table):
            grown = sinusoids(2 * (first + length), self.table.shape[1])
            self.table = grown.to(self.table)
        return self.table[first : first + length]


class LearnedPositions(Positions):
    """One learned vector a place (table 3, row E); there are only as many places as were learned."""

    def __init__(self, width: int, longest: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(longest, width))
        nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, first: int, length: int) -> Tensor:
        """Return the vectors (T D) of places first, first + 1, …"""
        assert first + length <= len(self.table), f"place {first + length} is beyond the {len(self.table)} learned ones"
        return self.table[first : first + length]


class NoPositions(Positions):
    """Zeros: the model sees a bag of tokens, but for what the causal mask tells the decoder."""

    nothing: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("nothing", torch.zeros(width), persistent=False)

    def forward(self, _first: int, length: int) -> Tensor:
        """Return the vectors (T D) of as many places, all alike."""
        return self.nothing.new_zeros(length, len(self.nothing))


class CountedPositions(Positions):
    """Two waves side by side: half of the columns tell the place, the others how many marked tokens there are up to it.

    Where the marked tokens of two languages belong together one by one, as words and their tags do, both sides count
    alike, and the decoder need not learn to count in order to find its next word.
    """

    marks: Tensor

    def __init__(self, width: int, vocabulary: int, before: int) -> None:
        super().__init__()
        self.places, self.counts = SinusoidalPositions(width // 2), SinusoidalPositions(width // 2)
        self.before = before  # the count before the first token
        self.register_buffer("marks", torch.zeros(vocabulary, dtype=torch.long), persistent=False)

    def of(self, tokens: Tensor) -> Tensor:
        """Return the vectors (B T D) of whole rows of tokens (B T)."""
        counts = (self.before + self.marks[tokens].cumsum(dim=1)).clamp(min=0)  # B T
        places = self.places(0, tokens.shape[1]).expand(*tokens.shape, -1)
        return torch.cat([places, self.at_counts(counts)], dim=-1)

    def beside(self, place: int, counts: Tensor) -> Tensor:
        """Return the vectors (B W D) of one place, with so many marked tokens up to it (B W)."""
        return torch.cat([self.places(place, 1).expand(*counts.shape, -1), self.at_counts(counts)], dim=-1)

    def at_counts(self, counts: Tensor) -> Tensor:
        """Return the waves of counts (… D/2)."""
        table: Tensor = self.counts(0, int(counts.max()) + 1)
        return table[counts]

    def marked(self, token: Tensor) -> Tensor:
        """Return 1 for every token that is counted, else 0."""
        return self.marks[token]


POSITIONS: dict[str, Callable[[Model, int, int], Positions]] = {
    "sinusoidal": lambda how, _vocabulary, _before: SinusoidalPositions(how.width),
    "learned": lambda how, _vocabulary, _before: LearnedPositions(how.width, how.longest),
    "none": lambda how, _vocabulary, _before: NoPositions(how.width),
    "counted": lambda how, vocabulary, before: CountedPositions(how.width, vocabulary, before),
}


def positions_of(how: Model, vocabulary: int = 0, before: int = 0) -> Positions:
    """Build the positions that a recipe asks for; those that count need a vocabulary and where to begin."""
    return POSITIONS[how.positions](how, vocabulary, before)
