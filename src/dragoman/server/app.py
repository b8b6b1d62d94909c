"""The routes: read the request, call one function, write the answer."""

import json
from collections.abc import AsyncIterator, MutableMapping
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Send

from dragoman import __version__
from dragoman.server import libretranslate
from dragoman.server.api_docs import render_api_docs
from dragoman.server.forms import parse_fields
from dragoman.server.problems import Problem, internal_error
from dragoman.server.schemas import (
    AttentionRequest,
    DetectedLanguage,
    DetectRequest,
    ErrorResponse,
    LibreLanguage,
    LibreTranslateRequest,
    LibreTranslateResponse,
    StrictRequest,
    TranslateRequest,
    TranslateResponse,
)
from dragoman.server.service import TranslationService

RequestModel = TypeVar("RequestModel", bound=BaseModel)

_PAGE_DIR = Path(str(files("dragoman.server"))) / "page"
_VIEWER_DIR = Path(str(files("dragoman.viewer"))) / "static"


async def translate(request: Request) -> Response:
    """Translate a text or several, or do what else a model does: n-best, scores, pieces; or as a stream of events."""
    asked = _parse_json(request, TranslateRequest)
    if asked.stream:
        return await _event_stream_response(_get_service(request).stream(asked))
    return _json_response(request, await _get_service(request).translate(asked))


async def attention(request: Request) -> Response:
    """Show one translation from inside: every attention weight, the alignment, the tree of hypotheses."""
    return _json_response(
        request, await _get_service(request).inspect_translation(_parse_json(request, AttentionRequest))
    )


async def report(request: Request) -> Response:
    """Return what was measured about the heads of a model."""
    return _json_response(request, await _get_service(request).head_report(request.query_params.get("model")))


async def checkpoints(request: Request) -> Response:
    """List the checkpoints that a model's run has."""
    return _json_response(request, await _get_service(request).checkpoints(request.query_params.get("model")))


async def info(request: Request) -> Response:
    """Return what is served, and within which limits."""
    return _json_response(request, _get_service(request).info())


async def libre_translate(request: Request) -> Response:
    """Translate a text or several, as LibreTranslate does."""
    return _json_response(
        request, await libretranslate.translate(_get_service(request), _parse_form(request, LibreTranslateRequest))
    )


async def libre_detect(request: Request) -> Response:
    """Say which of the languages that are served a text is in."""
    return _json_response(request, await _get_service(request).detect_language(_parse_form(request, DetectRequest).q))


async def libre_languages(request: Request) -> Response:
    """List the languages, as LibreTranslate does."""
    return _json_response(request, libretranslate.languages(_get_service(request)))


async def libre_settings(request: Request) -> Response:
    """Tell LibreTranslate's pages what they may do."""
    return _json_response(
        request, libretranslate.frontend_settings(_get_service(request), key_required=request.app.state.key_required)
    )


async def health(request: Request) -> Response:
    """Answer 200 if a real translation passes."""
    well = await _get_service(request).is_healthy()
    return JSONResponse({"healthy": well}, 200 if well else 503, headers={} if well else {"retry-after": "2"})


async def readiness(request: Request) -> Response:
    """Answer 200 if requests are welcome: the models are loaded, and nobody has asked the server to stop."""
    ready = _get_service(request).is_ready
    return JSONResponse({"ready": ready}, 200 if ready else 503, headers={} if ready else {"retry-after": "2"})


async def metrics(request: Request) -> Response:
    """Return counters for Prometheus."""
    return PlainTextResponse(_get_service(request).metrics.render(), media_type="text/plain; version=0.0.4")


async def api_docs_page(request: Request) -> Response:
    """Describe the API on one page."""
    return Response(render_api_docs(request.app.openapi()), media_type="text/html")


async def index_page(_request: Request) -> Response:
    """Return the page to use the models on."""
    return FileResponse(_PAGE_DIR / "index.html")


def _get_service(request: Request) -> TranslationService:
    """Return what answers requests."""
    found: TranslationService = request.app.state.service
    return found


