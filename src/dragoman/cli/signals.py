"""Handle SIGINT and SIGTERM: the first signal requests a stop after the current step, the second exits at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from dragoman.cli.progress import print_stderr
from dragoman.training.events import StopRequest


@contextmanager
def stop_on_signals(message: str = "Stopping after this step, then saving") -> Iterator[StopRequest]:
    """Yield a StopRequest that SIGINT and SIGTERM set."""
    stop = StopRequest()

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.request()
        with suppress(RuntimeError):  # the signal came in the middle of writing to the same stream
            print_stderr(f"{message}; press Ctrl-C again to exit immediately.", "yellow")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
