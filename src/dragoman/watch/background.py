"""The page of a training, in a process of its own beside it: `python -m dragoman.watch.background RUN SOCKET`.

It works behind everybody else on the machine, says nothing on the terminal, and ends when the training does: the
training holds the other end of its standard input.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_EXIT_SECONDS = 2.0  # for the process to end by itself


@contextmanager
def background_page(folder: Path, listener: socket.socket) -> Iterator[None]:
    """Show a run on a page while something else goes on; whatever happens to the page, that goes on."""
    with listener:
        process = subprocess.Popen(
            [sys.executable, "-m", "dragoman.watch.background", str(folder), str(listener.fileno())],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(listener.fileno(),), start_new_session=True,  # Ctrl-C is for the training
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    assert process.stdin, "it is a pipe"
    try:
        yield
    finally:
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(folder: str, file_descriptor: str) -> None:
    """Serve until the standard input ends."""
    os.nice(19)
    from dragoman.watch.server import serve

    with socket.socket(fileno=int(file_descriptor)) as listening:
        asyncio.run(serve(Path(folder), listening, parent_pipe=sys.stdin.buffer))


if __name__ == "__main__":
    main(*sys.argv[1:])
