"""What happens to a connection before and beside the requests on it; none of it reaches an ASGI application.

uvicorn parses requests, but waits for their headers without end, sets no bound to their size, keeps what a client does
not read, and counts connections without telling slow ones from busy ones. This class adds the clock and the counting.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.server.limits import Limits
from dragoman.server.problems import Problem

_MAX_HEADER_BYTES = 32 << 10
_MAX_HEADERS = 100
_MAX_OVERHEAD_BYTES = 2 << 20  # of a request, beside its body: headers, and the marks of very small chunks
_MAX_DISCARDED_BYTES = 64 << 20  # the same while the rest of a refused body is thrown away
_MAX_REJECTED = 1024  # connections that are told at a time that there is no room
_EVICTION_GRACE_SECONDS = 0.25  # before a connection that has not been heard yet may lose its place to another
_SWEEP_INTERVAL_SECONDS = 0.25


def _static_response(status: bytes, problem: Problem) -> bytes:
    """Return a whole answer that needs no application, after which the connection closes."""
    body = problem.body("")
    lines = [b"HTTP/1.1 " + status, b"connection: close", b"x-content-type-options: nosniff"]
    lines += [name + b": " + value for name, value in problem.headers()]
    return b"\r\n".join([*lines, b"content-length: " + str(len(body)).encode(), b"", body])


_TOO_MANY_CONNECTIONS = _static_response(
    b"503 Service Unavailable", Problem(503, "busy", "There are too many connections at once.", retry_after=1)
)
_BAD_REQUEST = _static_response(b"400 Bad Request", Problem(400, "not_http", "That was no HTTP request."))


class Connection(HttpToolsProtocol):
    """One connection: waits for a request, answers it, waits for the next."""

    def __init__(self, *, limits: Limits, rejected: set["Connection"], **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self.limits = limits
        self.rejected = rejected
        self.is_reading_head = True  # for the head of a request
        self.is_evictable = True  # as long as the request is not whole
        self.wait_started_at = self.loop.time()  # it began to do so
        self.request_started_at: float | None = None  # when the first byte of the request came
        self.overhead_bytes = 0  # bytes of the request that are not its body
        self.responses_sent = 0
        self.write_blocked_at: float | None = None  # since when the client has not taken what was written
        self.is_discarding = False
        self.request_task: asyncio.Task[Any] | None = None  # that is to end when the client goes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection in, in the place of a slow one if need be, or turn it away."""
        if len(self.connections) >= self.limits.connections and not self.evict_idle_connection():
            self.reject(transport)
            return
        super().connection_made(transport)

    def evict_idle_connection(self) -> bool:
        """Drop whoever has waited longest without a whole request; one that never asked anything goes first.

        Nobody is dropped who came just now: in a crowd each would be pushed out by the next before it is heard.
        """
        before = self.loop.time() - _EVICTION_GRACE_SECONDS
        own = (each for each in self.connections if isinstance(each, Connection))
        waiting = [each for each in own if each.is_evictable and (each.has_sent_data or each.wait_started_at < before)]
        if not waiting:
            return False
        victim = min(waiting, key=lambda each: (each.responses_sent > 0, each.wait_started_at))
        self.connections.discard(victim)
        victim.transport.abort()
        return True

    def reject(self, transport: asyncio.Transport) -> None:
        """Say that there is no room; the answer arrives only if the request is read before the end."""
        self.transport = transport
        if len(self.rejected) >= _MAX_REJECTED:
            transport.abort()
            return
        self.rejected.add(self)
        self.wait_started_at = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what was being done for the client."""
        if self in self.rejected:
            self.rejected.discard(self)
            return
        if self.flow is None:
            return
        super().connection_lost(exc)
        if self.request_task is not None:
            self.request_task.cancel()

    def data_received(self, data: bytes) -> None:
        """Count what comes, and parse it."""
        if self in self.rejected:
            self.transport.write(_TOO_MANY_CONNECTIONS)
            self.transport.close()
            return
        if self.flow is None:
            return
        if self.request_started_at is None:
            self.request_started_at = self.loop.time()
        self.overhead_bytes += len(data)
        super().data_received(data)
        self.check_size()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Answer what cannot be parsed in the shape of our other errors."""
        self.transport.write(_BAD_REQUEST)
        self.transport.close()

    def check_size(self) -> None:
        """Drop a client whose headers, or whose marks between chunks, have no end."""
        most = (
            _MAX_DISCARDED_BYTES
            if self.is_discarding
            else _MAX_HEADER_BYTES
            if self.is_reading_head
            else _MAX_OVERHEAD_BYTES
        )
        if self.overhead_bytes > most:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Tell the application which connection a request came on."""
        super().on_message_begin()
        self.scope["dragoman.connection"] = self  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, if there are not too many."""
        if len(self.headers) >= _MAX_HEADERS:
            self.transport.abort()
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the clock for the head of the request."""
        self.is_reading_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, which the guard counts."""
        self.overhead_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Regard the client as one that knows what it wants."""
        self.is_evictable = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.responses_sent += 1
        self.is_reading_head = self.is_evictable = not self.pipeline  # where the next request may be already
        self.request_started_at, self.is_discarding, self.overhead_bytes = None, False, 0
        self.wait_started_at = self.loop.time()
        super().on_response_complete()

    def enforce_timeouts(self, now: float) -> None:
        """Drop a client that is too slow to ask, or too slow to listen."""
        if self.is_reading_head and now > self.head_deadline:
            self.transport.abort()
        if not self.transport.get_write_buffer_size():
            self.write_blocked_at = None
        elif self.write_blocked_at is None:
            self.write_blocked_at = now
        elif now - self.write_blocked_at > self.limits.write_seconds:
            self.transport.abort()

    @property
    def has_sent_data(self) -> bool:
        """Say whether anything has ever been read from the client."""
        return self.request_started_at is not None or self.responses_sent > 0

    @property
    def head_deadline(self) -> float:
        """Return when the head of a request must be there: a while after its first byte, or after we began to wait."""
        if self.request_started_at is not None:
            return self.request_started_at + self.limits.header_seconds
        return self.wait_started_at + (self.limits.idle_seconds if self.responses_sent else self.limits.header_seconds)


async def sweep_connections(connections: set[Any], rejected: set[Connection], limits: Limits) -> None:
    """Look at every connection now and then."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_SWEEP_INTERVAL_SECONDS)
        now = loop.time()
        for connection in list(connections):
            connection.sweep(now)
        for connection in list(rejected):
            if now - connection.wait_started_at > limits.header_seconds:
                connection.transport.abort()
