"""The HTTP process's side of the decoding worker: starts it, sends requests, restarts it when it dies.

Each request has an id; the answer, or each part of a streamed answer, comes back with the same id. When the worker
dies, all pending requests fail at once with a 503 and another worker is started.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from dragoman.errors import UserError
from dragoman.processes import AsyncChildProcess, Message
from dragoman.server.metrics import ServerMetrics, resident_memory_bytes
from dragoman.server.problems import Problem, worker_restarting

logger = logging.getLogger("dragoman.server")
current_client: ContextVar[str] = ContextVar("current_client", default="")  # who gets a share of the worker's time
_RESTART_DELAYS_SECONDS = (0.0, 0.2, 1.0, 3.0)  # by the number of workers in a row that were never ready
_UNRESPONSIVE_SECONDS = 10.0  # no batch takes this long
_LOAD_TIMEOUT_SECONDS = 600.0  # for a large model on a slow disk


class WorkerClient:
    """Sends requests to one worker process at a time."""

    def __init__(self, config: Message, metrics: ServerMetrics) -> None:
        self.config = config
        self.metrics = metrics
        self.models: list[dict[str, Any]] = []
        self.is_ready = False
        self.is_closing = False
        self._child: AsyncChildProcess | None = None
        self._last_message_at = 0.0
        self._hang_check_scheduled = False
        self._message_ids = itertools.count(1)
        self._pending: dict[int, Callable[[Message], None]] = {}
        self._supervisor: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the worker and wait until it can translate; raise UserError if it cannot load a model."""
        child = await self._spawn()
        try:
            async with asyncio.timeout(_LOAD_TIMEOUT_SECONDS):
                first = (await child.receive())[0]
        except (EOFError, OSError, TimeoutError):
            first = {"fatal": "The worker exited before it had loaded the models; see its output above."}
        if "fatal" in first:
            await self.stop()
            raise UserError(first["fatal"])
        self._dispatch([first])
        self._supervisor = asyncio.create_task(self._supervise(child))

    async def stop(self) -> None:
        """End the worker for good."""
        self.is_closing = True
        self.is_ready = False
        if self._child:
            await self._child.wait_killed()
        if self._supervisor:
            await self._supervisor

    async def request(self, operation: str, **fields: Any) -> Any:
        """Return the worker's answer; if the caller is cancelled, the worker drops the request."""
        response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def on_message(message: Message) -> None:
            if not response.done():
                response.set_result(message)

        message_id = self._send(operation, fields, on_message)
        try:
            return _result_of(await response)
        finally:
            self._discard(message_id, answered=response.done() and not response.cancelled())

    async def stream(self, operation: str, **fields: Any) -> AsyncIterator[Message]:
        """Yield the parts of an answer as they arrive, then `{"result": …}` with the complete one."""
        messages: asyncio.Queue[Message] = asyncio.Queue()
        message_id = self._send(operation, fields, messages.put_nowait)
        complete = False
        try:
            while not complete:
                message = await messages.get()
                complete = "part" not in message
                yield {"result": _result_of(message)} if complete else message
        finally:
            self._discard(message_id, answered=complete)

    def schedule_hang_check(self) -> None:
        """Kill the worker if it sends nothing for a while although requests are pending; another is started."""
        if not self._hang_check_scheduled:
            self._hang_check_scheduled = True
            loop = asyncio.get_running_loop()
            loop.call_later(_UNRESPONSIVE_SECONDS, self._kill_if_unresponsive, self._child, loop.time())

    def memory_bytes(self) -> float:
        """Return the worker's resident memory."""
        return resident_memory_bytes(self._child.process.pid) if self._child and self.is_ready else 0

    async def _spawn(self) -> AsyncChildProcess:
        self._child = await AsyncChildProcess.start("dragoman.server.worker")
        self._child.send(self.config)
        return self._child

    async def _supervise(self, child: AsyncChildProcess) -> None:
        failures = 0  # workers in a row that were never ready
        while True:
            was_ready = await self._receive_until_closed(child)
            if self.is_closing:
                return
            logger.warning("the worker exited unexpectedly; restarting it")
            self.metrics.restarts += 1
            await child.wait_killed()
            failures = 0 if was_ready else failures + 1
            await asyncio.sleep(_RESTART_DELAYS_SECONDS[min(failures, len(_RESTART_DELAYS_SECONDS) - 1)])
            child = await self._spawn()

    async def _receive_until_closed(self, child: AsyncChildProcess) -> bool:
        """Dispatch messages until the worker exits; return whether it was ready."""
        with suppress(EOFError, OSError, ValueError):
            while True:
                self._dispatch(await child.receive())
        was_ready, self.is_ready = self.is_ready, False
        for on_message in list(self._pending.values()):
            on_message({"problem": None})
        return was_ready

    def _dispatch(self, messages: list[Message]) -> None:
        self._last_message_at = asyncio.get_running_loop().time()
        for message in messages:
            if "models" in message:
                self.metrics.reloads += self.is_ready
                self.models, self.is_ready = message["models"], True
            elif "decoded" in message:
                self.metrics.decoded += message["decoded"]
            elif "fatal" in message:
                logger.error("the worker could not load the models again: %s", message["fatal"])
            elif on_message := self._pending.get(message["id"]):
                on_message(message)

    def _send(self, operation: str, fields: dict[str, Any], on_message: Callable[[Message], Any]) -> int:
        if not self.is_ready or self._child is None:
            raise worker_restarting()
        message_id = next(self._message_ids)
        self._pending[message_id] = on_message
        self._child.send({"id": message_id, "operation": operation, "client": current_client.get(), **fields})
        return message_id

    def _discard(self, message_id: int, *, answered: bool) -> None:
        del self._pending[message_id]
        if not answered and self.is_ready and self._child is not None:
            self._child.send({"id": message_id, "operation": "cancel"})

    def _kill_if_unresponsive(self, child: AsyncChildProcess | None, since: float) -> None:
        self._hang_check_scheduled = False
        if self.is_ready and self._pending and child is self._child and child and self._last_message_at < since:
            logger.error("the worker has not answered for %.0f s; killing it", _UNRESPONSIVE_SECONDS)
            child.kill()


def _result_of(message: Message) -> Any:
    if "result" in message:
        return message["result"]
    raise Problem(*message["problem"], field=message.get("field")) if message["problem"] else worker_restarting()
