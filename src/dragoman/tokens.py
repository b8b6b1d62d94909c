"""The reserved token ids, shared by tokenizers, data and models."""

from typing import Any

PAD = 0  # fills the shorter sentences of a batch; never looked at, never produced
UNKNOWN = 1  # stands for what the vocabulary cannot spell
START = 2  # opens every prefix
END = 3  # closes every source and every target

RESERVED_TOKENS = 4


def token_mask(ids: Any) -> Any:
    """Return where an array of ids (NumPy or PyTorch) holds a token and not padding."""
    return ids != PAD
