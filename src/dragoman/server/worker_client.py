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
from dragoman.server.ipc import Message, encode_message, read_message
from dragoman.server.metrics import ServerMetrics, resident_memory_bytes
from dragoman.server.problems import Problem, worker_restarting

logger = logging.getLogger("dragoman.server")
_RESTART_DELAYS_SECONDS = (0.0, 0.2, 1.0, 3.0)  # seconds before the next start, if the last ones failed
_UNRESPONSIVE_SECONDS = 10.0  # no batch takes so long
_LOAD_TIMEOUT_SECONDS = 600.0  # for a large model from a slow disk


class WorkerClient:
    """One worker at a time."""

    def __init__(self, config: Message, metrics: ServerMetrics) -> None:
        self.config = config
        self.metrics = metrics
        self.models: list[dict[str, Any]] = []
        self.process: subprocess.Process | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.is_ready = False
        self.is_closing = False
        self.last_message_at = 0.0
        self.hang_check_scheduled = False
        self.message_ids = itertools.count(1)
        self.pending: dict[int, Callable[[Message], None]] = {}
        self.supervisor: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the worker and wait until it can translate; what it cannot load is a UserError."""
        reader = await self.spawn()
        try:
            async with asyncio.timeout(_LOAD_TIMEOUT_SECONDS):
                first = (await read_message(reader))[0]
        except (EOFError, OSError, TimeoutError):
            first = {"fatal": "The worker ended before it had loaded the models; its last words are above."}
        if "fatal" in first:
            await self.stop()
            raise UserError(first["fatal"])
        self.dispatch([first])
        self.supervisor = asyncio.create_task(self.supervise(reader))

    async def spawn(self) -> asyncio.StreamReader:
        """Start a process with one end of a pair of sockets, and send it what to serve."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "dragoman.server.worker", str(theirs.fileno())]
        with theirs:
            self.process = await asyncio.create_subprocess_exec(
                *command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        reader, self.writer = await asyncio.open_connection(sock=ours)
        self.writer.write(encode_message(self.config))
        return reader

    async def supervise(self, reader: asyncio.StreamReader) -> None:
        """Hear the worker; when it is gone, start another, and so on."""
        for failures in itertools.count():
            began_at = asyncio.get_running_loop().time()
            await self.receive_messages(reader)
            if self.is_closing:
                return
            lived = asyncio.get_running_loop().time() - began_at
            logger.warning("the worker died; starting another")
            self.metrics.restarts += 1
            reader = await self.restart(failures if lived < 10 else 0)

    async def restart(self, failures: int) -> asyncio.StreamReader:
        """Bury the worker and start the next."""
        await self.kill()
        await asyncio.sleep(_RESTART_DELAYS_SECONDS[min(failures, len(_RESTART_DELAYS_SECONDS) - 1)])
        return await self.spawn()

    async def receive_messages(self, reader: asyncio.StreamReader) -> None:
        """Pass on what the worker says, until it says nothing more."""
        with suppress(EOFError, OSError, ValueError):
            while True:
                self.dispatch(await read_message(reader))
        self.is_ready = False
        for told in list(self.pending.values()):
            told({"problem": None})

    def dispatch(self, messages: list[Message]) -> None:
        """Pass each message to whoever waits for it; a list of models is for everyone."""
        self.last_message_at = asyncio.get_running_loop().time()
        for message in messages:
            if "models" in message:
                self.metrics.reloads += self.is_ready
                self.models, self.is_ready = message["models"], True
            elif "decoded" in message:
                self.metrics.decoded += message["decoded"]
            elif "fatal" in message:
                logger.error("the worker could not load the models again: %s", message["fatal"])
            elif told := self.pending.get(message["id"]):
                told(message)

    async def request(self, operation: str, **fields: Any) -> Any:
        """Return the worker's answer; if we are cancelled meanwhile, the worker stops working on it."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def told(message: Message) -> None:
            if not answer.done():
                answer.set_result(message)

        number = self.send(operation, fields, told)
        try:
            return _result_of(await answer)
        finally:
            self.discard(number, answered=answer.done() and not answer.cancelled())

    async def stream(self, operation: str, **fields: Any) -> AsyncIterator[Message]:
        """Yield the parts of an answer as they come, and at last the whole."""
        heard: asyncio.Queue[Message] = asyncio.Queue()
        number = self.send(operation, fields, heard.put_nowait)
        complete = False
        try:
            while not complete:
                message = await heard.get()
                complete = "part" not in message
                yield {"found": _result_of(message)} if complete else message
        finally:
            self.discard(number, answered=complete)

    def send(self, operation: str, fields: dict[str, Any], on_message: Callable[[Message], Any]) -> int:
        """Send a question, and note who waits for its answer."""
        if not self.is_ready or self.writer is None:
            raise worker_restarting()
        number = next(self.message_ids)
        self.pending[number] = on_message
        self.writer.write(encode_message({"id": number, "op": operation, **fields}))
        return number

    def discard(self, message_id: int, *, answered: bool) -> None:
        """Strike a question off; the worker is told unless it has answered."""
        del self.pending[message_id]
        if not answered and self.is_ready and self.writer is not None:
            self.writer.write(encode_message({"id": message_id, "op": "cancel"}))

    def schedule_hang_check(self) -> None:
        """Look again in a while: a worker of which nothing is heard until then, though questions wait, has hung."""
        if not self.hang_check_scheduled:
            self.hang_check_scheduled = True
            loop = asyncio.get_running_loop()
            loop.call_later(_UNRESPONSIVE_SECONDS, self.kill_if_unresponsive, self.process, loop.time())

    def kill_if_unresponsive(self, process: subprocess.Process | None, since: float) -> None:
        """End a worker that was not heard of since then; another will be started."""
        self.hang_check_scheduled = False
        if self.is_ready and self.pending and process is self.process and process and self.last_message_at < since:
            logger.error("the worker has not finished anything for %.0f s; ending it", _UNRESPONSIVE_SECONDS)
            with suppress(ProcessLookupError):
                process.kill()

    async def stop(self) -> None:
        """End the worker for good."""
        self.is_closing = True
        self.is_ready = False
        await self.kill()
        if self.supervisor:
            await self.supervisor

    async def kill(self) -> None:
        """Make sure that the process has ended."""
        if self.writer:
            self.writer.close()
        if self.process:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    def memory_bytes(self) -> float:
        """Return the worker's resident bytes."""
        return resident_memory_bytes(self.process.pid) if self.process and self.is_ready else 0


def _result_of(message: Message) -> Any:
    """Return what a message brings, or raise the problem that it tells of."""
    if "found" in message:
        return message["found"]
    raise Problem(*message["problem"]) if message["problem"] else worker_restarting()
