"""One server of a training's page, from its start to its end."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import IO

from dragoman.server.access import AccessPolicy
from dragoman.server.limits import Limits
from dragoman.server.middleware import GuardMiddleware
from dragoman.server.serve import StoppableServer, uvicorn_config
from dragoman.watch.app import build_app

# A stream of events lasts; a browser comes back by itself after its end. Nothing is ever sent to us.
_LIMITS = replace(Limits(), deadline_seconds=3600.0, body_bytes=1, connections=64)


async def serve(
    folder: Path,
    listener: socket.socket,
    *,
    allowed_hosts: tuple[str, ...] = (),
    token: str | None = None,
    parent_pipe: IO[bytes] | None = None,
) -> None:
    """Serve until asked to stop, or until the other end of the leash is let go."""
    app = build_app(folder)
    guard = GuardMiddleware(app, _LIMITS, AccessPolicy(token, allowed_hosts))
    server = StoppableServer(uvicorn_config(guard, _LIMITS))
    tasks = [asyncio.create_task(guard.connections.enforce_timeouts_forever())]
    if parent_pipe:
        tasks.append(asyncio.create_task(_stop_with_parent(parent_pipe, server)))
    try:
        await server.serve(sockets=[listener])
    finally:
        app.state.watcher.looks.end()
        for task in tasks:
            task.cancel()


async def _stop_with_parent(parent_pipe: IO[bytes], server: StoppableServer) -> None:
    """Stop the server when the process that started it is gone, however it went: then its end of the pipe is closed."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), parent_pipe)
    await reader.read()
    server.stop()
