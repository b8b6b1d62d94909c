"""What can be wrong with a request, as an exception and as JSON. Nothing that a client has sent is ever in it."""

import json
from typing import Any


class Problem(Exception):
    """An answer other than the one that was asked for."""

    def __init__(
        self, status: int, code: str, message: str, *, field: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.retry_after = retry_after

    def body(self, request_id: str) -> bytes:
        """Return the JSON of the answer; `error` is all that LibreTranslate's clients look for."""
        said: dict[str, Any] = {"error": self.message, "code": self.code, "field": self.field, "request_id": request_id}
        return json.dumps(said, ensure_ascii=False).encode()

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that belong to the answer."""
        found = [(b"content-type", b"application/json")]
        if self.retry_after is not None:
            found.append((b"retry-after", str(self.retry_after).encode()))
        if self.status == 401:
            found.append((b"www-authenticate", b'Basic realm="dragoman", charset="UTF-8"'))
        return found


def server_busy(retry_after: int = 1) -> Problem:
    """Return the answer to a request for which there is no room."""
    return Problem(503, "busy", "The translator has as much work as it can finish in time.", retry_after=retry_after)


def worker_restarting() -> Problem:
    """Return the answer to requests whose worker died."""
    return Problem(503, "restarting", "The translator was interrupted and is starting again.", retry_after=2)


def deadline_exceeded() -> Problem:
    """Return the answer to a request that was not finished in time."""
    return Problem(503, "deadline", "The translation was not finished in time.", retry_after=5)


def internal_error() -> Problem:
    """Return the answer for a fault of ours."""
    return Problem(500, "internal", "A fault of ours; the server's log has the request id.")
