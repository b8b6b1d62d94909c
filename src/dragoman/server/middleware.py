"""The guard: a plain ASGI application in front of the other, past which nothing too large, too slow or too much comes.

In this order: the host, the origin, the token; room for the request; its body, counted while it is read, within its
time; then the application, within its deadline. Every answer leaves with the same headers. No answer and no log line
repeats what a client has sent.
"""

import asyncio
import ipaddress
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from dragoman.server.access import AccessPolicy, Headers, unauthorized
from dragoman.server.admission import Admission
from dragoman.server.connections import Connection
from dragoman.server.forms import api_key
from dragoman.server.limits import Limits
from dragoman.server.metrics import ServerMetrics
from dragoman.server.problems import Problem, deadline_exceeded, internal_error

_Scope = MutableMapping[str, Any]
_AsgiEvent = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_AsgiEvent]]
_Send = Callable[[_AsgiEvent], Awaitable[None]]
_AsgiApp = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

logger = logging.getLogger("dragoman.server")

_DECODING_PATHS = frozenset({"/translate", "/detect", "/v1/translate", "/v1/attention"})  # what the worker is asked for
_API_KEY_PATHS = frozenset({"/translate", "/detect", "/languages", "/frontend/settings"})  # LibreTranslate's way
_DISCARD_SECONDS = 5.0  # to throw the rest of a refused body away, so that the client reads the answer
_CONTENT_SECURITY_POLICY = (
    b"default-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'self'; object-src 'none'; "
    b"frame-ancestors 'none'"
)
_SECURITY_HEADERS = [
    (b"content-security-policy", _CONTENT_SECURITY_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class _ClientDisconnected(Exception):
    """The client has gone away."""


@dataclass
class _Exchange:
    """One request on its way through."""

    scope: _Scope
    receive: _Receive
    send: _Send
    headers: Headers
    draining: bool = False
    request_id: str = field(default_factory=lambda: os.urandom(8).hex())
    started_at: float = field(default_factory=time.perf_counter)
    status: int = 0  # 0: nothing has been answered
    code: str = ""
    has_unread_body: bool = True  # the body, or the rest of it

    def __post_init__(self) -> None:
        connection = self.scope.get("dragoman.connection")
        self.connection = connection if isinstance(connection, Connection) else None

    @property
    def has_whole_body(self) -> bool:
        """Say whether the whole body is there, read or not."""
        return not self.has_unread_body or (self.connection is not None and not self.connection.is_evictable)

    async def send_response_event(self, event: _AsgiEvent) -> None:
        """Pass an event of the answer on, with our headers."""
        if event["type"] == "http.response.start":
            self.status = event["status"]
            own = [*event.get("headers", ()), *_SECURITY_HEADERS, (b"x-request-id", self.request_id.encode())]
            event["headers"] = [*own, (b"connection", b"close")] if self.draining or self.has_unread_body else own
        await self.send(event)

    async def send_problem(self, problem: Problem) -> None:
        """Answer with a problem, unless something has been answered already; then the connection just ends."""
        if self.status:
            raise _ClientDisconnected
        self.code = problem.code
        self.has_unread_body = not self.has_whole_body
        body = problem.body(self.request_id)
        headers = [*problem.headers(), (b"content-length", str(len(body)).encode())]
        await self.send_response_event({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": self.has_unread_body})
        if self.has_unread_body:
            if problem.status != 408:  # of a body that does not come there is nothing to throw away
                await self.discard_body()
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def discard_body(self) -> None:
        """Throw the rest of the body away: a client that is still sending would not see an answer."""
        if self.headers.get(b"expect"):
            return  # and has not been told to go on
        if self.connection:
            self.connection.is_discarding = True
        with suppress(TimeoutError, _ClientDisconnected):
            async with asyncio.timeout(_DISCARD_SECONDS):
                while await self.next_body_chunk() is not None:
                    pass

    async def next_body_chunk(self) -> bytes | None:
        """Return some more of the body, None after its end."""
        if not self.has_unread_body:
            return None
        event = await self.receive()
        if event["type"] == "http.disconnect":
            raise _ClientDisconnected
        self.has_unread_body = event.get("more_body", False)
        return bytes(event.get("body", b""))


class GuardMiddleware:
    """Stands before the application."""

    def __init__(self, app: _AsgiApp, limits: Limits, access: AccessPolicy, *, behind_proxy: bool = False) -> None:
        self.app = app
        self.limits = limits
        self.access = access
        self.behind_proxy = behind_proxy
        self.admission = Admission(limits)
        self.metrics = ServerMetrics()
        self.draining = False
        self.on_deadline: Callable[[], None] = lambda: None  # what to do when a deadline has passed

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Let one request through, or answer it here."""
        if scope["type"] != "http":
            return
        visit = _Exchange(scope, receive, send, dict(scope["headers"]), self.draining)
        if visit.connection:
            visit.connection.request_task = asyncio.current_task()
        try:
            await self.handle(visit)
        except (_ClientDisconnected, asyncio.CancelledError):
            self.metrics.abandoned += 1
        finally:
            if visit.connection:
                visit.connection.request_task = None
            self.record_response(visit)

    async def handle(self, exchange: _Exchange) -> None:
        """Answer a request, with a problem if need be."""
        try:
            await self.admit_and_forward(exchange)
        except Problem as problem:
            await exchange.send_problem(problem)
        except TimeoutError:
            self.on_deadline()
            await exchange.send_problem(deadline_exceeded())
        except _ClientDisconnected:
            raise
        except Exception as error:
            logger.error("request %s failed: %s", exchange.request_id, _error_location(error))
            if not exchange.status:
                await exchange.send_problem(internal_error())

    async def admit_and_forward(self, exchange: _Exchange) -> None:
        """Check a request, read it and hand it on."""
        self.access.check_host(exchange.headers)
        self.access.check_origin(exchange.headers)
        work, client = (
            exchange.scope["path"] in _DECODING_PATHS and exchange.scope["method"] == "POST",
            self.client_address(exchange),
        )
        shown = self.access.has_valid_token(exchange.headers)
        if not shown and exchange.scope["path"] not in _API_KEY_PATHS:
            raise unauthorized()
        if work:
            self.admission.check(client)
        body = await self.read_body(exchange)
        if not shown and not self.access.matches_token(api_key(body, exchange.headers, exchange.scope["query_string"])):
            raise unauthorized()
        exchange.scope["state"] |= {"body": body, "request_id": exchange.request_id, "code": ""}
        with self.admission.admit(client) if work else nullcontext():
            async with asyncio.timeout(self.limits.deadline_seconds):
                await self.app(exchange.scope, exchange.receive, exchange.send_response_event)

    async def read_body(self, exchange: _Exchange) -> bytes:
        """Return the whole body, if it is not too large, not packed and not too slow."""
        if exchange.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Problem(415, "packed_body", "Send the body as it is, without a Content-Encoding.")
        length = exchange.headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self.limits.body_bytes:
            raise self.body_too_large()
        if exchange.has_whole_body:
            return await self.read_bounded_body(exchange)
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                return await self.read_bounded_body(exchange)
        except TimeoutError:
            raise Problem(408, "slow_body", "The body of the request did not arrive in time.") from None

    async def read_bounded_body(self, exchange: _Exchange) -> bytes:
        """Read the body and count it, whatever its length was said to be."""
        parts: list[bytes] = []
        size = 0
        while (part := await exchange.next_body_chunk()) is not None:
            parts.append(part)
            size += len(part)
            if size > self.limits.body_bytes:
                raise self.body_too_large()
        return b"".join(parts)

    def body_too_large(self) -> Problem:
        """Return the answer to a body that is too large."""
        return Problem(413, "too_large", f"The body of a request may have {self.limits.body_bytes} bytes at most.")

    def client_address(self, exchange: _Exchange) -> str | None:
        """Say whose request it is; this machine's own are not counted, as they may be anyone's behind a proxy."""
        peer = (exchange.scope.get("client") or ("",))[0]
        if self.behind_proxy:
            peer = exchange.headers.get(b"x-forwarded-for", b"").decode("latin-1").rpartition(",")[2].strip() or peer
        try:
            return None if ipaddress.ip_address(peer).is_loopback else peer
        except ValueError:
            return peer

    def record_response(self, exchange: _Exchange) -> None:
        """Count the answer and, if somebody listens, log it: never what was asked."""
        route = getattr(exchange.scope.get("route"), "path", "other")
        seconds = time.perf_counter() - exchange.started_at
        self.metrics.record_response(route, exchange.status or 499, seconds)
        code = exchange.code or exchange.scope["state"].get("code", "")
        if code:
            self.metrics.rejections[code] += 1
        logger.info(
            "%s %s %s %d %.1f ms %s",
            exchange.request_id, exchange.scope["method"], route, exchange.status or 499, 1000 * seconds, code,
        )  # fmt: skip


def _error_location(error: BaseException) -> str:
    """Say what kind of error it was and where; its own words may hold what a client has sent."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return f"{type(error).__name__} at " + ", ".join(f"{frame.name}:{frame.lineno}" for frame in frames)
