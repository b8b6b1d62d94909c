"""Error responses, as exceptions and as JSON. They never contain anything that a client has sent."""

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dragoman.server.limits import ErrorFormat

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Problem(HTTPException):
    """An error response: status, a code for programs, a message for people, the field that is wrong."""

    def __init__(
        self, status: int, code: str, message: str, *, field: str | None = None, retry_after: int | None = None
    ) -> None:
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        if status == 401:
            headers["www-authenticate"] = 'Basic realm="dragoman", charset="UTF-8"'
        super().__init__(status, message, headers)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message

    def body(self, request_id: str, error_format: ErrorFormat = "dragoman") -> bytes:
        """Return the JSON of the response; LibreTranslate's clients read `error` only."""
        content: dict[str, Any] = {
            "error": self.message,
            "code": self.code,
            "field": self.field,
            "request_id": request_id,
        }
        if error_format == "openai":
            kind = _OPENAI_TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
            error = {"message": self.message, "type": kind, "param": self.field, "code": self.code}
            content = {"error": error, "request_id": request_id}
        return json.dumps(content, ensure_ascii=False).encode()


def server_busy(retry_after: int = 1) -> Problem:
    """Return the response to a request that cannot be queued."""
    return Problem(503, "busy", "The server is busy; try again later.", retry_after=retry_after)


def worker_restarting() -> Problem:
    """Return the response to requests whose worker died."""
    return Problem(503, "restarting", "The worker is restarting; try again later.", retry_after=2)


def deadline_exceeded() -> Problem:
    """Return the response to a request that was not finished in time."""
    return Problem(503, "deadline", "The request timed out.", retry_after=5)


def internal_error() -> Problem:
    """Return the response to an exception in the server."""
    return Problem(500, "internal", "Internal server error; the server log has details under this request id.")


async def http_error_response(request: Request, error: Exception) -> Response:
    """Answer with a problem, or with an error of the framework in the same form."""
    assert isinstance(error, HTTPException), f"expected HTTPException, got {type(error).__name__}"
    problem = error
    if not isinstance(problem, Problem):
        message = _FRAMEWORK_MESSAGES.get(error.status_code, "The request cannot be answered.")
        problem = Problem(error.status_code, "http", message)
    request.state.code = problem.code
    headers = {**(error.headers or {}), **(problem.headers or {}), "content-type": "application/json"}
    body = problem.body(request.state.request_id, request.state.error_format)
    return Response(body, problem.status, headers)


async def _internal_error_response(request: Request, _error: Exception) -> Response:
    """Answer with a 500; the middleware logs the exception."""
    return await http_error_response(request, internal_error())


_FRAMEWORK_MESSAGES = {
    400: "The request cannot be parsed.",
    404: "This path does not exist.",
    405: "This path does not support that method.",
}
EXCEPTION_HANDLERS: dict[Any, Any] = {HTTPException: http_error_response, Exception: _internal_error_response}
