"""What happens to a connection before and beside the requests on it; none of it reaches an ASGI application.

uvicorn parses requests, but waits for their headers without end, sets no bound to their size, keeps what a client does
not read, and counts connections without telling slow ones from busy ones. This class adds the clock and the counting.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.server.limits import Limits
from dragoman.server.problems import Problem

HEADER_BYTES = 32 << 10
HEADERS = 100
OVERHEAD_BYTES = 2 << 20  # of a request, beside its body: headers, and the marks of very small chunks
DISCARDED_BYTES = 64 << 20  # the same while the rest of a refused body is thrown away
TURNED_AWAY = 1024  # connections that are told at a time that there is no room
PATIENCE_SECONDS = 0.25  # before a connection that has not been heard yet may lose its place to another
SWEEP_SECONDS = 0.25


def canned(status: bytes, problem: Problem) -> bytes:
    """Return a whole answer that needs no application, after which the connection closes."""
    body = problem.body("")
    lines = [b"HTTP/1.1 " + status, b"connection: close", b"x-content-type-options: nosniff"]
    lines += [name + b": " + value for name, value in problem.headers()]
    return b"\r\n".join([*lines, b"content-length: " + str(len(body)).encode(), b"", body])


NO_ROOM = canned(
    b"503 Service Unavailable", Problem(503, "busy", "There are too many connections at once.", retry_after=1)
)
NO_REQUEST = canned(b"400 Bad Request", Problem(400, "not_http", "That was no HTTP request."))


class Connection(HttpToolsProtocol):
    """One connection: waits for a request, answers it, waits for the next."""

    def __init__(self, *, limits: Limits, turned_away: set["Connection"], **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self.limits = limits
        self.turned_away = turned_away
        self.listening = True  # for the head of a request
        self.evictable = True  # as long as the request is not whole
        self.since = self.loop.time()  # it began to do so
        self.begun_at: float | None = None  # when the first byte of the request came
        self.received = 0  # bytes of the request that are not its body
        self.answers = 0
        self.stuck_at: float | None = None  # since when the client has not taken what was written
        self.discarding = False
        self.task: asyncio.Task[Any] | None = None  # that is to end when the client goes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection in, in the place of a slow one if need be, or turn it away."""
        if len(self.connections) >= self.limits.connections and not self.make_room():
            self.turn_away(transport)
            return
        super().connection_made(transport)

    def make_room(self) -> bool:
        """Drop whoever has waited longest without a whole request; one that never asked anything goes first.

        Nobody is dropped who came just now: in a crowd each would be pushed out by the next before it is heard.
        """
        before = self.loop.time() - PATIENCE_SECONDS
        own = (each for each in self.connections if isinstance(each, Connection))
        waiting = [each for each in own if each.evictable and (each.heard or each.since < before)]
        if not waiting:
            return False
        victim = min(waiting, key=lambda each: (each.answers > 0, each.since))
        self.connections.discard(victim)
        victim.transport.abort()
        return True

    def turn_away(self, transport: asyncio.Transport) -> None:
        """Say that there is no room; the answer arrives only if the request is read before the end."""
        self.transport = transport
        if len(self.turned_away) >= TURNED_AWAY:
            transport.abort()
            return
        self.turned_away.add(self)
        self.since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what was being done for the client."""
        if self in self.turned_away:
            self.turned_away.discard(self)
            return
        if self.flow is None:
            return
        super().connection_lost(exc)
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        """Count what comes, and parse it."""
        if self in self.turned_away:
            self.transport.write(NO_ROOM)
            self.transport.close()
            return
        if self.flow is None:
            return
        if self.begun_at is None:
            self.begun_at = self.loop.time()
        self.received += len(data)
        super().data_received(data)
        self.check_size()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Answer what cannot be parsed in the shape of our other errors."""
        self.transport.write(NO_REQUEST)
        self.transport.close()

    def check_size(self) -> None:
        """Drop a client whose headers, or whose marks between chunks, have no end."""
        most = DISCARDED_BYTES if self.discarding else HEADER_BYTES if self.listening else OVERHEAD_BYTES
        if self.received > most:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Tell the application which connection a request came on."""
        super().on_message_begin()
        self.scope["dragoman.connection"] = self  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, if there are not too many."""
        if len(self.headers) >= HEADERS:
            self.transport.abort()
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the clock for the head of the request."""
        self.listening = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, which the guard counts."""
        self.received -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Regard the client as one that knows what it wants."""
        self.evictable = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.answers += 1
        self.listening = self.evictable = not self.pipeline  # where the next request may be already
        self.begun_at, self.discarding, self.received = None, False, 0
        self.since = self.loop.time()
        super().on_response_complete()

    def sweep(self, now: float) -> None:
        """Drop a client that is too slow to ask, or too slow to listen."""
        if self.listening and now > self.head_due:
            self.transport.abort()
        if not self.transport.get_write_buffer_size():
            self.stuck_at = None
        elif self.stuck_at is None:
            self.stuck_at = now
        elif now - self.stuck_at > self.limits.write_seconds:
            self.transport.abort()

    @property
    def heard(self) -> bool:
        """Say whether anything has ever been read from the client."""
        return self.begun_at is not None or self.answers > 0

    @property
    def head_due(self) -> float:
        """Return when the head of a request must be there: a while after its first byte, or after we began to wait."""
        if self.begun_at is not None:
            return self.begun_at + self.limits.header_seconds
        return self.since + (self.limits.idle_seconds if self.answers else self.limits.header_seconds)


async def keep_sweeping(connections: set[Any], turned_away: set[Connection], limits: Limits) -> None:
    """Look at every connection now and then."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        now = loop.time()
        for connection in list(connections):
            connection.sweep(now)
        for connection in list(turned_away):
            if now - connection.since > limits.header_seconds:
                connection.transport.abort()
