"""A uvicorn server that leaves when it is asked to; how, its kinds say."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


class StoppableServer(uvicorn.Server):
    """uvicorn, but SIGTERM and Ctrl-C only call `stop`, and the process ends with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and Ctrl-C."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        yield

    def stop(self) -> None:
        """Leave at once, without hearing anyone out."""
        self.should_exit = self.force_exit = True
