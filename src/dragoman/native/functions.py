"""The compiled functions as PyTorch functions with gradients.

Shapes: B batch, S key positions, T query positions, H heads, K width of one head, N rows, V vocabulary.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, Structure, byref, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from dragoman.kernels import load_library

LANES = 16  # floats per vector; the width of a head must be a multiple
_MIN_THREAD_WORK = 1 << 24  # multiplications per thread: about a millisecond, ten times the cost of waking it
_64_BITS = (1 << 64) - 1
_MAX_POSITIONS = 256  # beyond, the weights of one head exceed a core's cache and PyTorch's kernel is as fast


class _CAttentionShape(Structure):
    """The struct `Shape` of attention.h: sizes and strides of one attention."""

    _fields_ = (
        ("sizes", c_int64 * 5),  # B T S H K
        ("query", c_int64 * 3),  # strides of B, the position, H
        ("key", c_int64 * 3),
        ("value", c_int64 * 3),
        ("mask", c_int64 * 2),  # strides of B and T
    )


class CCacheShape(Structure):
    """The struct `Caches` of attention.h: sizes of the key and value caches of a beam."""

    _fields_ = (("sizes", c_int64 * 7),)  # B W C T L H K


@cache
def native_library() -> Any:
    """Return the library with the types of its functions declared; None if it is not available."""
    functions = load_library()
    if functions is not None:
        shape = POINTER(_CAttentionShape)
        functions.attend_forward.argtypes = [shape, *[c_void_p] * 6]
        functions.attend_backward.argtypes = [shape, *[c_void_p] * 7, shape, *[c_void_p] * 3]
        functions.drop.argtypes = [c_void_p] * 3 + [c_int64, c_uint64, c_int32, c_float]
        functions.drop.restype = None
        functions.cross_entropy.argtypes = [c_void_p, c_void_p, c_int64, c_int64, c_float, c_void_p]
        functions.cross_entropy.restype = None
        functions.attend_cached.argtypes = [POINTER(CCacheShape), *[c_void_p] * 5]
        functions.top_tokens.argtypes = [c_void_p, *[c_int64] * 4, c_void_p, c_void_p]
        functions.top_tokens.restype = None
    return functions


def is_available() -> bool:
    """Return whether the compiled library could be loaded."""
    return native_library() is not None


def is_supported(*tensors: Tensor) -> bool:
    """Return whether the functions accept these tensors: float32 on the CPU."""
    return all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors) and native_library() is not None


def is_convertible(tensor: Tensor) -> bool:
    """Return whether the functions accept a tensor, if necessary after conversion from bfloat16."""
    fits = tensor.dtype in (torch.float32, torch.bfloat16) and tensor.device.type == "cpu"
    return fits and native_library() is not None


def can_attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Return whether `attend` accepts these: B H T K, twice B H S K, and a mask that all heads share."""
    width, longest = query.shape[-1], max(query.shape[2], key.shape[2])
    fits = width % LANES == 0 and value.shape[-1] == width and 0 < longest <= _MAX_POSITIONS
    shared = mask is None or (mask.dtype == torch.bool and mask.dim() == 4 and mask.shape[1] == 1)
    return fits and shared and all(map(is_convertible, (query, key, value)))


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Equation 1: return B H T K, stored as B T H K. bfloat16 inputs are converted to float32."""
    parts = (make_rows_contiguous(tensor.float()) for tensor in (query, key, value))
    output: Tensor = _AttendFunction.apply(*parts, mask)  # type: ignore[no-untyped-call]
    return output.to(query.dtype)


def make_rows_contiguous(tensor: Tensor) -> Tensor:
    """Return a tensor whose last dimension is contiguous."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


