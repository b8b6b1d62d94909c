"""What a trained model consists of: its parameters, and the running statistics that batch normalisation keeps."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from dragoman.model.transducer import Network


def weights(model: Network) -> dict[str, Tensor]:
    """Return by name all that makes a model what it is; what two parts share, once."""
    return {**dict(model.named_parameters()), **statistics(model)}


def statistics(model: Network) -> dict[str, Tensor]:
    """Return by name what a model counts while it is trained: its buffers, but for those it makes anew when built."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return tensors as they are now."""
    return [tensor.clone() for tensor in tensors]


@torch.no_grad()
def put_back(tensors: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    """Give tensors the values that they had."""
    for tensor, value in zip(tensors, before, strict=True):
        tensor.copy_(value)
