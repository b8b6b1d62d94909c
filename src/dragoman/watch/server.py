"""One server of a training's page, from its start to its end."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import IO

from dragoman.server.access import AccessPolicy
from dragoman.server.connections import sweep_connections
from dragoman.server.limits import Limits
from dragoman.server.middleware import GuardMiddleware
from dragoman.server.serve import uvicorn_config
from dragoman.server.shutdown import StoppableServer
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
    config = uvicorn_config(GuardMiddleware(app, _LIMITS, AccessPolicy(token, allowed_hosts)), _LIMITS)
    server = StoppableServer(config)  # at once: who watches misses nothing that is not in the files
    tasks = [asyncio.create_task(sweep_connections(server.server_state.connections, config.turned_away, _LIMITS))]  # type: ignore[attr-defined]
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
