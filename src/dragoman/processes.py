"""Child processes that exchange messages with their parent. Imports no torch.

A child is `python -P -m MODULE FD [ARGUMENT …]`: nothing is imported from the current directory. It inherits one end of
a socket pair by its file descriptor and ends when the parent's end closes, however the parent ended. A message is a
JSON value in which strings, numbers, lists and dictionaries may also hold `bytes`. Nothing is pickled, so neither side
can make the other run code.
"""

import asyncio
import json
import os
import signal
import site
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Message = dict[str, Any]

_LENGTHS = struct.Struct("!II")  # bytes of the JSON text, and of the attachments behind it
_MAX_MESSAGE_BYTES = 256 << 20
_CHUNK_BYTES = 1 << 16
_BYTES_KEY = "$bytes"  # stands for an attachment: its offset and length


def available_cores() -> int:
    """Return the number of cores that this process may use; processes started by `torchrun` share them equally."""
    # Only Linux restricts processes to some of the cores.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, cores // max(1, int(processes))) if processes.isdecimal() else cores


def encode_message(content: Any) -> bytes:
    """Return a message as it is sent: two lengths, the JSON text, the attached bytes."""
    attachments = bytearray()

    def attach(value: Any) -> dict[str, list[int]]:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"a message cannot contain a {type(value).__name__}")
        start = len(attachments)
        attachments.extend(value)
        attachments.append(0)  # so that empty bytes are an attachment too
        return {_BYTES_KEY: [start, len(value)]}

    text = json.dumps(content, separators=(",", ":"), default=attach).encode()
    return _LENGTHS.pack(len(text), len(attachments)) + text + attachments


def _decode_message(text: bytes, attachments: bytes) -> Any:
    if not attachments:
        return json.loads(text)

    def restore(value: dict[str, Any]) -> Any:
        if value.keys() != {_BYTES_KEY}:
            return value
        offset, length = value[_BYTES_KEY]
        return attachments[offset : offset + length]

    return json.loads(text, object_hook=restore)


def _check_size(lengths: Sequence[int]) -> None:
    if sum(lengths) > _MAX_MESSAGE_BYTES:
        raise EOFError(f"a message of {sum(lengths)} bytes exceeds the limit of {_MAX_MESSAGE_BYTES}")


async def _read_message(reader: asyncio.StreamReader) -> Any:
    """Return the next message of a stream; raise EOFError at its end."""
    lengths = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    _check_size(lengths)
    body = await reader.readexactly(sum(lengths))
    return _decode_message(body[: lengths[0]], body[lengths[0] :])


class MessageSocket:
    """One end of the socket pair for blocking code. One thread reads; any thread may send."""

    def __init__(self, own: socket.socket) -> None:
        self.socket = own
        self._buffer = bytearray()
        self._send_lock = threading.Lock()

    def send(self, content: Any) -> None:
        """Send one message."""
        encoded = encode_message(content)
        with self._send_lock:
            self.socket.sendall(encoded)

    def receive(self) -> Any:
        """Wait for the next message; raise EOFError when the other end is closed."""
        while (message := self._next_buffered()) is None:
            self._fill_buffer()
        return message[0]

    def receive_all(self) -> Iterator[list[Any]]:
        """Yield all messages that have arrived since the last time, until the other end is closed."""
        with suppress(EOFError):
            while True:
                messages = [self.receive()]
                with suppress(BlockingIOError):
                    while chunk := self.socket.recv(_CHUNK_BYTES, socket.MSG_DONTWAIT):
                        self._buffer += chunk
                while (message := self._next_buffered()) is not None:
                    messages.append(message[0])
                yield messages

    def close(self) -> None:
        """Close this end; the process at the other one ends."""
        self.socket.close()

    def _fill_buffer(self) -> None:
        chunk = self.socket.recv(_CHUNK_BYTES)
        if not chunk:
            raise EOFError("the other process closed the connection")
        self._buffer += chunk

    def _next_buffered(self) -> tuple[Any] | None:
        if len(self._buffer) < _LENGTHS.size:
            return None
        lengths = _LENGTHS.unpack_from(self._buffer)
        _check_size(lengths)
        middle = _LENGTHS.size + lengths[0]
        end = middle + lengths[1]
        if len(self._buffer) < end:
            return None
        message = _decode_message(bytes(self._buffer[_LENGTHS.size : middle]), bytes(self._buffer[middle:end]))
        del self._buffer[:end]
        return (message,)