class _AttendFunction(Function):
    """Attention that does not save its weights: the backward pass recomputes them from the log-sums."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        out, log_sums = attend_forward(query, key, value, mask, keep_sums=any(ctx.needs_input_grad))
        ctx.save_for_backward(query, key, value, mask, out, log_sums)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, mask, out, log_sums = ctx.saved_tensors
        return *attend_backward(query, key, value, mask, out, log_sums, upstream[0]), None


def attend_forward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, keep_sums: bool
) -> tuple[Tensor, Tensor | None]:  # B H T K, and the log-sums of the softmax, B H T
    """Return the output and, if kept, the log-sums that the backward pass needs."""
    batch, heads, query_length, width = query.shape
    mask = _expand_mask(mask, query, key)
    out = query.new_empty(batch, query_length, heads, width).transpose(1, 2)
    log_sums = query.new_empty(batch, heads, query_length) if keep_sums else None
    parts = query, key, value, mask, out, log_sums
    _split_over_threads(lambda rows: _call_attend_forward(*(_slice_batch(part, rows) for part in parts)), query, key)
    return out, log_sums


def attend_backward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, out: Tensor, log_sums: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value from the results of `attend_forward`."""
    incoming = upstream.transpose(1, 2).contiguous()  # B T H K
    gradients = _empty_gradient(query), _empty_gradient(key), _empty_gradient(value)
    parts = query, key, value, _expand_mask(mask, query, key), out, log_sums, incoming, *gradients
    _split_over_threads(lambda rows: _call_attend_backward(*(_slice_batch(part, rows) for part in parts)), query, key)
    return gradients


