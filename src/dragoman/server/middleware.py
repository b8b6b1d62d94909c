"""ASGI middleware in front of the application: access, admission, body size, timeouts, headers, metrics, log.

The order is: host, origin, token; room in the queue; the size of the body as announced; then the application, whose
`receive` counts the body and limits its time. All checks of the head are in `check_head`, which a connection calls
before it starts a task. Every response gets the same headers. No response and no log line repeats what was sent.
"""

import asyncio
import ipaddress
import logging
import os
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import lru_cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.server.access import AccessPolicy, token_required
from dragoman.server.admission import Admission
from dragoman.server.connections import ConnectionTable
from dragoman.server.limits import ErrorFormat, Limits, RouteLimits
from dragoman.server.metrics import ServerMetrics
from dragoman.server.problems import Problem, deadline_exceeded, internal_error
from dragoman.server.responses import SECURITY_HEADERS

logger = logging.getLogger("dragoman.server")

_DISCARD_SECONDS = 5.0  # to read the rest of a refused body: a client that is still sending would not see the response


class _ResponseStarted(Exception):
    """A request failed after the response had begun; the connection is closed."""


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: RouteLimits) -> None:
        self.scope, self.receive, self.send, self.limits = scope, receive, send, limits
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.request_id = os.urandom(8).hex()
        self.started_at = time.perf_counter()
        self.status = 0  # 0: no response has begun
        self.code = ""
        self.close_connection = False
        has_body = self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers
        self.has_unread_body = has_body
        self.body_bytes = 0
        self.app_scope = scope  # as the application sees it
        self.on_body_received: Callable[[int], None] = lambda _count: None
        self.on_body_complete: Callable[[], None] = lambda: None

    async def receive_body(self) -> Message:
        """Receive an event for the application; raise a problem if the body is too large."""
        event = await self.receive()
        if event["type"] == "http.request" and self.has_unread_body:
            received = len(event.get("body", b""))
            self.body_bytes += received
            self.on_body_received(received)
            if self.body_bytes > self.limits.body_bytes:
                raise _body_too_large(self.limits)
            if not event.get("more_body", False):
                self.has_unread_body = False
                self.on_body_complete()
        return event

    async def send_event(self, event: Message) -> None:
        """Send an event of the response; add headers to the first, and discard an unread body before the last."""
        if event["type"] == "http.response.start":
            self.status = event["status"]
            headers = [*_allow_head(event), *SECURITY_HEADERS, (b"x-request-id", self.request_id.encode())]
            if self.close_connection or self.has_unread_body:
                headers.append((b"connection", b"close"))
            event = {**event, "headers": headers}
            if self.scope["method"] == "HEAD":  # ends here; a stream would go on
                await self.send(event)
                event = {"type": "http.response.body", "body": b"", "more_body": False}
        elif self.scope["method"] == "HEAD":
            return
        elif self.has_unread_body and not event.get("more_body", False):
            await self.send({**event, "more_body": True})
            await self._discard_body()
            event = {"type": "http.response.body", "body": b"", "more_body": False}
        await self.send(event)

    async def send_problem(self, problem: Problem) -> None:
        """Answer with a problem, unless a response has begun."""
        if self.status:
            raise _ResponseStarted
        self.code = problem.code
        if problem.status != 408:
            await self._discard_body(seconds=0)  # keeps the connection if the whole body has arrived
        body = problem.body(self.request_id, self.limits.error_format)
        headers = {**(problem.headers or {}), "content-type": "application/json", "content-length": str(len(body))}
        raw_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send_event({"type": "http.response.start", "status": problem.status, "headers": raw_headers})
        await self.send_event({"type": "http.response.body", "body": body})

    async def _discard_body(self, seconds: float = _DISCARD_SECONDS) -> None:
        if b"expect" in self.headers or self.status == 408:
            return  # the client waits for "100 Continue", or has stopped sending
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.has_unread_body:
                    event = await self.receive()
                    self.has_unread_body = event["type"] == "http.request" and event.get("more_body", False)


