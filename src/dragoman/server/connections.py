"""The open connections of a server: how many there may be, which one makes room, and how long each may take."""

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.server.limits import ErrorFormat, Limits
from dragoman.server.problems import Problem

if TYPE_CHECKING:
    from dragoman.server.protocol import Connection

MAX_SURPLUS = 256  # connections above the limit, which get a 503
_EVICTION_GRACE_SECONDS = 0.25  # in which a waiting connection is not closed in favour of another
_CHECK_INTERVAL_SECONDS = 0.25
_CLOSED_SHARE = 1 / 32  # of the connections that may be open, per check: whoever is closed often returns at once

_Scope = dict[str, Any]


class Guard(Protocol):
    """What decides about the requests of all connections: `GuardMiddleware`."""

    def check_head(self, scope: _Scope) -> Problem | None:
        """Return why a request is refused because of its head, if it is."""

    def admit(self, scope: _Scope) -> Problem | None:
        """Queue a request that has arrived completely, or return why not."""

    def error_format(self, scope: _Scope) -> ErrorFormat:
        """Return the form of error responses to a request."""

    def release(self, scope: _Scope) -> None:
        """Give back the place in the queue of a request, if it still has one."""

    def record_refusal(self, scope: _Scope, problem: Problem, request_id: str) -> None:
        """Count and log a request that was refused."""


class ConnectionTable:
    """The open connections, and those of them without a complete request in the order in which they began to wait."""

    def __init__(self, limits: Limits, guard: Guard) -> None:
        self.limits, self.guard = limits, guard
        self.is_draining = False  # every response closes its connection
        self.body_bytes = 0  # received in bodies that are not complete
        self._open: dict[Connection, None] = {}
        self._waiting: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: "Connection") -> None:
        """Add a connection. Above the limit it replaces the one that has waited longest for a request, if any."""
        if len(self) >= self.limits.connections:
            connection.is_surplus = not self._evict_one()
            if len(self) >= self.limits.connections + MAX_SURPLUS:
                connection.transport.abort()
                return
        self._open[connection] = None
        self.mark_waiting(connection)

    def remove(self, connection: "Connection") -> None:
        """Forget a closed connection."""
        self._open.pop(connection, None)
        self._waiting.pop(connection, None)

    def mark_waiting(self, connection: "Connection") -> None:
        """Note that a connection begins to wait: for a request, or for the rest of one."""
        if connection in self._open:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None
            connection.waiting_since = connection.loop.time()

    def mark_busy(self, connection: "Connection") -> None:
        """Note that the whole request of a connection has arrived; it is not closed in favour of others."""
        self._waiting.pop(connection, None)

    def count_body(self, received: int) -> None:
        """Count bytes of incomplete bodies; too many close the connection that has waited longest with one."""
        self.body_bytes += received
        if received > 0 and self.body_bytes > self.limits.queued_requests * self.limits.body_bytes:
            sender = next((each for each in self._waiting if each.is_receiving_body), None)
            if sender:
                self.remove(sender)
                sender.transport.abort()

    def _evict_one(self) -> bool:
        """Close the connection that has waited longest for a request, if it has not begun just now.

        In a crowd each new connection would otherwise be replaced by the next before its request has been read.
        """
        longest = next(iter(self._waiting), None)
        if longest is None or longest.waiting_since > longest.loop.time() - _EVICTION_GRACE_SECONDS:
            return False
        self.remove(longest)
        longest.transport.abort()
        return True

    def enforce_timeouts(self, now: float) -> None:
        """Close connections that are too slow or idle for too long, those that were opened first before the others.

        Not all at once: if a thousand clients came back together, the others would have to wait for them.
        """
        allowed = max(16, round(_CLOSED_SHARE * self.limits.connections))
        for connection in list(self._open):
            if allowed > 0:
                allowed -= connection.enforce_timeouts(self.limits, now)

    async def enforce_timeouts_forever(self) -> None:
        """Check the timeouts of all connections at regular intervals."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
            self.enforce_timeouts(loop.time())
