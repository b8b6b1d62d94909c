"""Responses as bytes: the headers that every response has, and refusals that are encoded once and sent often."""

from functools import lru_cache
from http import HTTPStatus

from dragoman.server.limits import ErrorFormat
from dragoman.server.problems import Problem

_CONTENT_SECURITY_POLICY = (
    b"default-src 'self'; img-src 'self' data: blob:; media-src blob:; base-uri 'none'; form-action 'self'; "
    b"object-src 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", _CONTENT_SECURITY_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"microphone=(self)"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_ID_PLACEHOLDER = "0" * 16  # as long as a request id


def encode_refusal(
    problem: Problem, request_id: str, *, close: bool, has_body: bool = True, error_format: ErrorFormat = "dragoman"
) -> bytes:
    """Return a complete response; `has_body` is false in the response to HEAD."""
    headers = tuple(sorted((problem.headers or {}).items()))
    key = (problem.status, problem.code, problem.message, problem.field, headers, close, error_format)
    head, body_start, body_end = _encode_parts(*key)
    encoded_id = request_id.encode()
    response_head = head + encoded_id + b"\r\n\r\n"
    return response_head + body_start + encoded_id + body_end if has_body else response_head


@lru_cache(maxsize=256)
def _encode_parts(
    status: int,
    code: str,
    message: str,
    field: str | None,
    headers: tuple[tuple[str, str], ...],
    close: bool,
    error_format: ErrorFormat,
) -> tuple[bytes, bytes, bytes]:
    """Return the head up to the request id, and the body before and after it."""
    body = Problem(status, code, message, field=field).body(_ID_PLACEHOLDER, error_format)
    body_start, _, body_end = body.partition(_ID_PLACEHOLDER.encode())
    named = [(name.encode(), value.encode()) for name, value in headers]
    named += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *SECURITY_HEADERS]
    if close:
        named.append((b"connection", b"close"))
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), *(b": ".join(header) for header in named)]
    return b"\r\n".join([*lines, b"x-request-id: "]), body_start, body_end
