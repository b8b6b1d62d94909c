"""The ctypes mirrors of the structs in stack.h, linear.h and search.c, and the packing of linear layers."""

from ctypes import POINTER, Structure, c_float, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.native import functions
from dragoman.native.functions import CCacheShape

_PANEL = 32  # outputs whose weights are stored together


class CLinear(Structure):
    """The struct `Linear`: a packed linear layer."""

    _fields_ = (
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("bias", c_void_p),
        ("weights", c_void_p),
        ("bytes", c_void_p),
        ("scales", c_void_p),
        ("offsets", c_void_p),
    )


class CNorm(Structure):
    """The struct `Norm`: a layer norm; null where there is none."""

    _fields_ = (("gain", c_void_p), ("shift", c_void_p))


_LINEAR_FIELDS = ("joint", "self_output", "query", "memory", "cross_output", "inner", "outer")
_NORM_FIELDS = ("self_norm", "cross_norm", "feed_forward_norm")
_POINTER_FIELDS = ("keys", "values", "memory_keys", "memory_values")


class CLayer(Structure):
    """The struct `Layer`: an encoder or decoder layer, its caches and its projected memory."""

    _fields_ = (
        ("kind", c_int64),
        *((name, CLinear) for name in _LINEAR_FIELDS),
        *((name, CNorm) for name in _NORM_FIELDS),
        *((name, c_void_p) for name in _POINTER_FIELDS),
    )


class CStack(Structure):
    """The struct `Stack`: the encoder or the decoder."""

    _fields_ = (
        ("caches", CCacheShape),
        ("sources", c_int64),
        ("layers", c_int64),
        ("norm_first", c_int64),
        ("gelu", c_int64),
        ("embedding", c_void_p),
        ("rotary", c_void_p),
        ("scale", c_float),
        ("epsilon", c_float),
        ("layer", POINTER(CLayer)),
        ("final_norm", CNorm),
        ("output", CLinear),
    )


class CSearchOptions(Structure):
    """The struct `Options` of search.c."""

    _fields_ = (
        *((name, c_int64) for name in ("sentences", "active", "beam", "n_best")),
        *((name, c_void_p) for name in ("max_lengths", "penalties", "positions", "mask", "ids", "starts", "lists")),
    )


class CSearchResults(Structure):
    """The struct `Results` of search.c: where the hypotheses are written."""

    _fields_ = tuple((name, c_void_p) for name in ("tokens", "lengths", "scores", "sums", "truncated"))


@cache
def stack_library() -> Any:
    """Return the library with the functions of stack.c and search.c declared, too."""
    library = functions.native_library()
    library.encode.argtypes = [POINTER(CStack), c_int64, c_int64, *[c_void_p] * 4]
    library.project_memory.argtypes = [POINTER(CStack), c_void_p]
    library.decode_step.argtypes = [POINTER(CStack), *[c_void_p] * 5]
    library.start_search.argtypes = [POINTER(CStack), POINTER(CSearchOptions), POINTER(CSearchResults)]
    library.continue_search.argtypes = [c_void_p, c_int64]
    library.end_search.argtypes = [c_void_p]
    library.start_search.restype, library.continue_search.restype, library.end_search.restype = c_void_p, c_int64, None
    return library


@dataclass(frozen=True)
class LinearWeights:
    """The weights of a linear layer, one output per row, in float32 or in int8 with one scale per output."""

    weights: Tensor  # outputs × inputs
    bias: Tensor | None
    scales: Tensor | None  # of int8: the value of one step

    @classmethod
    def from_parameters(cls, weight: Tensor, bias: Tensor | None, is_int8: bool) -> "LinearWeights":
        """Return the weights of a linear layer, quantised if they are to be int8."""
        weight, bias = weight.detach(), None if bias is None else bias.detach()
        if not is_int8:
            return cls(weight, bias, None)
        scales = weight.abs().amax(dim=1).clamp(min=1e-30) / 127
        return cls((weight / scales[:, None]).round().to(torch.int8), bias, scales)

    def select_outputs(self, outputs: Tensor) -> "LinearWeights":
        """Return the weights of some outputs (indices)."""
        return LinearWeights(*(None if part is None else part[outputs] for part in vars(self).values()))  # type: ignore[arg-type]


class PackedLinear:
    """Weights in the panels of linear.c."""

    def __init__(self, rows: LinearWeights) -> None:
        outputs, inputs = rows.weights.shape
        missing = -outputs % _PANEL
        weights = F.pad(rows.weights, (0, 0, 0, missing))  # whole panels
        self.bias = weights.new_zeros(outputs + missing, dtype=torch.float32)
        if rows.bias is not None:
            self.bias[:outputs] = rows.bias
        pointers: dict[str, int] = {"bias": self.bias.data_ptr()}
        if rows.scales is None:
            self.weights = weights.view(-1, _PANEL, inputs).transpose(1, 2).contiguous()
            pointers["weights"] = self.weights.data_ptr()
        else:
            whole = F.pad(weights, (0, -inputs % 4))
            self.weights = whole.view(-1, _PANEL, whole.shape[1] // 4, 4).transpose(1, 2).contiguous()
            self.scales = F.pad(rows.scales, (0, missing), value=1.0)
            self.offsets = 128 * whole.sum(dim=1, dtype=torch.int32)
            pointers |= {name: getattr(self, name).data_ptr() for name in ("scales", "offsets")}
            pointers["bytes"] = self.weights.data_ptr()
        self.linear = CLinear(inputs, outputs, **pointers)


def norm_pointers(norm: nn.Module) -> CNorm:
    """Return the struct of a layer norm."""
    assert isinstance(norm, nn.LayerNorm), f"expected LayerNorm, got {type(norm).__name__}"
    return CNorm(norm.weight.data_ptr(), norm.bias.data_ptr())
