"""From arrays to the source of a model."""

from typing import Any

import numpy.typing as npt
import torch

from dragoman.models.transducer import Source


def to_source(values: npt.NDArray[Any], lengths: npt.NDArray[Any], device: torch.device) -> Source:
    """Return padded token ids (B S), or frames (B S F) with their lengths (B), as a source."""
    tensor = torch.from_numpy(values)
    source = Source.from_ids(tensor) if tensor.dim() == 2 else Source.from_frames(tensor, torch.from_numpy(lengths))
    return source.to(device)
