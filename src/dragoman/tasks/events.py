"""Events that long-running work sends to its caller, besides those of a training."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressUpdate:
    """Work that takes a while has advanced."""

    description: str
    done: int
    total: int | None = None


@dataclass(frozen=True)
class Notice:
    """A message to the user."""

    text: str
    serious: bool = False


OnEvent = Callable[[ProgressUpdate | Notice], None]


def progress_callback(on_event: OnEvent, description: str, total: int) -> Callable[[int], None]:
    """Return a function that sends the amount done so far as a `ProgressUpdate`."""
    return lambda done: on_event(ProgressUpdate(description, done, total))
