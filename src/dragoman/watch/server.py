"""Run the HTTP server of a live page."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

from dragoman.server.access import AccessPolicy
from dragoman.server.limits import Limits
from dragoman.server.middleware import GuardMiddleware
from dragoman.server.serve import StoppableServer, fit_connections, uvicorn_config
from dragoman.watch.app import build_app

# Event streams stay open (browsers reconnect at their end); requests have no body.
_LIMITS = replace(Limits(), deadline_seconds=3600.0, body_bytes=1)


async def serve(
    folder: Path,
    listener: socket.socket,
    *,
    allowed_hosts: tuple[str, ...] = (),
    token: str | None = None,
    parent: socket.socket | None = None,
) -> None:
    """Serve the live page of a run until a signal arrives, or until the parent closes its end of the socket."""
    app = build_app(folder)
    limits = fit_connections(_LIMITS)
    guard = GuardMiddleware(app, limits, AccessPolicy(token, allowed_hosts))
    server = StoppableServer(uvicorn_config(guard, limits))
    tasks = [asyncio.create_task(guard.connections.enforce_timeouts_forever())]
    if parent:
        tasks.append(asyncio.create_task(_stop_with_parent(parent, server)))
    try:
        await server.serve(sockets=[listener])
    finally:
        app.state.monitor.inspector.stop()
        for task in tasks:
            task.cancel()


async def _stop_with_parent(parent: socket.socket, server: StoppableServer) -> None:
    reader, _writer = await asyncio.open_connection(sock=parent)
    await reader.read()
    server.stop()
