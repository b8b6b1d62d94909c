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

from dragoman.server.admission import Admission
from dragoman.server.connections import Connection
from dragoman.server.doors import Doors, Headers, closed
from dragoman.server.forms import api_key
from dragoman.server.limits import Limits
from dragoman.server.metrics import Metrics
from dragoman.server.problems import Problem, internal, late

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("dragoman.server")

WORK = frozenset({"/translate", "/detect", "/v1/translate", "/v1/attention"})  # what the worker is asked for
WITH_KEY_INSIDE = frozenset({"/translate", "/detect", "/languages", "/frontend/settings"})  # LibreTranslate's way
DISCARD_SECONDS = 5.0  # to throw the rest of a refused body away, so that the client reads the answer
POLICY = (
    b"default-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'self'; object-src 'none'; "
    b"frame-ancestors 'none'"
)
SAFETY = [
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Gone(Exception):
    """The client has gone away."""


@dataclass
class Visit:
    """One request on its way through."""

    scope: Scope
    receive: Receive
    send: Send
    headers: Headers
    draining: bool = False
    request_id: str = field(default_factory=lambda: os.urandom(8).hex())
    began_at: float = field(default_factory=time.perf_counter)
    status: int = 0  # 0: nothing has been answered
    code: str = ""
    unread: bool = True  # the body, or the rest of it

    def __post_init__(self) -> None:
        connection = self.scope.get("dragoman.connection")
        self.connection = connection if isinstance(connection, Connection) else None

    @property
    def arrived(self) -> bool:
        """Say whether the whole body is there, read or not."""
        return not self.unread or (self.connection is not None and not self.connection.evictable)

    async def answer(self, event: Event) -> None:
        """Pass an event of the answer on, with our headers."""
        if event["type"] == "http.response.start":
            self.status = event["status"]
            own = [*event.get("headers", ()), *SAFETY, (b"x-request-id", self.request_id.encode())]
            event["headers"] = [*own, (b"connection", b"close")] if self.draining or self.unread else own
        await self.send(event)

    async def refuse(self, problem: Problem) -> None:
        """Answer with a problem, unless something has been answered already; then the connection just ends."""
        if self.status:
            raise Gone
        self.code = problem.code
        self.unread = not self.arrived
        body = problem.body(self.request_id)
        headers = [*problem.headers(), (b"content-length", str(len(body)).encode())]
        await self.answer({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": self.unread})
        if self.unread:
            if problem.status != 408:  # of a body that does not come there is nothing to throw away
                await self.discard()
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def discard(self) -> None:
        """Throw the rest of the body away: a client that is still sending would not see an answer."""
        if self.headers.get(b"expect"):
            return  # and has not been told to go on
        if self.connection:
            self.connection.discarding = True
        with suppress(TimeoutError, Gone):
            async with asyncio.timeout(DISCARD_SECONDS):
                while await self.part() is not None:
                    pass

    async def part(self) -> bytes | None:
        """Return some more of the body, None after its end."""
        if not self.unread:
            return None
        event = await self.receive()
        if event["type"] == "http.disconnect":
            raise Gone
        self.unread = event.get("more_body", False)
        return bytes(event.get("body", b""))


class Guard:
    """Stands before the application."""

    def __init__(self, app: App, limits: Limits, doors: Doors, *, behind_proxy: bool = False) -> None:
        self.app = app
        self.limits = limits
        self.doors = doors
        self.behind_proxy = behind_proxy
        self.admission = Admission(limits)
        self.metrics = Metrics()
        self.draining = False
        self.overdue: Callable[[], None] = lambda: None  # what to do when a deadline has passed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or answer it here."""
        if scope["type"] != "http":
            return
        visit = Visit(scope, receive, send, dict(scope["headers"]), self.draining)
        if visit.connection:
            visit.connection.task = asyncio.current_task()
        try:
            await self.attended(visit)
        except (Gone, asyncio.CancelledError):
            self.metrics.abandoned += 1
        finally:
            if visit.connection:
                visit.connection.task = None
            self.note(visit)

    async def attended(self, visit: Visit) -> None:
        """Answer a request, with a problem if need be."""
        try:
            await self.admitted(visit)
        except Problem as problem:
            await visit.refuse(problem)
        except TimeoutError:
            self.overdue()
            await visit.refuse(late())
        except Gone:
            raise
        except Exception as error:
            LOG.error("request %s failed: %s", visit.request_id, where(error))
            if not visit.status:
                await visit.refuse(internal())

    async def admitted(self, visit: Visit) -> None:
        """Check a request, read it and hand it on."""
        self.doors.check_host(visit.headers)
        self.doors.check_origin(visit.headers)
        work, client = visit.scope["path"] in WORK and visit.scope["method"] == "POST", self.client(visit)
        shown = self.doors.admits(visit.headers)
        if not shown and visit.scope["path"] not in WITH_KEY_INSIDE:
            raise closed()
        if work:
            self.admission.check(client)
        body = await self.body(visit)
        if not shown and not self.doors.is_token(api_key(body, visit.headers, visit.scope["query_string"])):
            raise closed()
        visit.scope["state"] |= {"body": body, "request_id": visit.request_id, "code": ""}
        with self.admission.inside(client) if work else nullcontext():
            async with asyncio.timeout(self.limits.deadline_seconds):
                await self.app(visit.scope, visit.receive, visit.answer)

    async def body(self, visit: Visit) -> bytes:
        """Return the whole body, if it is not too large, not packed and not too slow."""
        if visit.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Problem(415, "packed_body", "Send the body as it is, without a Content-Encoding.")
        length = visit.headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self.limits.body_bytes:
            raise self.too_large()
        if visit.arrived:
            return await self.counted(visit)
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                return await self.counted(visit)
        except TimeoutError:
            raise Problem(408, "slow_body", "The body of the request did not arrive in time.") from None

    async def counted(self, visit: Visit) -> bytes:
        """Read the body and count it, whatever its length was said to be."""
        parts: list[bytes] = []
        size = 0
        while (part := await visit.part()) is not None:
            parts.append(part)
            size += len(part)
            if size > self.limits.body_bytes:
                raise self.too_large()
        return b"".join(parts)

    def too_large(self) -> Problem:
        """Return the answer to a body that is too large."""
        return Problem(413, "too_large", f"The body of a request may have {self.limits.body_bytes} bytes at most.")

    def client(self, visit: Visit) -> str | None:
        """Say whose request it is; this machine's own are not counted, as they may be anyone's behind a proxy."""
        peer = (visit.scope.get("client") or ("",))[0]
        if self.behind_proxy:
            peer = visit.headers.get(b"x-forwarded-for", b"").decode("latin-1").rpartition(",")[2].strip() or peer
        try:
            return None if ipaddress.ip_address(peer).is_loopback else peer
        except ValueError:
            return peer

    def note(self, visit: Visit) -> None:
        """Count the answer and, if somebody listens, log it: never what was asked."""
        route = getattr(visit.scope.get("route"), "path", "other")
        seconds = time.perf_counter() - visit.began_at
        self.metrics.answered(route, visit.status or 499, seconds)
        code = visit.code or visit.scope["state"].get("code", "")
        if code:
            self.metrics.refused[code] += 1
        LOG.info(
            "%s %s %s %d %.1f ms %s",
            visit.request_id, visit.scope["method"], route, visit.status or 499, 1000 * seconds, code,
        )  # fmt: skip


def where(error: BaseException) -> str:
    """Say what kind of error it was and where; its own words may hold what a client has sent."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return f"{type(error).__name__} at " + ", ".join(f"{frame.name}:{frame.lineno}" for frame in frames)