def parent_socket(descriptor: int | str | None = None) -> MessageSocket:
    """Return a child's end of the socket pair; its file descriptor is the first argument of the command line."""
    return MessageSocket(socket.socket(fileno=int(sys.argv[1] if descriptor is None else descriptor)))


def python_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module without importing anything from the current directory.

    All child processes are started with it. `-P` leaves the current directory out of `sys.path`.
    """
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def child_environment(*, threads: int | None = None) -> dict[str, str]:
    """Return the environment of a child; `threads` limits the threads of torch and of numeric libraries.

    If this package is not installed, its directory is added to PYTHONPATH, so that children run the same code.
    """
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    folders = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    own = str(Path(__file__).parent.parent)
    if own not in [*map(os.path.abspath, folders), *site.getsitepackages(), site.getusersitepackages()]:
        environment["PYTHONPATH"] = os.pathsep.join([*folders, own])
    return environment


class ChildProcess:
    """A child for blocking code. It gets a session of its own, so that Ctrl-C reaches the parent alone."""

    def __init__(
        self, module: str, *arguments: object, threads: int | None = None, pass_fds: Sequence[int] = (), **streams: Any
    ) -> None:
        parent_socket, child_socket = socket.socketpair()
        with child_socket:
            self.process = subprocess.Popen(
                python_command(module, child_socket.fileno(), *arguments),
                pass_fds=[child_socket.fileno(), *pass_fds],
                env=child_environment(threads=threads),
                start_new_session=True,
                **{"stdin": subprocess.DEVNULL, **streams},
            )
        self.channel = MessageSocket(parent_socket)

    def request(self, content: Any) -> Any:
        """Send a message and return the next one that the child sends; raise EOFError if it ends before."""
        try:
            self.channel.send(content)
            return self.channel.receive()
        except OSError as error:
            raise EOFError("the child process has exited") from error

    def stop(self, grace_seconds: float = 5.0) -> int:
        """Close the socket, wait for the child to end, kill it if it does not, and return its exit code."""
        self.channel.close()
        return _wait_or_kill(self.process, grace_seconds)


class AsyncChildProcess:
    """A child for asyncio code."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process, self.reader, self.writer = process, reader, writer

    @classmethod
    async def start(cls, module: str, *arguments: object, threads: int | None = None) -> "AsyncChildProcess":
        """Start a module as a child."""
        parent_socket, child_socket = socket.socketpair()
        with child_socket:
            process = await asyncio.create_subprocess_exec(
                *python_command(module, child_socket.fileno(), *arguments),
                pass_fds=[child_socket.fileno()],
                stdin=subprocess.DEVNULL,
                env=child_environment(threads=threads),
                start_new_session=True,
            )
        return cls(process, *await asyncio.open_connection(sock=parent_socket))

    def send(self, content: Any) -> None:
        """Send one message without waiting for the child to read it."""
        self.writer.write(encode_message(content))

    async def receive(self) -> Any:
        """Wait for the next message; raise EOFError when the child process has exited."""
        return await _read_message(self.reader)

    def kill(self) -> None:
        """End the child at once."""
        self.writer.close()
        with suppress(ProcessLookupError):
            self.process.kill()

    async def wait_killed(self) -> None:
        """End the child at once and wait until it has ended."""
        self.kill()
        await self.process.wait()


def _wait_or_kill(process: "subprocess.Popen[Any]", grace_seconds: float) -> int:
    """Wait for a process to end by itself, kill it if it does not, and return its exit code."""
    try:
        return process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def terminate(processes: Iterable["subprocess.Popen[Any]"], grace_seconds: float) -> None:
    """Send SIGTERM to all processes, wait for each, and kill those that do not end."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    for process in running:
        _wait_or_kill(process, grace_seconds)
