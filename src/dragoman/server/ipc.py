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

_LENGTH_PREFIX = struct.Struct("!I")
_MAX_MESSAGE_BYTES = 256 << 20  # bytes in one message; more can only be a fault
_CHUNK_BYTES = 1 << 16


def encode_message(content: Any) -> bytes:
    """Return a message as it travels."""
    written = json.dumps(content, separators=(",", ":")).encode()
    return _LENGTH_PREFIX.pack(len(written)) + written


async def read_message(reader: asyncio.StreamReader) -> Any:
    """Read the next message of the front's side; raise EOFError when there is none."""
    (length,) = _LENGTH_PREFIX.unpack(await reader.readexactly(_LENGTH_PREFIX.size))
    if length > _MAX_MESSAGE_BYTES:
        raise EOFError(f"a message of {length} bytes")
    return json.loads(await reader.readexactly(length))


class WorkerChannel:
    """The worker's side: blocking, read by one thread and written by many."""

    def __init__(self, own: socket.socket) -> None:
        self.socket = own
        self.write_lock = threading.Lock()

    def send(self, content: Any) -> None:
        """Write one message."""
        written = encode_message(content)
        with self.write_lock:
            self.socket.sendall(written)

    def messages(self) -> Iterator[list[Message]]:
        """Yield what the front has sent meanwhile, all of it together, until it is gone."""
        waiting = bytearray()
        while chunk := self.socket.recv(_CHUNK_BYTES):
            waiting += chunk + self.read_available()
            if some := list(_decode_messages(waiting)):
                yield some

    def read_available(self) -> bytes:
        """Return what else has arrived, without waiting for more."""
        chunks = []
        with suppress(BlockingIOError):
            while chunk := self.socket.recv(_CHUNK_BYTES, socket.MSG_DONTWAIT):
                chunks.append(chunk)
        return b"".join(chunks)


def _decode_messages(buffer: bytearray) -> Iterator[Message]:
    """Take every whole message out of what has arrived."""
    while len(buffer) >= _LENGTH_PREFIX.size:
        (length,) = _LENGTH_PREFIX.unpack_from(buffer)
        end = _LENGTH_PREFIX.size + length
        if len(buffer) < end:
            return
        yield json.loads(bytes(buffer[_LENGTH_PREFIX.size : end]))
        del buffer[:end]
