"""The compiled functions as torch functions with gradients.

Shapes: B batch, S positions looked at, T positions looking, H heads, K width of one head, N rows, V vocabulary.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, Structure, byref, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from dragoman.native.build import load_library

LANES = 16  # floats in a vector: a head's width must be a multiple
_MIN_THREAD_WORK = 1 << 24  # multiplications: about a millisecond, ten times what it takes to wake one
_MAX_POSITIONS = (
    256  # positions; beyond, the weights of one head outgrow a core's cache and torch's own kernel is as good
)


class CAttentionShape(Structure):
    """The sizes and strides of one attention, as attention.c wants them."""

    _fields_ = (
        ("sizes", c_int64 * 5),  # B T S H K
        ("query", c_int64 * 3),  # strides of B, the position, H
        ("key", c_int64 * 3),
        ("value", c_int64 * 3),
        ("mask", c_int64 * 2),  # strides of B and T
    )


class CCacheShape(Structure):
    """The sizes of the keys and values of many prefixes, as prefixes.c wants them."""

    _fields_ = (("sizes", c_int64 * 7),)  # B W C T L H K


@cache
def native_library() -> Any:
    """Return the library with the types of its functions declared."""
    functions = load_library()
    if functions is not None:
        shape = POINTER(CAttentionShape)
        functions.attend_forward.argtypes = [shape, *[c_void_p] * 6]
        functions.attend_backward.argtypes = [shape, *[c_void_p] * 7, shape, *[c_void_p] * 3]
        functions.drop.argtypes = [c_void_p] * 3 + [c_int64, c_uint64, c_int32, c_float]
        functions.drop.restype = None
        functions.cross_entropy.argtypes = [c_void_p, c_void_p, c_int64, c_int64, c_float, c_void_p]
        functions.cross_entropy.restype = None
        functions.attend_prefixes.argtypes = [POINTER(CCacheShape), *[c_void_p] * 5]
        functions.choose_best.argtypes = [c_void_p, *[c_int64] * 4, c_void_p, c_void_p]
        functions.choose_best.restype = None
    return functions


def is_supported(*tensors: Tensor) -> bool:
    """Say whether these functions can work on these tensors: single precision, in the processor's own memory."""
    return all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors) and native_library() is not None


def is_convertible(tensor: Tensor) -> bool:
    """Say whether these functions can work on a tensor, if need be in single precision instead of half."""
    fits = tensor.dtype in (torch.float32, torch.bfloat16) and tensor.device.type == "cpu"
    return fits and native_library() is not None


def can_attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Say whether `attend` takes these (B H T K, B H S K twice, and a mask that is the same for all heads)."""
    width, longest = query.shape[-1], max(query.shape[2], key.shape[2])
    fits = width % LANES == 0 and value.shape[-1] == width and 0 < longest <= _MAX_POSITIONS
    shared = mask is None or (mask.dtype == torch.bool and mask.dim() == 4 and mask.shape[1] == 1)
    return fits and shared and all(map(is_convertible, (query, key, value)))


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Equation 1 for heads side by side: return B H T K, which lies in memory as B T H K.

    What comes in bfloat16 is looked at in float32.
    """
    parts = (make_rows_contiguous(tensor.float()) for tensor in (query, key, value))
    seen: Tensor = _AttendFunction.apply(*parts, mask)  # type: ignore[no-untyped-call]
    return seen.to(query.dtype)


def make_rows_contiguous(tensor: Tensor) -> Tensor:
    """Return a tensor whose last dimension lies in one piece."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


class _AttendFunction(Function):
    """Attention that keeps no weights: the way back computes them again from their sums."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attend, and leave what the way back needs."""
        out, log_sums = attend_forward(query, key, value, mask, keep_sums=any(ctx.needs_input_grad))
        ctx.save_for_backward(query, key, value, mask, out, log_sums)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of query, key and value."""
        query, key, value, mask, out, log_sums = ctx.saved_tensors
        return *attend_backward(query, key, value, mask, out, log_sums, upstream[0]), None


def attend_forward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, keep_sums: bool
) -> tuple[Tensor, Tensor | None]:  # B H T K, and the logarithms of the weights' sums, B H T
    """Attend; the sums are what the way back needs."""
    batch, heads, looking, width = query.shape
    mask = _expand_mask(mask, query, key)
    out = query.new_empty(batch, looking, heads, width).transpose(1, 2)
    log_sums = query.new_empty(batch, heads, looking) if keep_sums else None
    parts = query, key, value, mask, out, log_sums
    _split_over_threads(lambda some: _call_attend_forward(*(_slice_batch(part, some) for part in parts)), query, key)
    return out, log_sums


def attend_backward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, out: Tensor, log_sums: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value, from what `attended` returned."""
    incoming = upstream.transpose(1, 2).contiguous()  # B T H K
    gradients = _empty_gradient(query), _empty_gradient(key), _empty_gradient(value)
    parts = query, key, value, _expand_mask(mask, query, key), out, log_sums, incoming, *gradients
    _split_over_threads(lambda some: _call_attend_backward(*(_slice_batch(part, some) for part in parts)), query, key)
    return gradients


