"""One server of a training's page, from its start to its end."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import IO

from dragoman.server.connections import keep_sweeping
from dragoman.server.doors import Doors
from dragoman.server.guard import Guard
from dragoman.server.leaving import Leaving
from dragoman.server.limits import Limits
from dragoman.server.serving import configured
from dragoman.watch.app import build

# A stream of events lasts; a browser comes back by itself after its end. Nothing is ever sent to us.
LIMITS = replace(Limits(), deadline_seconds=3600.0, body_bytes=1, connections=64)


async def serve(
    folder: Path,
    listening: socket.socket,
    *,
    names: tuple[str, ...] = (),
    token: str | None = None,
    leash: IO[bytes] | None = None,
) -> None:
    """Serve until asked to stop, or until the other end of the leash is let go."""
    app = build(folder)
    config = configured(Guard(app, LIMITS, Doors(token, names)), LIMITS)
    server = Leaving(config)  # at once: who watches misses nothing that is not in the files
    tasks = [asyncio.create_task(keep_sweeping(server.server_state.connections, config.turned_away, LIMITS))]  # type: ignore[attr-defined]
    if leash:
        tasks.append(asyncio.create_task(let_go(leash, server)))
    try:
        await server.serve(sockets=[listening])
    finally:
        app.state.watcher.looks.end()
        for task in tasks:
            task.cancel()


async def let_go(leash: IO[bytes], server: Leaving) -> None:
    """Stop the server when the process that started it is gone, however it went: then its end of the pipe is closed."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), leash)
    await reader.read()
    server.stop()
