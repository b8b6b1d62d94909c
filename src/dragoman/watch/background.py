"""The live page in a background process: `python -m dragoman.watch.background FD RUN LISTENER_FD`.

The process has the lowest priority, prints nothing, and ends with the training that started it.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dragoman.processes import ChildProcess, parent_socket

_EXIT_SECONDS = 2.0


@contextmanager
def background_page(folder: Path, listener: socket.socket) -> Iterator[None]:
    """Serve the live page of a run while the block runs. Errors of the page do not affect the block."""
    with listener:
        child = ChildProcess(
            "dragoman.watch.background",
            folder,
            listener.fileno(),
            threads=1,
            pass_fds=[listener.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    try:
        yield
    finally:
        child.stop(_EXIT_SECONDS)


def main(descriptor: str, folder: str, listener_descriptor: str) -> None:
    """Serve until the parent closes its end of the socket."""
    os.nice(19)
    from dragoman.watch.server import serve

    parent = parent_socket(descriptor).socket
    with socket.socket(fileno=int(listener_descriptor)) as listener:
        asyncio.run(serve(Path(folder), listener, parent=parent))


if __name__ == "__main__":
    main(*sys.argv[1:])
