"""What the routes share: the service as a dependency, JSON responses, validation errors."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from dragoman.server.limits import Limits
from dragoman.server.problems import Problem
from dragoman.server.schemas import FIELD_NAMES, ErrorResponse
from dragoman.server.service import TranslationService

_ALWAYS = (401, 403, 421, 503)
_WITH_BODY = (400, 408, 413, 415, 422, 429)


async def _get_service(request: Request) -> TranslationService:
    """Return the service of the application."""
    service: TranslationService = request.app.state.service
    return service


Service = Annotated[TranslationService, Depends(_get_service)]


def error_responses(*codes: int, body: bool = False) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route for the description of the API."""
    all_codes = {*_ALWAYS, *codes, *(_WITH_BODY if body else ())}
    return {code: {"model": ErrorResponse} for code in sorted(all_codes)}


def json_response(content: Any, limits: Limits, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; raise a problem if it is too large."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    if len(body) > limits.response_bytes:
        message = f"The response would have more than {limits.response_bytes} bytes; send fewer texts or options."
        raise Problem(422, "answer_too_large", message)
    return Response(body, media_type="application/json", headers=headers)


def validation_problem(errors: Sequence[Mapping[str, Any]], status: int) -> Problem:
    """Return the problem for pydantic's errors, without any value that the client has sent."""
    first = errors[0]
    if first["type"] == "unknown_field":
        return Problem(status, "invalid", first["msg"], field=first["ctx"]["name"])
    if first["type"] == "extra_forbidden":
        return Problem(status, "invalid", "Unknown field; /docs lists the fields of each route.")
    if first["type"] == "json_invalid":
        return Problem(status, "not_json", "The body is not valid JSON.")
    path = [str(part) for part in first["loc"] if isinstance(part, int) or part in FIELD_NAMES]
    return Problem(status, "invalid", f"{first['msg']}.", field=".".join(path) or None)
