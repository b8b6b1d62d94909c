"""Inspect checkpoints on request, in a child process that runs only while it is needed."""

import asyncio
from pathlib import Path
from typing import Any

from dragoman.processes import AsyncChildProcess
from dragoman.server.problems import Problem, server_busy

_ANSWER_SECONDS = 120.0  # includes the start of the process, which has the lowest priority
_IDLE_SECONDS = 300.0  # after which the process is stopped
_MAX_WAITING = 4  # concurrent requests


class Inspector:
    """Sends requests to the worker process, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.child: AsyncChildProcess | None = None
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.idle_timer: asyncio.TimerHandle | None = None

    async def request(self, **options: Any) -> dict[str, Any]:
        """Return the answer of the worker; raise a Problem if it is an error."""
        if self.waiting >= _MAX_WAITING:
            raise server_busy(5)
        self.waiting += 1
        try:
            async with self.lock:
                response = await self._exchange(options)
        finally:
            self.waiting -= 1
        if "error" in response:
            raise Problem(422, "refused", str(response["error"]))
        return response

    async def _exchange(self, options: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer; stop the worker if it is too slow or has ended."""
        if self.idle_timer:
            self.idle_timer.cancel()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                child = await self._running_child()
                child.send(options)
                response: dict[str, Any] = await child.receive()
        except (TimeoutError, OSError, EOFError, ValueError):
            self.stop()
            raise Problem(503, "no_inspection", "The inspection did not finish; try again.", retry_after=5) from None
        except asyncio.CancelledError:  # the pending answer must not be taken for that of the next request
            self.stop()
            raise
        self.idle_timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self.stop)
        return response

    async def _running_child(self) -> AsyncChildProcess:
        if self.child is None or self.child.process.returncode is not None:
            self.child = await AsyncChildProcess.start("dragoman.watch.inspector_worker", self.folder, threads=1)
        return self.child

    def stop(self) -> None:
        """Stop the worker process."""
        child, self.child = self.child, None
        if child:
            child.kill()