def _expand_mask(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    if mask is None:
        return None
    mask = mask.expand(len(query), 1, query.shape[2], key.shape[2])
    return mask if mask.stride(3) == 1 else mask.contiguous()


def _call_attend_forward(
    query: Any, key: Any, value: Any, mask: Tensor | None, out: Tensor | None, log_sums: Tensor | None
) -> int:
    pointers = map(_data_pointer, (query, key, value, mask, out, log_sums))
    return int(native_library().attend_forward(byref(_attention_shape(query, key, value, mask)), *pointers))


def _call_attend_backward(query: Any, key: Any, value: Any, mask: Tensor | None, *rest: Any) -> int:
    gradients = rest[-3:]  # to write
    pointers = map(_data_pointer, (query, key, value, mask, *rest[:-3]))
    shape = _attention_shape(query, key, value, mask)
    gradient_shape = _attention_shape(gradients[0], gradients[1], gradients[2], None)
    return int(
        native_library().attend_backward(byref(shape), *pointers, byref(gradient_shape), *map(_data_pointer, gradients))
    )


def _slice_batch(part: Tensor | None, rows: slice) -> Tensor | None:
    return None if part is None else part[rows]


def _split_over_threads(work: Callable[[slice], int], query: Tensor, key: Tensor) -> None:
    """Run `work` on slices of the batch, in as many threads as PyTorch may use if there is enough work."""
    batch, products = len(query), query.numel() * key.shape[2]
    parts = max(1, min(torch.get_num_threads(), batch, products // _MIN_THREAD_WORK))
    share = -(-batch // parts)
    slices = [slice(first, first + share) for first in range(0, batch, share)]
    for failed in _thread_pool().map(work, slices) if parts > 1 else map(work, slices):
        raise_if_failed(failed)


@cache
def _thread_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "attend")


def _empty_gradient(tensor: Tensor) -> Tensor:
    """Return an empty B H T K, stored as B T H K, the layout of a projection's gradient."""
    batch, heads, length, width = tensor.shape
    return tensor.new_empty(batch, length, heads, width).transpose(1, 2)


def _attention_shape(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> _CAttentionShape:
    batch, heads, query_length, width = query.shape
    strides = [(tensor.stride(0), tensor.stride(2), tensor.stride(1)) for tensor in (query, key, value)]
    mask_strides = (0, 0) if mask is None else (mask.stride(0), mask.stride(2))
    return _CAttentionShape((batch, query_length, key.shape[2], heads, width), *strides, mask_strides)


def _data_pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def raise_if_failed(failed: int) -> None:
    """Raise MemoryError if a native function reports failure."""
    if failed:
        raise MemoryError("not enough memory for a native function")


def dropout(x: Tensor, residual: Tensor | None, dropped: int, seed: int) -> Tensor:
    """Zero `dropped` of 256 elements of x at random, scale the others up and add `residual` if it is given."""
    output: Tensor = _DropoutFunction.apply(
        x.contiguous(), None if residual is None else residual.contiguous(), dropped, seed
    )  # type: ignore[no-untyped-call]
    return output


def dropout_mask(count: int, dropped: int, seed: int) -> Tensor:
    """Return which of `count` elements `dropout` keeps, without the library; the numbers are those of dropout.c."""
    mixed = (seed + 0x9E3779B97F4A7C15) & _64_BITS
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _64_BITS
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _64_BITS
    mixed ^= mixed >> 31
    first, key = np.uint32(mixed & 0xFFFFFFFF), np.uint32(mixed >> 32)
    groups = -(-count // (4 * LANES))
    bits = np.arange(groups * LANES, dtype=np.uint32)
    bits += first
    bits *= np.uint32(0x9E3779B1)
    bits += key
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits ^= bits >> np.uint32(shift)
        bits *= np.uint32(factor)
    bits ^= bits >> np.uint32(16)
    random_bytes = bits.astype("<u4", copy=False).view(np.uint8).reshape(groups, LANES, 4).transpose(0, 2, 1)
    return torch.from_numpy((random_bytes >= dropped).reshape(-1)[:count])


def dropout_scale(dropped: int) -> float:
    """Return the factor that keeps the mean when `dropped` of 256 elements are zeroed."""
    return 256 / max(1, 256 - dropped)


class _DropoutFunction(Function):
    """Dropout whose mask is a function of the seed; the backward pass computes it again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, dropped: int, seed: int) -> Tensor:
        ctx.arguments = (x.numel(), seed, dropped, dropout_scale(dropped))
        out = torch.empty_like(x)
        native_library().drop(out.data_ptr(), x.data_ptr(), _data_pointer(residual), *ctx.arguments)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        incoming = upstream[0].contiguous()
        out = torch.empty_like(incoming)
        native_library().drop(out.data_ptr(), incoming.data_ptr(), None, *ctx.arguments)
        return out, incoming if ctx.needs_input_grad[1] else None, None, None


def cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> tuple[float, float]:
    """Replace logits (N V) by the gradient of their smoothed loss; return the smoothed and the plain loss."""
    smallest, largest = (int(extreme) for extreme in target.aminmax()) if len(target) else (0, 0)
    if smallest < 0 or largest >= logits.shape[1]:  # C would read and write beyond the row
        raise IndexError(f"target ids are from {smallest} to {largest}, but there are {logits.shape[1]} logits")
    losses = (c_double * 2)()
    native_library().cross_entropy(
        logits.data_ptr(), target.data_ptr(), *logits.shape, smoothing, ctypes.cast(losses, c_void_p)
    )
    return losses[0], losses[1]


def can_attend_cached(joint: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Return whether `attend_cached` accepts these: float32, keys as wide as values, in whole vectors."""
    return is_supported(joint, keys) and keys.shape == values.shape and keys.shape[-1] % LANES == 0


def attend_cached(joint: Tensor, keys: Tensor, values: Tensor, ancestors: Tensor) -> Tensor:
    """Write one more key and value of each hypothesis to the caches and attend to its prefix; return B W (H K).

    `joint` (B W 3HK) holds query, key and value, `keys` and `values` (B C L H K) those of earlier positions.
    """
    (batch, beam, length), (_, rows, room, heads, width) = ancestors.shape, keys.shape
    out = joint.new_empty(batch, beam, heads * width)
    caches = CCacheShape((batch, beam, rows, length, room, heads, width))
    raise_if_failed(
        native_library().attend_cached(byref(caches), *map(_data_pointer, (joint, keys, values, ancestors, out)))
    )
    return out


def top_log_probabilities(logits: Tensor, count: int, first_allowed: int) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the `count` most probable tokens of each row (… V) and these tokens, sorted.

    Of the tokens below `first_allowed` only 1 (unknown) may be chosen.
    """
    rows = logits.contiguous()
    best = logits.new_empty(*logits.shape[:-1], count)
    tokens = torch.empty_like(best, dtype=torch.int64)
    width = logits.shape[-1]
    native_library().top_tokens(
        rows.data_ptr(), rows.numel() // width, width, count, first_allowed, best.data_ptr(), tokens.data_ptr()
    )
    return best, tokens
