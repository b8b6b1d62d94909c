"""The FastAPI application: the routes of `/v1`, of operations and of the web page."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.staticfiles import StaticFiles

from dragoman import __version__
from dragoman.server import libretranslate, openai_audio
from dragoman.server.access import AccessPolicy
from dragoman.server.limits import Limits, RouteLimits
from dragoman.server.old_names import DEPRECATED_AT
from dragoman.server.problems import EXCEPTION_HANDLERS, Problem, http_error_response
from dragoman.server.schemas import (
    AttentionRequest,
    TranscribeRequest,
    TranscribeResponse,
    TranslateRequest,
    TranslateResponse,
    error_responses,
    json_response,
    validation_problem,
)
from dragoman.server.service import Service, TranslationService
from dragoman.server.uploads import describe_form, validate_fields

_PAGE_FILES = Path(str(files("dragoman.server"))) / "page"
_VIEWER_FILES = Path(str(files("dragoman.viewer"))) / "static"
_EVENT_SCHEMA = {  # before OpenAPI 3.2 the schema of a stream is that of each event
    "type": "object",
    "required": ["data"],
    "properties": {
        "event": {"type": "string", "enum": ["message", "done", "error"], "default": "message"},
        "data": {
            "type": "string",
            "description": "JSON: the text so far; the response if event is done; the error if event is error",
        },
    },
}
_TRANSLATE_RESPONSE = {"model": TranslateResponse, "content": {"text/event-stream": {"schema": _EVENT_SCHEMA}}}

router = APIRouter()


ModelName = Annotated[str | None, Query(max_length=256, description="name of the model; the first if omitted")]


# ---- models


@router.post("/v1/translate", responses={200: _TRANSLATE_RESPONSE, **error_responses(404, body=True)})
async def translate(body: TranslateRequest, service: Service) -> Response:
    """Translate one or several texts, or apply a model of another task to them; optionally as a stream of events."""
    if body.stream:
        return await _event_stream_response(service.stream(body))
    return json_response(await service.translate(body), service.limits)


@router.post(
    "/v1/transcribe",
    responses={200: {"model": TranscribeResponse}, **error_responses(404, body=True)},
    openapi_extra=describe_form(TranscribeRequest),
)
async def transcribe(request: Request, service: Service) -> Response:
    """Transcribe a recording: a WAV, FLAC, MP3 or OGG file in the field `file` of a form."""
    async with service.uploads.receive(request) as upload:
        answer = await service.transcribe(upload, validate_fields(TranscribeRequest, upload.fields))
        return json_response(answer, service.limits)


@router.post("/v1/attention", responses={200: {"model": dict[str, Any]}, **error_responses(404, body=True)})
async def attention(body: AttentionRequest, service: Service) -> Response:
    """Return the attention weights, the word alignment and the beam of one translation."""
    headers = {"deprecation": DEPRECATED_AT} if "without" in body.model_fields_set else None
    return json_response(await service.inspect_translation(body), service.limits, headers)


@router.get("/v1/report", responses={200: {"model": dict[str, Any]}, **error_responses(404, 422)})
async def report(service: Service, model: ModelName = None) -> Response:
    """Return the head report of a model, as `dragoman heads` measured it."""
    return json_response(await service.head_report(model), service.limits)


@router.get("/v1/checkpoints", responses={200: {"model": dict[str, Any]}, **error_responses(404, 422)})
async def checkpoints(service: Service, model: ModelName = None) -> Response:
    """List the checkpoints of a model's run."""
    return json_response(await service.checkpoints(model), service.limits)


@router.get("/v1/info", responses={200: {"model": dict[str, Any]}, **error_responses()})
async def info(service: Service) -> Response:
    """List the models and the limits."""
    return json_response(service.info(), service.limits)


# ---- operations


@router.get("/healthz", responses={200: {"model": dict[str, Any]}, **error_responses()})
async def health(service: Service) -> Response:
    """Return 200 if a translation succeeds, otherwise 503."""
    return _state_response("healthy", await service.is_healthy())


@router.get("/readyz", responses={200: {"model": dict[str, Any]}, **error_responses()})
async def readiness(service: Service) -> Response:
    """Return 200 if requests are accepted: the models are loaded and the server is not stopping; otherwise 503."""
    return _state_response("ready", service.is_ready)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **error_responses()},
)
async def metrics(service: Service) -> Response:
    """Return counters in the text format of Prometheus."""
    return PlainTextResponse(service.metrics.render(), media_type="text/plain; version=0.0.4")


# ---- pages


@router.get("/docs", include_in_schema=False)
async def api_docs_page(request: Request) -> Response:
    """Return a page that describes the API."""
    return Response(_render_api_docs(request.app.openapi()), media_type="text/html")


