"""An HTTP client for load tests: many connections in one thread with epoll, and requests that are built beforehand.

`server_load.py` records its cost (`client_us`) beside those of the front process and of the worker: the fewer
microseconds a request costs the client, the less it takes from a server on the same cores.
"""

import errno
import heapq
import json
import random
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_READ_BYTES = 1 << 18
_LOST_SECONDS = 60.0  # without a reply


@dataclass(frozen=True)
class Reply:
    """What came back, and how long it took."""

    index: int  # of the request
    status: int  # 0: no reply, or the connection could not be opened
    seconds: float
    retry_after: float = 0.0
    body: bytes = b""

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


class _Slot:
    """One client: a connection that is kept open as long as the server keeps it, and one request at a time."""

    __slots__ = ("began_at", "buffer", "index", "is_connected", "request", "socket")

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.is_connected = False
        self.request: bytes | None = None  # that waits for its reply
        self.buffer = b""
        self.index, self.began_at = 0, 0.0


class Clients:
    """Clients that send requests one after the other until there are no more; `replies` has what came back.

    A patient client waits as Retry-After says, and up to half as long again, so that clients that were refused together
    do not return together. Clients begin one after the other within `ramp_seconds`.
    """

    def __init__(
        self, port: int, requests: Iterator[tuple[int, bytes]], count: int, *, patient: bool = True,
        keep_alive: bool = True, ramp_seconds: float = 0.0,
    ) -> None:  # fmt: skip
        self.address, self.requests, self.patient, self.keep_alive = ("127.0.0.1", port), requests, patient, keep_alive
        self.replies: list[Reply] = []
        self.connections_refused = 0  # there is no server any more: the clients end
        self._poll = select.epoll()
        self._by_file: dict[int, _Slot] = {}
        began_at = time.perf_counter()
        self._due = [(began_at + ramp_seconds * number / count, number, _Slot()) for number in range(count)]
        self._busy = 0

    def run(self) -> list[Reply]:
        """Send all requests, and return the replies in the order in which they came."""
        while self._due or self._busy:
            now = time.perf_counter()
            while self._due and self._due[0][0] <= now:
                self._begin(heapq.heappop(self._due)[2])
            wait = min(1.0, max(0.0, self._due[0][0] - time.perf_counter())) if self._due else 1.0
            for file, events in self._poll.poll(wait if self._busy or self._due else 0):
                self._advance(self._by_file[file], events)
            if not self._due and self._busy and time.perf_counter() - now > 0.9:
                self._give_up_lost(time.perf_counter())
        for slot in list(self._by_file.values()):
            self._close(slot)
        return self.replies

    def _begin(self, slot: _Slot) -> None:
        found = None if self.connections_refused else next(self.requests, None)
        if found is None:
            return
        slot.index, slot.request = found
        slot.buffer, slot.began_at = b"", time.perf_counter()
        self._busy += 1
        try:
            if slot.socket is None:
                self._connect(slot)
            elif slot.is_connected:
                slot.socket.send(slot.request)
        except OSError:
            self._end(slot, 0)

    def _connect(self, slot: _Slot) -> None:
        own = slot.socket = socket.socket()
        own.setblocking(False)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if own.connect_ex(self.address) == errno.ECONNREFUSED:
            self.connections_refused += 1
            own.close()
            slot.socket = None
            raise ConnectionRefusedError
        slot.is_connected = False
        self._by_file[own.fileno()] = slot
        self._poll.register(own.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _advance(self, slot: _Slot, events: int) -> None:
        assert slot.socket, "registered"
        try:
            if not slot.is_connected:
                if error := slot.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    self.connections_refused += error == errno.ECONNREFUSED
                    raise OSError(error, "connect")
                slot.is_connected = True
                self._poll.modify(slot.socket.fileno(), select.EPOLLIN)
                if slot.request:
                    slot.socket.send(slot.request)
                return
            data = slot.socket.recv(_READ_BYTES) if events else b""
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if slot.request is None:  # between two requests: the server may close a connection that is idle
            self._close(slot)
        elif not data:
            self._end(slot, 0)
        else:
            slot.buffer += data
            self._parse(slot)

    def _parse(self, slot: _Slot) -> None:
        head, found, rest = slot.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        length = int(lower.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
        if len(rest) >= length:
            after = lower.split(b"retry-after: ", 1)[1:]
            seconds = float(after[0].split(b"\r\n", 1)[0]) if after else 0.0
            closes = b"connection: close" in lower or not self.keep_alive
            self._end(slot, int(head[9:12]), seconds, rest, closes=closes)

    def _end(self, slot: _Slot, status: int, retry: float = 0.0, body: bytes = b"", *, closes: bool = False) -> None:
        now = time.perf_counter()
        self.replies.append(Reply(slot.index, status, now - slot.began_at, retry, body if status == 200 else b""))
        slot.request = None
        self._busy -= 1
        if closes or status == 0:
            self._close(slot)
        wait = retry * random.uniform(1, 1.5) if self.patient else 0.0
        heapq.heappush(self._due, (now + wait, id(slot), slot))

    def _close(self, slot: _Slot) -> None:
        if slot.socket:
            self._poll.unregister(slot.socket.fileno())
            del self._by_file[slot.socket.fileno()]
            slot.socket.close()
            slot.socket = None

    def _give_up_lost(self, now: float) -> None:
        for slot in list(self._by_file.values()):
            if slot.request and now - slot.began_at > _LOST_SECONDS:
                self._end(slot, 0)


def post(path: str, content: Any) -> bytes:
    """Return a request as it is sent."""
    body = json.dumps(content).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    return head.encode() + b"\r\n" + body


def get(path: str) -> bytes:
    """Return a request as it is sent."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def send_all(port: int, requests: list[bytes], clients: int) -> list[Reply]:
    """Have clients send all requests, each one the next when it has its reply; return the replies in that order."""
    replies = Clients(port, iter(enumerate(requests)), clients, patient=False).run()
    return sorted(replies, key=lambda reply: reply.index)


def send_for(seconds: float, requests: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield requests again and again for a while."""
    end_at, count = time.perf_counter() + seconds, len(requests)
    index = 0
    while time.perf_counter() < end_at:
        yield index, requests[index % count]
        index += 1


def ask(port: int, *parts: bytes) -> Reply:
    """Send one request, however large, over a connection of its own; the reply has no body."""
    began_at = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", port), _LOST_SECONDS) as own:
            for part in parts:
                own.sendall(part)
            status = int(own.recv(_READ_BYTES)[9:12] or b"0")
    except OSError:
        status = 0
    return Reply(0, status, time.perf_counter() - began_at)