def _parse_json(request: Request, schema: type[RequestModel]) -> RequestModel:
    """Read the JSON of a request."""
    if request.headers.get("content-type", "application/json").partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "content_type", "Send application/json.")
    try:
        return schema.model_validate_json(request.state.body)
    except ValidationError as error:
        raise _validation_problem(error, schema, 422) from None


def _parse_form(request: Request, schema: type[RequestModel]) -> RequestModel:
    """Read the form or the JSON of a request of LibreTranslate's; what is wrong with it is a 400 there."""
    fields = parse_fields(request.state.body, request.headers.get("content-type", ""), request.scope["query_string"])
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        raise _validation_problem(error, schema, 400) from None


def _validation_problem(error: ValidationError, schema: type[BaseModel], status: int) -> Problem:
    """Say what is wrong with a request, by our names of its fields and without what was in them."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    known = [str(part) for part in first["loc"] if isinstance(part, int) or part in schema.model_fields]
    if first["type"] == "extra_forbidden":
        return Problem(status, "invalid", f"Unknown field; there are {', '.join(schema.model_fields)}.")
    if first["type"] == "json_invalid":
        return Problem(status, "not_json", "The body is not valid JSON.")
    return Problem(status, "invalid", f"{first['msg']}.", field=".".join(known) or None)


def _json_response(request: Request, content: Any) -> Response:
    """Write an answer as JSON, unless it is too large."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    most = _get_service(request).limits.answer_bytes
    if len(body) > most:
        raise Problem(422, "answer_too_large", f"The answer would have more than {most} bytes; ask for less at a time.")
    return Response(body, media_type="application/json")


async def _event_stream_response(events: AsyncIterator[dict[str, Any]]) -> Response:
    """Write events as they come; what is wrong before the first is an ordinary answer."""
    first = await anext(events)

    async def written() -> AsyncIterator[bytes]:
        yield _format_event(first)
        try:
            async for each in events:
                yield _format_event(each)
        except Problem as problem:
            yield b"event: error\n" + _format_event({"error": problem.message, "code": problem.code})

    return StreamingResponse(written(), media_type="text/event-stream")


