"""Looks inside checkpoints on request, by a process of its own that is there only while somebody looks."""

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from dragoman.server.problems import Problem, server_busy

_MAX_ANSWER_BYTES = 64 << 20  # more can only be a fault
_ANSWER_SECONDS = 120.0  # for one look, the start of the process included: it works behind the training
_IDLE_SECONDS = 300.0  # after which its memory is given back
_MAX_WAITING = 4  # looks at a time


class Inspector:
    """Asks the looker, one question after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: asyncio.subprocess.Process | None = None
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.idle_timer: asyncio.TimerHandle | None = None

    async def request(self, **options: Any) -> dict[str, Any]:
        """Return the answer to a question, or raise the problem that it is."""
        if self.waiting >= _MAX_WAITING:
            raise server_busy(5)
        self.waiting += 1
        try:
            async with self.lock:
                said = await self._exchange(options)
        finally:
            self.waiting -= 1
        if "error" in said:
            raise Problem(422, "refused", str(said["error"]))
        return said

    async def _exchange(self, options: dict[str, Any]) -> dict[str, Any]:
        """Send a question and wait for its answer; a looker that is too slow, or dies, makes room for another."""
        if self.idle_timer:
            self.idle_timer.cancel()
        process = await self._running_process()
        assert process.stdin and process.stdout, "both are pipes"
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                process.stdin.write(json.dumps(options).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
            said: dict[str, Any] = json.loads(line)
        except (TimeoutError, OSError, ValueError):
            self.stop()
            raise Problem(503, "no_look", "The look was not finished; try again.", retry_after=5) from None
        except asyncio.CancelledError:  # nobody waits any more, and the answer must not be taken for the next one's
            self.stop()
            raise
        self.idle_timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self.stop)
        return said

    async def _running_process(self) -> asyncio.subprocess.Process:
        """Return the looker, started if it is not there."""
        if self.process is None or self.process.returncode is not None:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dragoman.watch.inspector_worker", str(self.folder),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_MAX_ANSWER_BYTES,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        return self.process

    def stop(self) -> None:
        """End the looker."""
        process, self.process = self.process, None
        if process:
            with suppress(ProcessLookupError):
                process.kill()
