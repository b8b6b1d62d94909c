"""Waiting for what a server will do in a moment."""

import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], seconds: float = 20) -> float:
    """Wait until something is so, and return how long that took."""
    began_at = time.monotonic()
    while not true():
        assert time.monotonic() - began_at < seconds, f"not so within {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - began_at
