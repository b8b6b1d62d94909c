"""The weights of a model: its parameters, and the running statistics of batch normalisation."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dragoman.models.transducer import Transducer


def named_weights(model: Transducer) -> dict[str, Tensor]:
    """Return all weights by name; shared parameters once."""
    return {**dict(model.named_parameters()), **running_statistics(model)}


def weights_without_values(build: Callable[[], Transducer]) -> dict[str, Tensor]:
    """Return the weights that a new model would have, with names, shapes and types but without memory for values."""
    with torch.device("meta"), _NoInitialisation():
        return named_weights(build())


class _NoInitialisation(TorchFunctionMode):
    """Leaves out what only sets the values of tensors; for tensors without values PyTorch would compile it."""

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__
        if name.endswith("_") and not name.endswith("__") and name != "requires_grad_":
            return next(iter([*args, *(kwargs or {}).values()]))  # the tensor itself
        return function(*args, **(kwargs or {}))


def running_statistics(model: Transducer) -> dict[str, Tensor]:
    """Return the saved buffers by name, without those that are computed when the model is built."""
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in saved}


def clone_tensors(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return copies of tensors."""
    return [tensor.clone() for tensor in tensors]


@torch.no_grad()
def restore_tensors(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copy values into tensors."""
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
    """Return the present name of a weight, given its name in a file of version 0.1.0 or later."""
    return ".".join(_RENAMED.get(part, part) for part in name.split("."))
