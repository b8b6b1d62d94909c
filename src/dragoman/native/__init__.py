"""Compiled C loops for operations that PyTorch has no single kernel for; `setup.py` compiles them with the package.

PyTorch computes large matrix products at the processor's speed. Attention over a sentence of twenty words, however, is
a thousand tiny products, and dropout or the gradient of a softmax reads the same memory five times. Each function here
does one of these in a single pass, in the caller's thread, without the GIL. All of them are optional: in a package that
was built without a C compiler, or with DRAGOMAN_KERNELS=off, the callers use PyTorch, with the same dropout masks.
`dragoman.kernels` chooses the library for the processor and loads it.

There is one entry point per use; other packages import nothing else of this folder:

- `native.attend`, `native.dropout`, `native.cross_entropy` … (this module): PyTorch functions with gradients, used by
  the models and the loss. `native.can_attend` and `native.is_supported` tell whether they accept some tensors.
- `native.model.compile_model`: a Transformer whose encoder and decoder step are one C call each, in float32 or int8.
- `native.search.native_beam_search`: the beam search of decoding/search.py in C, for many sentences at once.
"""

from dragoman.native.functions import (
    attend,
    attend_backward,
    attend_cached,
    attend_forward,
    can_attend,
    can_attend_cached,
    cross_entropy,
    dropout,
    dropout_mask,
    dropout_scale,
    is_available,
    is_convertible,
    is_supported,
    make_rows_contiguous,
    top_log_probabilities,
)

__all__ = [
    "attend",
    "attend_backward",
    "attend_cached",
    "attend_forward",
    "can_attend",
    "can_attend_cached",
    "cross_entropy",
    "dropout",
    "dropout_mask",
    "dropout_scale",
    "is_available",
    "is_convertible",
    "is_supported",
    "make_rows_contiguous",
    "top_log_probabilities",
]
