"""The length penalty: without it a search prefers short outputs, since every token lowers the log-probability."""

from typing import TypeVar

from torch import Tensor

_NumberOrTensor = TypeVar("_NumberOrTensor", float, Tensor)


def length_penalty(produced: _NumberOrTensor, alpha: float) -> _NumberOrTensor:
    """Return ((5 + n) / 6)^α for n produced tokens, END included (section 6.1; Wu et al. 2016, equation 14)."""
    penalty: _NumberOrTensor = ((5 + produced) / 6) ** alpha
    return penalty
