"""Waiting for a condition."""

import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], seconds: float = 120) -> None:
    """Wait until a condition holds; long enough for a busy machine."""
    began_at = time.monotonic()
    while not true():
        assert time.monotonic() - began_at < seconds, f"not so within {seconds} s"
        time.sleep(0.02)
