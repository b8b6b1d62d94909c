"""One HTTP connection: uvicorn's protocol with what uvicorn has no setting for.

- The head of a request has bounds: its size (431), the number and size of its fields (431), its URL (414), its time.
- A request that is refused because of its head, or because the queue is full, needs no task: the response is written
  while the request is parsed, and the connection is kept. Under overload most requests end here.
- A refusal that closes the connection is followed by a pause in which the rest of the request is read and dropped: if
  the socket were closed with unread data, the client might not see the response.
- A client that has shut down its sending side is answered. Whether it has gone altogether shows only when something is
  written, so after a while it is sent an interim response, which every client of HTTP/1.1 has to skip.
"""

import asyncio
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dragoman.server.limits import Limits
from dragoman.server.problems import Problem
from dragoman.server.responses import CONTINUE, encode_refusal

if TYPE_CHECKING:
    from dragoman.server.connections import ConnectionTable

_MAX_HEAD_BYTES = 32 << 10
_MAX_FIELD_BYTES = 8 << 10  # name and value of one header field
_MAX_FIELDS = 100
_MAX_URL_BYTES = 8 << 10
_MAX_PIPELINED = 16  # requests that have arrived while another one is being answered
_LINGER_SECONDS = 5.0  # to read what a refused client still sends
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # struct linger
_PROBE_SECONDS = 0.1  # after which a client that sends no more is sent an interim response


class _Refused(Exception):
    """Raised in a callback of the parser to end parsing; the problem is stored in the connection."""


