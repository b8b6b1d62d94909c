"""Messages between the front and its worker: JSON with its length in front, over a pair of sockets.

Nothing is pickled, so that neither side can make the other run anything.
"""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

Message = dict[str, Any]

LENGTH = struct.Struct("!I")
LONGEST = 256 << 20  # bytes in one message; more can only be a fault
BLOCK = 1 << 16


def packed(content: Any) -> bytes:
    """Return a message as it travels."""
    written = json.dumps(content, separators=(",", ":")).encode()
    return LENGTH.pack(len(written)) + written


async def received(reader: asyncio.StreamReader) -> Any:
    """Read the next message of the front's side; raise EOFError when there is none."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > LONGEST:
        raise EOFError(f"a message of {length} bytes")
    return json.loads(await reader.readexactly(length))


class WorkerEnd:
    """The worker's side: blocking, read by one thread and written by many."""

    def __init__(self, own: socket.socket) -> None:
        self.socket = own
        self.writing = threading.Lock()

    def send(self, content: Any) -> None:
        """Write one message."""
        written = packed(content)
        with self.writing:
            self.socket.sendall(written)

    def messages(self) -> Iterator[list[Message]]:
        """Yield what the front has sent meanwhile, all of it together, until it is gone."""
        waiting = bytearray()
        while chunk := self.socket.recv(BLOCK):
            waiting += chunk + self.rest()
            if some := list(unpacked(waiting)):
                yield some

    def rest(self) -> bytes:
        """Return what else has arrived, without waiting for more."""
        chunks = []
        with suppress(BlockingIOError):
            while chunk := self.socket.recv(BLOCK, socket.MSG_DONTWAIT):
                chunks.append(chunk)
        return b"".join(chunks)


def unpacked(waiting: bytearray) -> Iterator[Message]:
    """Take every whole message out of what has arrived."""
    while len(waiting) >= LENGTH.size:
        (length,) = LENGTH.unpack_from(waiting)
        end = LENGTH.size + length
        if len(waiting) < end:
            return
        yield json.loads(bytes(waiting[LENGTH.size : end]))
        del waiting[:end]
