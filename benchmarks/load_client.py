"""A lightweight HTTP client for load tests: one asyncio protocol per connection, without an HTTP library.

`server_load.py` records its cost (`client_us`) beside those of the front and the worker.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What came back, and how long it took."""

    status: int  # 0: nothing came
    body: bytes
    seconds: float
    retry_after: float = 0.0

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


class Line(asyncio.Protocol):
    """One connection that is kept open, with one request at a time."""

    def __init__(self) -> None:
        self.buffer = b""
        self.waiting: asyncio.Future[tuple[int, bytes, float]] | None = None
        self.transport: asyncio.Transport | None = None
        self.open = False

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport, self.open = transport, True

    def connection_lost(self, _exc: Exception | None) -> None:
        """Tell whoever waits that nothing will come."""
        self.open = False
        if self.waiting and not self.waiting.done():
            self.waiting.set_result((0, b"", 0.0))

    def data_received(self, data: bytes) -> None:
        """Collect a reply."""
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        length = int(lower.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return
        after = lower.split(b"retry-after: ", 1)[1:]
        self.buffer = rest[length:]
        if self.waiting and not self.waiting.done():
            seconds = float(after[0].split(b"\r\n", 1)[0]) if after else 0.0
            self.waiting.set_result((int(head[9:12]), rest[:length], seconds))


class Client:
    """Asks one question after the other, over one connection as long as it lasts."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.line: Line | None = None

    async def ask(self, request: bytes) -> Reply:
        """Send a request and wait for its reply."""
        loop = asyncio.get_running_loop()
        began_at = time.perf_counter()
        try:
            if self.line is None or not self.line.open:
                _, self.line = await loop.create_connection(Line, self.host, self.port)
            self.line.waiting = loop.create_future()
            assert self.line.transport, "connected"
            self.line.transport.write(request)
            status, body, after = await self.line.waiting
        except OSError:
            status, body, after = 0, b"", 0.0
        return Reply(status, body, time.perf_counter() - began_at, after)

    def close(self) -> None:
        """Hang up."""
        if self.line and self.line.transport:
            self.line.transport.close()


def post(path: str, content: Any) -> bytes:
    """Return a request as it is sent."""
    body = json.dumps(content).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    return head.encode() + b"\r\n" + body


async def closed_loop(address: tuple[str, int], requests: list[bytes], clients: int) -> list[Reply]:
    """Have so many clients send all requests, each one the next when it has its reply; return the replies in order."""
    replies: list[Reply | None] = [None] * len(requests)
    numbers = iter(range(len(requests)))
    await asyncio.gather(*(one_of_them(address, requests, numbers, replies) for _ in range(clients)))
    return [reply for reply in replies if reply is not None]


async def one_of_them(
    address: tuple[str, int], requests: list[bytes], numbers: Iterator[int], replies: list[Reply | None]
) -> None:
    """Be one client."""
    client = Client(*address)
    for number in numbers:
        replies[number] = await client.ask(requests[number])
    client.close()