class Connection(HttpToolsProtocol):
    """Waits for a request, answers or refuses it, waits for the next."""

    in_head: bool  # the head of a request is expected or arriving, not its body
    has_encoded_body: bool
    head_bytes: int
    field_count: int
    head_started_at: float | None

    def __init__(self, table: "ConnectionTable", **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self.table = table
        self.is_surplus = False  # above the limit of connections
        self.waiting_since = 0.0
        self.responses_sent = 0
        self.running_cycle: RequestResponseCycle | None = None  # whose request the application is answering
        self.request_task: asyncio.Task[None] | None = None
        self.unstarted_app: Any = None  # that will answer the running cycle: its task starts when the input is parsed
        self.is_discarding = False  # what arrives is dropped: the connection is closed after the last response
        self.is_half_closed = False  # the client sends no more
        self.linger_until: float | None = None
        self.write_blocked_at: float | None = None  # since when the client has not read what was written
        self.head_problem: Problem | None = None
        self._expect_head()

    # ---- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Add the connection to the table."""
        super().connection_made(transport)
        self.table.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request that is being answered."""
        super().connection_lost(exc)
        self.table.remove(self)
        self._abandon_request()

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived; refuse what is not valid HTTP or exceeds a bound."""
        if self.is_discarding or self.transport.is_closing():
            return
        try:
            self._parse(data)
        except httptools.HttpParserUpgrade:
            self._accept_no_more()  # the request is answered as if it had not asked for another protocol
        except httptools.HttpParserError:
            if not self.is_discarding:
                self._refuse_input(self.head_problem or Problem(400, "invalid", "This is not a valid HTTP request."))
        self._start_task()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep a connection whose client sends no more while a complete request is being answered."""
        if self.running_cycle is None or not self.in_head or self.is_half_closed:
            return False
        self.is_half_closed = True
        self._accept_no_more()
        self.loop.call_later(_PROBE_SECONDS, self._probe_client)
        return True

    def enforce_timeouts(self, limits: Limits, now: float) -> bool:
        """Close the connection if its client sends the head of a request, or reads a response, too slowly."""
        if self.is_half_closed:
            self._check_client()
        if not self.transport.get_write_buffer_size():
            self.write_blocked_at = None
        elif self.write_blocked_at is None:
            self.write_blocked_at = now
        if self.write_blocked_at is not None and now - self.write_blocked_at > limits.write_seconds:
            self._reset()
        elif self.linger_until is not None:
            if now > self.linger_until:
                self._reset()
        elif self.running_cycle is None and now > self._head_deadline(limits):
            if self.head_started_at is None:
                self.transport.close()
            else:
                self._reset()
        return self.transport.is_closing()

    def _reset(self) -> None:
        """Abort the connection; the system drops what the client has not read."""
        own = self.transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()

    # ---- parsing

    def on_url(self, url: bytes) -> None:
        """Collect the URL up to its bound."""
        super().on_url(url)
        if len(self.url) > _MAX_URL_BYTES:
            raise self._bad_head(Problem(414, "long_url", f"The URL may have at most {_MAX_URL_BYTES} bytes."))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header field; fields after the body are counted and dropped."""
        self.field_count += 1
        if self.field_count > _MAX_FIELDS or len(name) + len(value) > _MAX_FIELD_BYTES:
            raise self._bad_head(_head_too_large())
        if self.in_head:
            super().on_header(name, value)
            self.has_encoded_body |= self.headers[-1][0] == b"transfer-encoding"

    def on_headers_complete(self) -> None:
        """Start or refuse the request."""
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise self._bad_head(Problem(505, "http_version", "Only HTTP/1.1 and HTTP/1.0 are supported."))
        if self.has_encoded_body and (version == "1.0" or not _is_chunked(self.headers)):
            raise self._bad_head(Problem(400, "invalid", "The only supported Transfer-Encoding is chunked."))
        if self.is_discarding or len(self.pipeline) >= _MAX_PIPELINED:
            raise self._bad_head(_too_many_connections())
        self.in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the whole request has arrived."""
        super().on_message_complete()
        if self.running_cycle is not None:
            self.table.mark_busy(self)
        if self.running_cycle is self.cycle:
            self.flow.resume_reading()  # paused by a large body: that the client has gone would not be noticed
        self._expect_head()
        self._start_task()

    @property
    def is_receiving_body(self) -> bool:
        """Whether a part of a body has not arrived yet."""
        return not self.in_head

    def _parse(self, data: bytes) -> None:
        if self.in_head:
            if self.head_started_at is None:
                self.head_started_at = self.loop.time()
                if self.running_cycle is None:
                    self.table.mark_waiting(self)
            allowed = _MAX_HEAD_BYTES - self.head_bytes
            head, data = (data, b"") if len(data) <= allowed else (data[:allowed], data[allowed:])
            self.head_bytes += len(head)
            self.parser.feed_data(head)
            if self.in_head and self.head_bytes >= _MAX_HEAD_BYTES:
                self.head_problem = _head_too_large()
                raise httptools.HttpParserError
        if data:
            self.parser.feed_data(data)

    def _expect_head(self) -> None:
        self.in_head, self.has_encoded_body = True, False
        self.head_bytes = self.field_count = 0
        self.head_started_at = None

    def _bad_head(self, problem: Problem) -> Exception:
        self.head_problem = problem
        return _Refused()

    def _head_deadline(self, limits: Limits) -> float:
        if self.head_started_at is not None:
            return self.head_started_at + limits.header_seconds
        return self.waiting_since + (limits.idle_seconds if self.responses_sent else limits.header_seconds)

    # ---- answering

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        problem = _too_many_connections() if self.is_surplus else self.table.guard.check_head(cycle.scope)  # type: ignore[arg-type]
        if problem is not None:
            self._refuse_request(cycle, problem)
            return
        self.running_cycle, self.unstarted_app = cycle, app
        if not cycle.more_body:  # it has waited for the response to another request
            self._start_task()

    def _start_task(self) -> None:
        """Start the task of a request, if one is due; a request that has arrived completely is admitted before."""
        cycle, app = self.running_cycle, self.unstarted_app
        if cycle is None or app is None:
            return
        self.unstarted_app = None
        if not cycle.more_body and (problem := self.table.guard.admit(cycle.scope)):  # type: ignore[arg-type]
            self.running_cycle = None
            self._refuse_request(cycle, problem)
            return
        task = self.request_task = self.loop.create_task(cycle.run_asgi(app))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(lambda _task: self.table.guard.release(cycle.scope))  # type: ignore[arg-type]

    def on_response_complete(self) -> None:
        """Answer the next request that has arrived, or wait for one."""
        self.running_cycle = self.request_task = None
        self.responses_sent += 1
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.table.mark_waiting(self)
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.is_discarding:
            self._linger()

    def _refuse_request(self, cycle: RequestResponseCycle, problem: Problem) -> None:
        """Answer without the application; the body is parsed and dropped."""
        request_id, scope = os.urandom(8).hex(), cycle.scope
        limit = self.table.limits.body_bytes
        close = (
            problem.status == 400
            or self.is_surplus
            or self.table.is_draining
            or not cycle.keep_alive
            or cycle.waiting_for_100_continue
            or self.transport.get_write_buffer_size() > 0  # the client sends requests and reads no responses
            or any(_is_long_body(name, value, limit) for name, value in scope["headers"])
        )
        has_body = scope["method"] != "HEAD"
        error_format = self.table.guard.error_format(scope)  # type: ignore[arg-type]
        refusal = encode_refusal(problem, request_id, close=close, has_body=has_body, error_format=error_format)
        self.transport.write(refusal)
        self.table.guard.record_refusal(scope, problem, request_id)  # type: ignore[arg-type]
        cycle.response_started = cycle.response_complete = True
        if close:
            self._accept_no_more()
            self.pipeline.clear()
        self.on_response_complete()

    def _refuse_input(self, problem: Problem) -> None:
        """Answer what cannot be parsed; if a request before it is being answered, close after that."""
        is_within_body = not self.in_head
        self._accept_no_more()
        if self.running_cycle is not None and not is_within_body:
            return
        if self.running_cycle is not None and self.running_cycle.response_started:
            self.transport.abort()
            return
        self._abandon_request()  # its body will never be complete
        request_id = os.urandom(8).hex()
        self.transport.write(encode_refusal(problem, request_id, close=True))
        self.table.guard.record_refusal({"method": "-", "path": ""}, problem, request_id)
        self._linger()

    def _abandon_request(self) -> None:
        if self.running_cycle is not None:
            self.running_cycle.disconnected = self.running_cycle.response_complete = True
        if self.request_task is not None:
            self.request_task.cancel()
        self.running_cycle = self.request_task = self.unstarted_app = None

    def _accept_no_more(self) -> None:
        """Drop what arrives from now on, and close the connection after the last response."""
        self.is_discarding = True
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _linger(self) -> None:
        """Close the connection when the client has closed it, or after a while."""
        if self.is_half_closed:
            self.transport.close()
        elif self.linger_until is None and not self.transport.is_closing():
            self.linger_until = self.loop.time() + _LINGER_SECONDS
            self.transport.write_eof()

    # ---- clients that have shut down their sending side

    def _probe_client(self) -> None:
        cycle = self.running_cycle
        if cycle is None or self.transport.is_closing():
            return
        if not cycle.response_started and cycle.scope["http_version"] == "1.1":
            self.transport.write(CONTINUE)
        self.loop.call_later(_PROBE_SECONDS, self._check_client)

    def _check_client(self) -> None:
        """Abort the connection if the client has answered to the last write that it is gone."""
        own = self.transport.get_extra_info("socket")
        if not self.transport.is_closing() and own.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()


def _is_chunked(headers: list[tuple[bytes, bytes]]) -> bool:
    return [value.lower() for name, value in headers if name == b"transfer-encoding"] == [b"chunked"]


def _is_long_body(name: bytes, value: bytes, limit: int) -> bool:
    """Return whether a header says that the body is longer than what is read only to keep the connection."""
    return name == b"transfer-encoding" or (name == b"content-length" and int(value) > limit)


def _head_too_large() -> Problem:
    message = f"The header may have at most {_MAX_FIELDS} fields of {_MAX_FIELD_BYTES} bytes, {_MAX_HEAD_BYTES} in all."
    return Problem(431, "large_header", message)


def _too_many_connections() -> Problem:
    return Problem(503, "busy", "Too many connections.", retry_after=1)
