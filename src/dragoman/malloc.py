"""Settings of glibc's malloc for training, which frees and allocates the same memory at every step."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # from glibc's malloc.h


def keep_freed_memory() -> None:
    """Let glibc keep freed memory: returned to the system, it would be zeroed page by page at the next step."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, -1)
        mallopt(_M_ARENA_MAX, 1)  # an arena per thread would be small and return large blocks after all
