"""What keeps a search from preferring short output: a sum of log-probabilities falls with every token."""

from typing import TypeVar

from torch import Tensor

Count = TypeVar("Count", float, Tensor)


def length_penalty(produced: Count, alpha: float) -> Count:
    """Return ((5 + n) / 6)^α for n produced tokens, END included (section 6.1; Wu et al. 2016, equation 14)."""
    penalty: Count = ((5 + produced) / 6) ** alpha
    return penalty
