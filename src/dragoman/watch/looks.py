"""Looks inside checkpoints on request, by a process of its own that is there only while somebody looks."""

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from dragoman.server.problems import Problem, busy

ANSWER_BYTES = 64 << 20  # more can only be a fault
SECONDS = 120.0  # for one look, the start of the process included: it works behind the training
IDLE_SECONDS = 300.0  # after which its memory is given back
WAITING = 4  # looks at a time


class Looks:
    """Asks the looker, one question after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: asyncio.subprocess.Process | None = None
        self.turn = asyncio.Lock()
        self.waiting = 0
        self.rest: asyncio.TimerHandle | None = None

    async def ask(self, **question: Any) -> dict[str, Any]:
        """Return the answer to a question, or raise the problem that it is."""
        if self.waiting >= WAITING:
            raise busy(5)
        self.waiting += 1
        try:
            async with self.turn:
                said = await self.asked(question)
        finally:
            self.waiting -= 1
        if "error" in said:
            raise Problem(422, "refused", str(said["error"]))
        return said

    async def asked(self, question: dict[str, Any]) -> dict[str, Any]:
        """Send a question and wait for its answer; a looker that is too slow, or dies, makes room for another."""
        if self.rest:
            self.rest.cancel()
        process = await self.started()
        assert process.stdin and process.stdout, "both are pipes"
        try:
            async with asyncio.timeout(SECONDS):
                process.stdin.write(json.dumps(question).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
            said: dict[str, Any] = json.loads(line)
        except (TimeoutError, OSError, ValueError):
            self.end()
            raise Problem(503, "no_look", "The look was not finished; try again.", retry_after=5) from None
        except asyncio.CancelledError:  # nobody waits any more, and the answer must not be taken for the next one's
            self.end()
            raise
        self.rest = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.end)
        return said

    async def started(self) -> asyncio.subprocess.Process:
        """Return the looker, started if it is not there."""
        if self.process is None or self.process.returncode is not None:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dragoman.watch.looker", str(self.folder),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=ANSWER_BYTES,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        return self.process

    def end(self) -> None:
        """End the looker."""
        process, self.process = self.process, None
        if process:
            with suppress(ProcessLookupError):
                process.kill()
