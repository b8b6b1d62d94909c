"""Memory that is freed and asked for again at every step should stay with the process."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # from glibc's malloc.h


def keep_freed_memory() -> None:
    """Tell glibc not to hand freed memory back to the system: the next step wants it again, page by zeroed page."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, -1)
        mallopt(M_ARENA_MAX, 1)  # a thread's own arena is small, and gives large pieces back after all
