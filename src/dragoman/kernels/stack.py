"""The structures of stack.c, and linear layers packed as it wants them."""

from ctypes import POINTER, Structure, c_float, c_int64, c_void_p
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.kernels import functions
from dragoman.kernels.functions import Caches

PANEL = 32  # outputs whose weights lie side by side


class Linear(Structure):
    """A packed linear layer."""

    _fields_ = (
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("bias", c_void_p),
        ("weights", c_void_p),
        ("bytes", c_void_p),
        ("scales", c_void_p),
        ("offsets", c_void_p),
    )


class Norm(Structure):
    """A layer norm; empty where there is none."""

    _fields_ = (("gain", c_void_p), ("shift", c_void_p))


LINEARS = ("joint", "own_output", "query", "memory", "cross_output", "inner", "outer")
NORMS = ("around_own", "around_cross", "around_feed_forward")
TENSORS = ("keys", "values", "memory_keys", "memory_values")


class Layer(Structure):
    """A layer of the encoder or of the decoder, with its caches and its part of the memory."""

    _fields_ = (
        *((name, Linear) for name in LINEARS),
        *((name, Norm) for name in NORMS),
        *((name, c_void_p) for name in TENSORS),
    )


class Stack(Structure):
    """All layers of one side."""

    _fields_ = (
        ("caches", Caches),
        ("sources", c_int64),
        ("layers", c_int64),
        ("norm_first", c_int64),
        ("gelu", c_int64),
        ("embedding", c_void_p),
        ("scale", c_float),
        ("epsilon", c_float),
        ("layer", POINTER(Layer)),
        ("last", Norm),
        ("output", Linear),
    )


class Plan(Structure):
    """What is searched for, as search.c wants it."""

    _fields_ = (
        *((name, c_int64) for name in ("sentences", "at_once", "beam", "n_best")),
        *((name, c_void_p) for name in ("longest", "penalties", "positions", "mask")),
    )


class Finished(Structure):
    """Where search.c puts what it has found."""

    _fields_ = tuple((name, c_void_p) for name in ("tokens", "lengths", "scores", "sums", "truncated"))


@cache
def compiled() -> Any:
    """Return the library with the types of the stacks' functions declared too."""
    library = functions.compiled()
    library.encode.argtypes = [POINTER(Stack), *[c_void_p] * 4]
    library.keep_memory.argtypes = [POINTER(Stack), c_void_p]
    library.decode_step.argtypes = [POINTER(Stack), *[c_void_p] * 5]
    library.search_beams.argtypes = [POINTER(Stack), POINTER(Plan), POINTER(Finished)]
    return library


class Packed:
    """A linear layer's weights in panels, in float32 or as bytes with a scale for each output."""

    def __init__(self, weight: Tensor, bias: Tensor | None, in_bytes: bool) -> None:
        self.outputs, inputs = weight.shape
        missing = -self.outputs % PANEL
        weight = F.pad(weight.detach(), (0, 0, 0, missing))  # whole panels
        self.bias = F.pad(torch.zeros(self.outputs) if bias is None else bias.detach(), (0, missing))
        pointers: dict[str, int] = {"bias": self.bias.data_ptr()}
        if in_bytes:
            self.scales = weight.abs().amax(dim=1).clamp(min=1e-30) / 127
            whole = F.pad((weight / self.scales[:, None]).round(), (0, -inputs % 4)).to(torch.int8)
            self.weights = whole.view(-1, PANEL, whole.shape[1] // 4, 4).transpose(1, 2).contiguous()
            self.offsets = 128 * whole.sum(dim=1, dtype=torch.int32)
            pointers |= {name: getattr(self, name).data_ptr() for name in ("scales", "offsets")}
            pointers["bytes"] = self.weights.data_ptr()
        else:
            self.weights = weight.view(-1, PANEL, inputs).transpose(1, 2).contiguous()
            pointers["weights"] = self.weights.data_ptr()
        self.bytes = self.weights.nbytes
        self.linear = Linear(inputs, self.outputs, **pointers)


def norm_of(norm: nn.LayerNorm) -> Norm:
    """Point to a norm's parameters."""
    return Norm(norm.weight.data_ptr(), norm.bias.data_ptr())