class GuardMiddleware:
    """Checks and limits every request before the application sees it."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        access: AccessPolicy,
        *,
        routes: Mapping[str, RouteLimits] | None = None,
        behind_proxy: bool = False,
    ) -> None:
        self.app = app
        self.access = access
        self.routes = routes or {}
        self.default_limits = RouteLimits.default(limits)
        self.behind_proxy = behind_proxy
        self.admission = Admission(limits)
        self.connections = ConnectionTable(limits, self)
        self.metrics = ServerMetrics()
        self.on_deadline: Callable[[], None] = lambda: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        exchange = _Exchange(scope, receive, send, self._limits_of(scope))
        exchange.close_connection = self.connections.is_draining
        try:
            await self._handle(exchange)
        except (_ResponseStarted, asyncio.CancelledError):
            self.metrics.abandoned += 1
        finally:
            self._record(exchange)

    def check_head(self, scope: Scope) -> Problem | None:
        """Return why a request is refused because of its head, if it is; note in its state what the rest needs."""
        headers, limits = dict(scope["headers"]), self._limits_of(scope)
        try:
            self.access.check_host([value for name, value in scope["headers"] if name == b"host"])
            self.access.check_origin(headers)
            is_authorized = self.access.has_valid_token(headers)
            if not is_authorized and not limits.accepts_api_key:
                raise token_required()
            client = self._client_address(scope, headers)
            if limits.is_queued and scope["method"] == "POST":
                self.admission.check(client)
            _check_body(headers, limits)
        except Problem as problem:
            return problem
        scope["state"] |= {"is_authorized": is_authorized, "client": client}
        return None

    def admit(self, scope: Scope) -> Problem | None:
        """Queue a request that has arrived completely, or return why not; other routes need no place in the queue."""
        if not (self._limits_of(scope).is_queued and scope["method"] == "POST"):
            return None
        place = ExitStack()
        try:
            place.enter_context(self.admission.admit(scope["state"]["client"]))
        except Problem as problem:
            return problem
        scope["state"]["place"] = place
        return None

    def error_format(self, scope: Scope) -> ErrorFormat:
        """Return the form of error responses to a request."""
        return self._limits_of(scope).error_format

    def release(self, scope: Scope) -> None:
        """Give back the place in the queue of a request, if it still has one."""
        if place := scope["state"].pop("place", None):
            place.close()

    async def _handle(self, exchange: _Exchange) -> None:
        try:
            await self._check_and_forward(exchange)
        except Problem as problem:
            await exchange.send_problem(problem)
        except TimeoutError:
            if not exchange.has_unread_body:
                self.on_deadline()
                await exchange.send_problem(deadline_exceeded())
            else:
                message = "The body of the request did not arrive in time."
                await exchange.send_problem(Problem(408, "slow_body", message))
        except _ResponseStarted:
            raise
        except Exception as error:
            logger.error("request %s failed: %s", exchange.request_id, _error_location(error))
            if not exchange.status:
                await exchange.send_problem(internal_error())

    async def _check_and_forward(self, exchange: _Exchange) -> None:
        scope, limits = exchange.scope, exchange.limits
        if "is_authorized" not in scope["state"] and (problem := self.check_head(scope)):
            raise problem
        scope["state"] |= {"request_id": exchange.request_id, "code": "", "error_format": limits.error_format}
        if scope["method"] == "HEAD":
            scope = exchange.app_scope = {**scope, "method": "GET"}

        with ExitStack() as stack:
            stack.callback(self.release, scope)
            async with asyncio.timeout(limits.body_seconds) as timeout:

                def on_body_complete() -> None:
                    incomplete_body.close()
                    timeout.reschedule(asyncio.get_running_loop().time() + limits.deadline_seconds)
                    if "place" not in scope["state"] and (problem := self.admit(scope)):
                        raise problem

                incomplete_body = stack.enter_context(ExitStack())
                if exchange.has_unread_body and not limits.is_stored:
                    incomplete_body.callback(lambda: self.connections.count_body(-exchange.body_bytes))
                    exchange.on_body_received = self.connections.count_body
                if exchange.has_unread_body:
                    exchange.on_body_complete = on_body_complete
                else:
                    on_body_complete()
                await self.app(scope, exchange.receive_body, exchange.send_event)

    def _limits_of(self, scope: Scope) -> RouteLimits:
        return self.routes.get(scope["path"], self.default_limits)

    def _client_address(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
        """Return the client's address; None for this machine, whose requests may be anyone's behind a proxy."""
        peer = (scope.get("client") or ("",))[0]
        if self.behind_proxy:
            forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1")
            peer = forwarded.rpartition(",")[2].strip() or peer
        return None if _is_loopback(peer) else peer

    def record_refusal(self, scope: Scope, problem: Problem, request_id: str) -> None:
        """Count and log a request that was refused because of its head."""
        route = scope["path"] if scope["path"] in self.routes else "other"
        self._record_response(request_id, scope["method"], route, problem.status, 0.0, problem.code)

    def _record(self, exchange: _Exchange) -> None:
        """Count and log the response, without anything from the request but its method and route."""
        route = getattr(exchange.app_scope.get("route"), "path", "other")
        code = exchange.code or exchange.scope["state"].get("code", "")
        seconds, status = time.perf_counter() - exchange.started_at, exchange.status or 499
        self._record_response(exchange.request_id, exchange.scope["method"], route, status, seconds, code)

    def _record_response(
        self, request_id: str, method: str, route: str, status: int, seconds: float, code: str
    ) -> None:
        self.metrics.record_response(route, status, seconds)
        if code:
            self.metrics.rejections[code] += 1
        logger.info("%s %s %s %d %.1f ms %s", request_id, method, route, status, 1000 * seconds, code)


def _check_body(headers: Mapping[bytes, bytes], limits: RouteLimits) -> None:
    """Refuse a body that is compressed or that is too large by its own account."""
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Problem(415, "packed_body", "Content-Encoding is not supported; send the body uncompressed.")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length[:20]) > limits.body_bytes:
        raise _body_too_large(limits)


def _body_too_large(limits: RouteLimits) -> Problem:
    return Problem(413, "too_large", f"The body may have at most {limits.body_bytes} bytes.")


def _allow_head(event: Message) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response, with HEAD among the allowed methods where GET is."""
    is_refusal = event["status"] == 405
    return [
        (name, value + b", HEAD" if is_refusal and name == b"allow" and value == b"GET" else value)
        for name, value in event.get("headers", ())
    ]


@lru_cache(maxsize=4096)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _error_location(error: BaseException) -> str:
    """Return the type and location of an exception; its message may contain what a client has sent."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return f"{type(error).__name__} at " + ", ".join(f"{frame.name}:{frame.lineno}" for frame in frames)