def _expand_mask(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """Return a mask as B 1 T S whose last dimension lies in one piece."""
    if mask is None:
        return None
    mask = mask.expand(len(query), 1, query.shape[2], key.shape[2])
    return mask if mask.stride(3) == 1 else mask.contiguous()


def _call_attend_forward(
    query: Any, key: Any, value: Any, mask: Tensor | None, out: Tensor | None, log_sums: Tensor | None
) -> int:
    """Attend into `out`."""
    given = map(_data_pointer, (query, key, value, mask, out, log_sums))
    return int(native_library().attend_forward(byref(_attention_shape(query, key, value, mask)), *given))


def _call_attend_backward(query: Any, key: Any, value: Any, mask: Tensor | None, *rest: Any) -> int:
    """Write the gradients, which are the last three."""
    gradients = rest[-3:]
    given = map(_data_pointer, (query, key, value, mask, *rest[:-3]))
    shape, to = (
        _attention_shape(query, key, value, mask),
        _attention_shape(gradients[0], gradients[1], gradients[2], None),
    )
    return int(native_library().attend_backward(byref(shape), *given, byref(to), *map(_data_pointer, gradients)))


def _slice_batch(part: Tensor | None, some: slice) -> Tensor | None:
    """Return some sentences of a tensor."""
    return None if part is None else part[some]


def _split_over_threads(work: Callable[[slice], int], query: Tensor, key: Tensor) -> None:
    """Let as many threads as torch may use each attend for some of the B sentences, if it is worth waking them."""
    batch, products = len(query), query.numel() * key.shape[2]
    parts = max(1, min(torch.get_num_threads(), batch, products // _MIN_THREAD_WORK))
    share = -(-batch // parts)
    slices = [slice(first, first + share) for first in range(0, batch, share)]
    for failed in _thread_pool().map(work, slices) if parts > 1 else map(work, slices):
        raise_if_failed(failed)


@cache
def _thread_pool() -> ThreadPoolExecutor:
    """Return the threads that `share_out` wakes."""
    return ThreadPoolExecutor(os.cpu_count(), "attend")


def _empty_gradient(tensor: Tensor) -> Tensor:
    """Return B H T K without content that lies in memory as B T H K: what a projection's gradient is read as."""
    batch, heads, length, width = tensor.shape
    return tensor.new_empty(batch, length, heads, width).transpose(1, 2)


def _attention_shape(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> CAttentionShape:
    """Describe tensors B H T K and a mask B 1 T S."""
    batch, heads, looking, width = query.shape
    strides = [(tensor.stride(0), tensor.stride(2), tensor.stride(1)) for tensor in (query, key, value)]
    over = (0, 0) if mask is None else (mask.stride(0), mask.stride(2))
    return CAttentionShape((batch, looking, key.shape[2], heads, width), *strides, over)


def _data_pointer(tensor: Tensor | None) -> int | None:
    """Return where a tensor's numbers begin."""
    return None if tensor is None else tensor.data_ptr()


def raise_if_failed(failed: int) -> None:
    """Turn a function's refusal into an exception."""
    if failed:
        raise MemoryError("not enough memory for one head of attention")


def dropout(x: Tensor, residual: Tensor | None, dropped: int, seed: int) -> Tensor:
    """Zero `dropped` in 256 elements of x, scale up the rest, and add them to `around`, if there is one."""
    kept: Tensor = _DropoutFunction.apply(
        x.contiguous(), None if residual is None else residual.contiguous(), dropped, seed
    )  # type: ignore[no-untyped-call]
    return kept


def dropout_scale(dropped: int) -> float:
    """Return the factor that makes up for `dropped` in 256 elements; where nothing is left it does not matter."""
    return 256 / max(1, 256 - dropped)


class _DropoutFunction(Function):
    """Dropout whose mask is a function of the seed: the way back makes it again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, dropped: int, seed: int) -> Tensor:
        """Drop out, and remember only how."""
        ctx.how = (x.numel(), seed, dropped, dropout_scale(dropped))
        out = torch.empty_like(x)
        native_library().drop(out.data_ptr(), x.data_ptr(), _data_pointer(residual), *ctx.how)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        """Drop the same elements out of the gradient; what went around gets it whole."""
        incoming = upstream[0].contiguous()
        out = torch.empty_like(incoming)
        native_library().drop(out.data_ptr(), incoming.data_ptr(), None, *ctx.how)
        return out, incoming if ctx.needs_input_grad[1] else None, None, None


def cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> tuple[float, float]:
    """Turn logits (N V) into the gradient of their smoothed loss in place; return the loss, smoothed and plain."""
    losses = (c_double * 2)()
    native_library().cross_entropy(
        logits.data_ptr(), target.data_ptr(), *logits.shape, smoothing, ctypes.cast(losses, c_void_p)
    )
    return losses[0], losses[1]


def can_attend_cached(joint: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Say whether `attend_prefixes` takes these: keys as wide as values, in whole vectors of single precision."""
    return is_supported(joint, keys) and keys.shape == values.shape and keys.shape[-1] % LANES == 0


def attend_cached(joint: Tensor, keys: Tensor, values: Tensor, ancestors: Tensor) -> Tensor:
    """Note one more key and value of each hypothesis in the caches and attend to its prefix; return B W (H K).

    `joint` (B W 3HK) holds query, key and value, `keys` and `values` (B C L H K) those of the positions before.
    """
    (batch, beam, length), (_, places, room, heads, width) = ancestors.shape, keys.shape
    out = joint.new_empty(batch, beam, heads * width)
    caches = CCacheShape((batch, beam, places, length, room, heads, width))
    raise_if_failed(
        native_library().attend_prefixes(byref(caches), *map(_data_pointer, (joint, keys, values, ancestors, out)))
    )
    return out


def top_log_probabilities(logits: Tensor, count: int, first_allowed: int) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the `count` likeliest tokens of each row (… X) and the tokens, the best first.

    Of those below `first_allowed` only 1 may be chosen.
    """
    rows = logits.contiguous()
    best = logits.new_empty(*logits.shape[:-1], count)
    places = torch.empty_like(best, dtype=torch.int64)
    width = logits.shape[-1]
    native_library().choose_best(
        rows.data_ptr(), rows.numel() // width, width, count, first_allowed, best.data_ptr(), places.data_ptr()
    )
    return best, places
