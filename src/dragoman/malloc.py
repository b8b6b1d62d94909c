"""Memory that is freed and asked for again at every step should stay with the process."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # from glibc's malloc.h


def keep_freed_memory() -> None:
    """Tell glibc not to hand freed memory back to the system: the next step wants it again, page by zeroed page."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, -1)
        mallopt(_M_ARENA_MAX, 1)  # a thread's own arena is small, and gives large pieces back after all
