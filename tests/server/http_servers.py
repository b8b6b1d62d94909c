"""Servers in the event loop of a test: real connections, and an application whose work waits for the test."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from uvicorn.server import ServerState

from dragoman.server.access import AccessPolicy
from dragoman.server.limits import Limits, RouteLimits
from dragoman.server.middleware import GuardMiddleware
from dragoman.server.protocol import Connection
from dragoman.server.serve import uvicorn_config

PATIENT = Limits(header_seconds=600, body_seconds=600, idle_seconds=600, write_seconds=600, deadline_seconds=600)


@dataclass
class Application:
    """Answers with the method, the path and the size of the body. `/wait…` waits for its event; `/large` is 8 MB."""

    events: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    started: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            event = await receive()
            size, more = size + len(event.get("body", b"")), event.get("more_body", False)
        self.started.append(scope["path"])
        try:
            if scope["path"].startswith("/wait"):
                await self.events[scope["path"]].wait()
        except asyncio.CancelledError:
            self.cancelled.append(scope["path"])
            raise
        body = f"{scope['method']} {scope['path']} {size}".encode()
        body = b"x" * 8_000_000 if scope["path"] == "/large" else body
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass
class Listening:
    """A server that listens, and ways to talk to it."""

    port: int
    guard: GuardMiddleware
    app: Any

    async def connect(self, content: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(content)
        return reader, writer

    async def ask(self, content: bytes) -> bytes:
        """Send bytes, and return all that comes back until the server closes the connection."""
        reader, writer = await self.connect(content)
        received = await reader.read()
        writer.close()
        return received

    async def status(self, content: bytes) -> int:
        """Send bytes, and return the status of the first response."""
        reader, writer = await self.connect(content)
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])


@asynccontextmanager
async def listening(limits: Limits = PATIENT, token: str | None = None, app: Any = None) -> AsyncIterator[Listening]:
    """Serve an application while the block runs. POST to `/wait…` and `/queued` counts as a queued request."""
    app = app or Application()
    queued = replace(RouteLimits.default(limits), is_queued=True)
    routes = dict.fromkeys(("/wait", "/wait/1", "/wait/2", "/queued"), queued)
    guard = GuardMiddleware(app, limits, AccessPolicy(token), routes=routes)
    config = uvicorn_config(guard, limits)
    config.load()
    state = ServerState()
    protocol = partial(Connection, guard.connections, config=config, server_state=state, app_state={})
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    timeouts = asyncio.create_task(guard.connections.enforce_timeouts_forever())
    try:
        yield Listening(server.sockets[0].getsockname()[1], guard, app)
    finally:
        timeouts.cancel()
        server.close()
        for task in list(state.tasks):
            task.cancel()


async def until(condition: Any) -> None:
    """Wait for something to come true."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def read_response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of one response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    return int(head[0].split()[1]), headers, await reader.readexactly(int(headers.get("content-length", 0)))