def _format_event(content: dict[str, Any]) -> bytes:
    """Write one event; the last, which has the whole answer, is called done."""
    name = b"event: done\n" if "translations" in content else b""
    return name + b"data: " + json.dumps(content, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


async def problem_response(request: Request, error: Exception) -> Response:
    """Answer with a problem."""
    assert isinstance(error, Problem), "registered for problems only"
    request.state.code = error.code
    headers = {name.decode(): value.decode() for name, value in error.headers()}
    return Response(error.body(request.state.request_id), error.status, headers)


async def http_error_response(request: Request, error: Exception) -> Response:
    """Turn what the router refuses into our shape, with the headers that it gives."""
    assert isinstance(error, HTTPException), "registered for these only"
    words = {404: "There is nothing at this address.", 405: "This address does not know that method."}
    answer = await problem_response(
        request, Problem(error.status_code, "http", words.get(error.status_code, "Not possible."))
    )
    answer.headers.update(error.headers or {})
    return answer


async def internal_error_response(request: Request, _error: Exception) -> Response:
    """Answer for a fault of ours; the guard logs it."""
    return await problem_response(request, internal_error())


def build_app(service: TranslationService, *, key_required: bool) -> FastAPI:
    """Put the routes together."""
    app = FastAPI(title="Dragoman", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.service, app.state.key_required = service, key_required
    for method, path, route, asked, answer in ROUTES:
        app.add_api_route(
            path, route, methods=[method], response_model=None, **_openapi_operation(route, asked, answer)
        )
    for path, folder in (("/page", _PAGE_DIR), ("/viewer", _VIEWER_DIR)):
        if folder.is_dir():
            app.mount(path, StaticFiles(directory=folder))
    for kind, handler in (
        (Problem, problem_response),
        (HTTPException, http_error_response),
        (Exception, internal_error_response),
    ):
        app.add_exception_handler(kind, handler)
    return app


class DirectRouter:
    """Calls a route by its very address, past FastAPI's layers; FastAPI has the files, and what has no route."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.routes = {(method, route.path): route for route in api_routes(app) for method in route.methods or ()}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; what is not a problem of the request is for the guard to catch."""
        route = self.routes.get((scope["method"], scope["path"]))
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["app"], scope["route"] = self.app, route
        request = Request(scope)
        try:
            response = await route.endpoint(request)
        except Problem as problem:
            response = await problem_response(request, problem)
        await response(scope, receive, send)


ROUTES: list[tuple[str, str, Any, type[BaseModel] | None, Any]] = [
    ("POST", "/v1/translate", translate, TranslateRequest, TranslateResponse),
    ("POST", "/v1/attention", attention, AttentionRequest, dict[str, Any]),
    ("GET", "/v1/report", report, None, dict[str, Any]),
    ("GET", "/v1/checkpoints", checkpoints, None, dict[str, Any]),
    ("GET", "/v1/info", info, None, dict[str, Any]),
    ("POST", "/translate", libre_translate, LibreTranslateRequest, LibreTranslateResponse),
    ("POST", "/detect", libre_detect, DetectRequest, list[DetectedLanguage]),
    ("GET", "/languages", libre_languages, None, list[LibreLanguage]),
    ("GET", "/frontend/settings", libre_settings, None, dict[str, Any]),
    ("GET", "/healthz", health, None, dict[str, Any]),
    ("GET", "/readyz", readiness, None, dict[str, Any]),
    ("GET", "/metrics", metrics, None, None),
    ("GET", "/docs", api_docs_page, None, None),
    ("GET", "/", index_page, None, None),
]
_UNDOCUMENTED_PATHS = {"/", "/docs"}
_MODEL_QUERY_PARAMETER = {
    "name": "model",
    "in": "query",
    "required": False,
    "schema": {"type": "string", "maxLength": 256},
}

_EVENT_SCHEMA = {  # before OpenAPI 3.2 the schema of a stream is that of each event
    "type": "object", "required": ["data"],
    "properties": {
        "event": {"type": "string", "enum": ["message", "done", "error"], "default": "message"},
        "data": {"type": "string", "description": "JSON: the text so far; with done the whole answer, with error why"},
    },
}  # fmt: skip


def _openapi_operation(route: Any, request_schema: type[BaseModel] | None, response_schema: Any) -> dict[str, Any]:
    """Return what the description of the API says about a route."""
    path = next(row[1] for row in ROUTES if row[2] is route)
    codes = (
        [401, 403, 421, 503]
        + ([400, 404, 408, 413, 415, 422, 429] if request_schema else [])
        + _EXTRA_STATUS_CODES.get(path, [])
    )
    responses: dict[int | str, dict[str, Any]] = {code: {"model": ErrorResponse} for code in sorted(set(codes))}
    responses[200] = (
        {"model": response_schema} if response_schema else {"content": {"text/plain": {"schema": {"type": "string"}}}}
    )
    if request_schema is TranslateRequest:  # with stream: true
        responses[200]["content"] = {"text/event-stream": {"schema": _EVENT_SCHEMA}}
    more: dict[str, Any] = {"parameters": [_MODEL_QUERY_PARAMETER]} if path in ("/v1/report", "/v1/checkpoints") else {}
    if request_schema:
        more["requestBody"] = {"required": True, "content": _request_body_content(request_schema)}
    return {"responses": responses, "openapi_extra": more, "include_in_schema": path not in _UNDOCUMENTED_PATHS}


_EXTRA_STATUS_CODES = {"/v1/report": [404], "/v1/checkpoints": [404]}


def _request_body_content(request_schema: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a body, for each way to send it."""
    schema = request_schema.model_json_schema(ref_template="#/components/schemas/{model}")
    kinds = (
        ["application/json"]
        if issubclass(request_schema, StrictRequest)
        else ["application/json", "application/x-www-form-urlencoded"]
    )
    return {kind: {"schema": schema} for kind in kinds}


def api_routes(app: FastAPI) -> list[APIRoute]:
    """Return the routes, to walk along them in a test."""
    return [route for route in app.routes if isinstance(route, APIRoute)]
