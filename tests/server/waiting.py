"""Waiting for what a server will do in a moment."""

import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], seconds: float = 120) -> None:
    """Wait until something is so; long enough for a machine that has much else to do."""
    began_at = time.monotonic()
    while not true():
        assert time.monotonic() - began_at < seconds, f"not so within {seconds} s"
        time.sleep(0.02)
