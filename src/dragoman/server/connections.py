"""Timeouts and the number of connections, which uvicorn does not limit.

uvicorn waits for the head of a request without end, sets no bound to its size, keeps what a client does not read, and
counts slow connections like busy ones. `Connection` overrides only the methods of `asyncio.Protocol`; the middleware
tells it when a request begins and ends.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.server.limits import Limits

_MAX_HEAD_BYTES = 32 << 10  # that have arrived before the head of a request is complete
_MAX_SURPLUS = 1024  # connections above the limit, which get a 503
_EVICTION_GRACE_SECONDS = 0.25  # in which a new connection is not closed in favour of another
_CHECK_INTERVAL_SECONDS = 0.25


class Connection(HttpToolsProtocol):
    """One connection: waits for a request, answers it, waits for the next."""

    def __init__(self, table: "ConnectionTable", **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self.table = table
        self.is_surplus = False  # above the limit of connections
        self.is_evictable = True  # no complete request has arrived
        self.responses_sent = 0
        self.request_task: asyncio.Task[Any] | None = None  # None: the head of a request is expected
        self.waiting_since = self.loop.time()
        self.head_started_at: float | None = None
        self.head_bytes = 0
        self.write_blocked_at: float | None = None  # since when the client has not read what was written

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Add the connection to the table."""
        super().connection_made(transport)
        self.table.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request that is being answered."""
        super().connection_lost(exc)
        self.table.remove(self)
        if self.request_task is not None:
            self.request_task.cancel()

    def data_received(self, data: bytes) -> None:
        """Abort the connection if the head of a request is too large; otherwise parse the data."""
        if self.request_task is None:
            if self.head_bytes > _MAX_HEAD_BYTES:
                self.transport.abort()
                return
            self.head_bytes += len(data)
            if self.head_started_at is None:
                self.head_started_at = self.loop.time()
        if not self.transport.is_closing():
            super().data_received(data)

    def begin_request(self) -> None:
        """Note that the head is complete and the current task answers the request."""
        self.request_task = asyncio.current_task()

    def end_request(self) -> None:
        """Note that the response is complete, and wait for the next request."""
        self.request_task, self.is_evictable = None, True
        self.responses_sent += 1
        self.waiting_since, self.head_started_at, self.head_bytes = self.loop.time(), None, 0

    def enforce_timeouts(self, limits: Limits, now: float) -> None:
        """Abort the connection if its client sends the head of a request, or reads a response, too slowly."""
        if self.request_task is None and now > self._head_deadline(limits):
            self.transport.abort()
        if not self.transport.get_write_buffer_size():
            self.write_blocked_at = None
        elif self.write_blocked_at is None:
            self.write_blocked_at = now
        elif now - self.write_blocked_at > limits.write_seconds:
            self.transport.abort()

    def _head_deadline(self, limits: Limits) -> float:
        if self.head_started_at is not None:
            return self.head_started_at + limits.header_seconds
        return self.waiting_since + (limits.idle_seconds if self.responses_sent else limits.header_seconds)


class ConnectionTable:
    """The open connections of a server, by the address of the client."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.by_client: dict[Any, Connection] = {}

    def __len__(self) -> int:
        return len(self.by_client)

    def create_protocol(self, **uvicorn_arguments: Any) -> Connection:
        """Return the protocol of a new connection; uvicorn calls this."""
        return Connection(self, **uvicorn_arguments)

    def find(self, scope: Mapping[str, Any]) -> Connection | None:
        """Return the connection of a request."""
        return self.by_client.get(scope.get("client"))

    def add(self, connection: Connection) -> None:
        """Add a connection. Above the limit it replaces the one that has waited longest without a request, if any."""
        if len(self) >= self.limits.connections:
            accepted = [other for other in self.by_client.values() if not other.is_surplus]
            connection.is_surplus = len(accepted) >= self.limits.connections and not self._evict_one(accepted)
            if len(self) >= self.limits.connections + _MAX_SURPLUS:
                connection.transport.abort()
                return
        self.by_client[connection.client] = connection

    def remove(self, connection: Connection) -> None:
        """Forget a closed connection."""
        if self.by_client.get(connection.client) is connection:
            del self.by_client[connection.client]

    def _evict_one(self, connections: list[Connection]) -> bool:
        """Abort the connection that has waited longest for a request; those without any request so far go first.

        A connection that was opened just now is not aborted: in a crowd, each would be replaced by the next before its
        request has been read.
        """
        before = asyncio.get_running_loop().time() - _EVICTION_GRACE_SECONDS
        idle = [
            connection
            for connection in connections
            if connection.is_evictable
            and (connection.head_started_at or connection.responses_sent or connection.waiting_since < before)
        ]
        if not idle:
            return False
        victim = min(idle, key=lambda connection: (connection.responses_sent > 0, connection.waiting_since))
        self.remove(victim)
        victim.transport.abort()
        return True

    async def enforce_timeouts_forever(self) -> None:
        """Check the timeouts of all connections at regular intervals."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
            now = loop.time()
            for connection in list(self.by_client.values()):
                connection.enforce_timeouts(self.limits, now)