@router.get("/", include_in_schema=False)
async def index_page() -> Response:
    """Return the web page."""
    return FileResponse(_PAGE_FILES / "index.html")


def build_app(service: TranslationService, access: AccessPolicy) -> FastAPI:
    """Return the application. Access and limits are enforced by `GuardMiddleware` in front of it."""
    app = FastAPI(
        title="Dragoman",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=JSONResponse,
        strict_content_type=False,  # a missing Content-Type means JSON; the middleware refuses foreign origins
        exception_handlers={**EXCEPTION_HANDLERS, RequestValidationError: _validation_error_response},
    )
    app.state.service, app.state.access = service, access
    app.include_router(router)
    app.include_router(libretranslate.router)
    app.include_router(openai_audio.router)
    app.mount("/server/page", StaticFiles(directory=_PAGE_FILES))
    app.mount("/viewer/static", StaticFiles(directory=_VIEWER_FILES))
    return app


def route_limits(limits: Limits) -> dict[str, RouteLimits]:
    """Return the limits of the routes that differ from the default."""
    default = RouteLimits.default(limits)
    queued = replace(default, is_queued=True)
    return {
        "/v1/translate": queued,
        "/v1/attention": queued,
        "/v1/transcribe": RouteLimits.for_audio(limits),
        **openai_audio.route_limits(limits),
        **libretranslate.route_limits(default),
    }


async def _validation_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError), f"expected RequestValidationError, got {type(error).__name__}"
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json" and request.method == "POST":
        problem = Problem(415, "content_type", "Send application/json.")
    else:
        problem = validation_problem(error.errors(), 422)
    return await http_error_response(request, problem)


def _state_response(name: str, is_true: bool) -> Response:
    return JSONResponse({name: is_true}, 200 if is_true else 503, headers={} if is_true else {"retry-after": "2"})


async def _event_stream_response(events: AsyncIterator[dict[str, Any] | bytes]) -> Response:
    """Return a stream of server-sent events; an error before the first event is an ordinary error response."""
    first = await anext(events)

    async def encoded_events() -> AsyncIterator[bytes]:
        yield _encode_event(first)
        try:
            async for event in events:
                yield _encode_event(event)
        except Problem as problem:
            yield b"event: error\n" + _encode_event({"error": problem.message, "code": problem.code})

    return StreamingResponse(encoded_events(), media_type="text/event-stream")


def _encode_event(content: dict[str, Any] | bytes) -> bytes:
    """Return an event; the last one, the response, is encoded already."""
    if isinstance(content, bytes):
        return b"event: done\ndata: " + content + b"\n\n"
    return b"data: " + json.dumps(content, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


def _render_api_docs(description: dict[str, Any]) -> str:
    """Return the description of the API as plain HTML, without scripts and without a CDN."""
    schemas = description.get("components", {}).get("schemas", {})
    routes = [
        _render_route(method.upper(), path, operation, schemas)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Dragoman API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" type="image/svg+xml" href="server/page/icon.svg">'
        '<link rel="stylesheet" href="server/page/page.css"><main class="api"><h1>Dragoman API</h1>'
        '<p>The same as an OpenAPI description: <a href="openapi.json">openapi.json</a>. Errors have the fields '
        "<code>error</code>, <code>code</code>, <code>field</code> and <code>request_id</code>; 429 and 503 have a "
        "<code>Retry-After</code> header.</p>" + "".join(routes) + "</main></html>"
    )


def _render_route(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    content: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    schema: dict[str, Any] = next((body["schema"] for body in content.values()), {})
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    query = {parameter["name"]: parameter for parameter in operation.get("parameters", ())}
    rows = "".join(
        _render_field(name, field, name in required)
        for name, field in {**query, **schema.get("properties", {})}.items()
        if not field.get("deprecated")
    )
    title = "parameter" if query else "field"
    table = f"<table><tr><th>{title}<th>description<th>default</tr>{rows}</table>" if rows else ""
    formats = " or ".join(f"<code>{escape(name)}</code>" for name in content)
    body = f"<p>Body: {formats}</p>" if content else ""
    description = re.sub("`(.+?)`", r"<code>\1</code>", escape(operation.get("description", "")))
    return f"<h2><code>{method} {escape(path)}</code></h2><p>{description}</p>{body}{table}"


def _render_field(name: str, schema: dict[str, Any], required: bool) -> str:
    default = schema.get("default")
    shown = "required" if required else "" if default is None else f"<code>{escape(json.dumps(default))}</code>"
    return f"<tr><td><code>{escape(name)}</code><td>{escape(schema.get('description', ''))}<td>{shown}</tr>"
