"""The reserved token ids, shared by tokenizers, data and models."""

from typing import Any

PAD = 0  # padding: masked, and never produced
UNKNOWN = 1  # what the vocabulary cannot represent
START = 2  # the first token of every prefix
END = 3  # the last token of every source and target

RESERVED_TOKENS = 4


def token_mask(ids: Any) -> Any:
    """Return where an array of ids (NumPy or PyTorch) holds a token and not padding."""
    return ids != PAD
