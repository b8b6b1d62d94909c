"""What a trained model consists of: its parameters, and the running statistics that batch normalisation keeps."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from dragoman.models.transducer import Transducer


def named_weights(model: Transducer) -> dict[str, Tensor]:
    """Return by name all that makes a model what it is; what two parts share, once."""
    return {**dict(model.named_parameters()), **running_statistics(model)}


def running_statistics(model: Transducer) -> dict[str, Tensor]:
    """Return by name what a model counts while it is trained: its buffers, but for those it makes anew when built."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def clone_tensors(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return tensors as they are now."""
    return [tensor.clone() for tensor in tensors]


@torch.no_grad()
def restore_tensors(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Give tensors the values that they had."""
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


_RENAMED = {  # parts of the names of weights in files of version 0.1.0
    "around_attention": "attention_residual",
    "around_cross_attention": "cross_attention_residual",
    "around_feed_forward": "feed_forward_residual",
    "backward": "right_to_left",
    "compare": "score_function",
    "first": "bridge",
    "guide": "next_word",
    "look": "cross_attention",
    "onward": "left_to_right",
    "place": "location",
    "squeeze": "pooling",
}


def current_name(name: str) -> str:
    """Return the present name of a weight that a file of an older version names otherwise."""
    return ".".join(_RENAMED.get(part, part) for part in name.split("."))
