"""Events that long-running work sends to its caller, besides those of a training."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


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


class FailureNotices:
    """Reports files that cannot be written, once each: no picture, log or card may end a training."""

    def __init__(self, on_event: OnEvent) -> None:
        self.on_event = on_event
        self._reported = set[Path]()

    @contextmanager
    def report(self, path: Path) -> Iterator[None]:
        """Send a notice instead of the exception if the block, which writes `path`, fails."""
        try:
            yield
        except Exception as error:
            if path not in self._reported:
                self._reported.add(path)
                reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
                self.on_event(Notice(f"{path} could not be written ({reason}); everything else goes on.", serious=True))


def progress_callback(on_event: OnEvent, description: str, total: int) -> Callable[[int], None]:
    """Return a function that sends the amount done so far as a `ProgressUpdate`."""
    return lambda done: on_event(ProgressUpdate(description, done, total))
