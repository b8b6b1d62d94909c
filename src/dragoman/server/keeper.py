"""The front's side of the worker: starts it, asks it, starts it again when it dies.

Each question has a number; its answer, or each part of a streamed one, comes back with it. When the worker dies, all
that wait are told so at once, and another worker is on its way.
"""

import asyncio
import itertools
import logging
import socket
import sys
from asyncio import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from dragoman.errors import UserError
from dragoman.server.link import Message, packed, received
from dragoman.server.metrics import Metrics, memory_of
from dragoman.server.problems import Problem, gone

LOG = logging.getLogger("dragoman.server")
PAUSES = (0.0, 0.2, 1.0, 3.0)  # seconds before the next start, if the last ones failed
SILENT_SECONDS = 10.0  # no batch takes so long
LOADING_SECONDS = 600.0  # for a large model from a slow disk


class Keeper:
    """One worker at a time."""

    def __init__(self, settings: Message, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.models: list[dict[str, Any]] = []
        self.process: subprocess.Process | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.ready = False
        self.closing = False
        self.heard_at = 0.0
        self.suspected = False
        self.numbers = itertools.count(1)
        self.waiting: dict[int, Callable[[Message], None]] = {}
        self.tending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the worker and wait until it can translate; what it cannot load is a UserError."""
        reader = await self.spawned()
        try:
            async with asyncio.timeout(LOADING_SECONDS):
                first = (await received(reader))[0]
        except (EOFError, OSError, TimeoutError):
            first = {"fatal": "The worker ended before it had loaded the models; its last words are above."}
        if "fatal" in first:
            await self.stop()
            raise UserError(first["fatal"])
        self.hear([first])
        self.tending = asyncio.create_task(self.tend(reader))

    async def spawned(self) -> asyncio.StreamReader:
        """Start a process with one end of a pair of sockets, and send it what to serve."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "dragoman.server.worker", str(theirs.fileno())]
        with theirs:
            self.process = await asyncio.create_subprocess_exec(
                *command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        reader, self.writer = await asyncio.open_connection(sock=ours)
        self.writer.write(packed(self.settings))
        return reader

    async def tend(self, reader: asyncio.StreamReader) -> None:
        """Hear the worker; when it is gone, start another, and so on."""
        for failures in itertools.count():
            began_at = asyncio.get_running_loop().time()
            await self.listen(reader)
            if self.closing:
                return
            lived = asyncio.get_running_loop().time() - began_at
            LOG.warning("the worker died; starting another")
            self.metrics.restarts += 1
            reader = await self.another(failures if lived < 10 else 0)

    async def another(self, failures: int) -> asyncio.StreamReader:
        """Bury the worker and start the next."""
        await self.bury()
        await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
        return await self.spawned()

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Pass on what the worker says, until it says nothing more."""
        with suppress(EOFError, OSError, ValueError):
            while True:
                self.hear(await received(reader))
        self.ready = False
        for told in list(self.waiting.values()):
            told({"problem": None})

    def hear(self, messages: list[Message]) -> None:
        """Pass each message to whoever waits for it; a list of models is for everyone."""
        self.heard_at = asyncio.get_running_loop().time()
        for message in messages:
            if "models" in message:
                self.metrics.reloads += self.ready
                self.models, self.ready = message["models"], True
            elif "decoded" in message:
                self.metrics.decoded += message["decoded"]
            elif "fatal" in message:
                LOG.error("the worker could not load the models again: %s", message["fatal"])
            elif told := self.waiting.get(message["id"]):
                told(message)

    async def ask(self, operation: str, **question: Any) -> Any:
        """Return the worker's answer; if we are cancelled meanwhile, the worker stops working on it."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def told(message: Message) -> None:
            if not answer.done():
                answer.set_result(message)

        number = self.send(operation, question, told)
        try:
            return found_in(await answer)
        finally:
            self.forget(number, answered=answer.done() and not answer.cancelled())

    async def stream(self, operation: str, **question: Any) -> AsyncIterator[Message]:
        """Yield the parts of an answer as they come, and at last the whole."""
        heard: asyncio.Queue[Message] = asyncio.Queue()
        number = self.send(operation, question, heard.put_nowait)
        complete = False
        try:
            while not complete:
                message = await heard.get()
                complete = "part" not in message
                yield {"found": found_in(message)} if complete else message
        finally:
            self.forget(number, answered=complete)

    def send(self, operation: str, question: dict[str, Any], told: Callable[[Message], Any]) -> int:
        """Send a question, and note who waits for its answer."""
        if not self.ready or self.writer is None:
            raise gone()
        number = next(self.numbers)
        self.waiting[number] = told
        self.writer.write(packed({"id": number, "op": operation, **question}))
        return number

    def forget(self, number: int, *, answered: bool) -> None:
        """Strike a question off; the worker is told unless it has answered."""
        del self.waiting[number]
        if not answered and self.ready and self.writer is not None:
            self.writer.write(packed({"id": number, "op": "cancel"}))

    def suspect(self) -> None:
        """Look again in a while: a worker of which nothing is heard until then, though questions wait, has hung."""
        if not self.suspected:
            self.suspected = True
            loop = asyncio.get_running_loop()
            loop.call_later(SILENT_SECONDS, self.replace_if_silent, self.process, loop.time())

    def replace_if_silent(self, process: subprocess.Process | None, since: float) -> None:
        """End a worker that was not heard of since then; another will be started."""
        self.suspected = False
        if self.ready and self.waiting and process is self.process and process and self.heard_at < since:
            LOG.error("the worker has not finished anything for %.0f s; ending it", SILENT_SECONDS)
            with suppress(ProcessLookupError):
                process.kill()

    async def stop(self) -> None:
        """End the worker for good."""
        self.closing = True
        self.ready = False
        await self.bury()
        if self.tending:
            await self.tending

    async def bury(self) -> None:
        """Make sure that the process has ended."""
        if self.writer:
            self.writer.close()
        if self.process:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    def memory(self) -> float:
        """Return the worker's resident bytes."""
        return memory_of(self.process.pid) if self.process and self.ready else 0


def found_in(message: Message) -> Any:
    """Return what a message brings, or raise the problem that it tells of."""
    if "found" in message:
        return message["found"]
    raise Problem(*message["problem"]) if message["problem"] else gone()
