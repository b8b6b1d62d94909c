"""The routes of the live page, which only read files of the run directory."""

import asyncio
import json
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from dragoman.server.problems import EXCEPTION_HANDLERS, Problem
from dragoman.viewer.record import ATTENTION_KINDS
from dragoman.watch.inspector import Inspector
from dragoman.watch.summary import WatchedRun

_PAGE_FILES = Path(str(files("dragoman.watch"))) / "page"
_VIEWER_FILES = Path(str(files("dragoman.viewer"))) / "static"
_POLL_SECONDS = 1.0  # interval between reads of the files
_PING_SECONDS = 15.0  # interval of comments in an idle event stream, which detect closed connections
_MAX_CHARACTERS = 1000  # of a sentence to inspect


class RunMonitor:
    """Reads the run once per second for all clients."""

    def __init__(self, folder: Path) -> None:
        self.run = WatchedRun(folder)
        self.inspector = Inspector(folder)
        self.lock = asyncio.Lock()
        self.polled_at = -_POLL_SECONDS
        self.summary_json = ""

    async def summary(self) -> str:
        """Return the current summary as JSON."""
        async with self.lock:
            now = asyncio.get_running_loop().time()
            if now - self.polled_at >= _POLL_SECONDS / 2:
                self.summary_json = json.dumps(await asyncio.to_thread(self.run.summary), allow_nan=False)
                self.polled_at = now
        return self.summary_json

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the summary as a server-sent event whenever it changes."""
        sent, quiet = "", 0.0
        while True:
            text = await self.summary()
            if text != sent:
                yield b"data: " + text.encode() + b"\n\n"
                sent, quiet = text, 0.0
            elif quiet >= _PING_SECONDS:
                yield b": ping\n\n"
                quiet = 0.0
            await asyncio.sleep(_POLL_SECONDS)
            quiet += _POLL_SECONDS


async def _page(_request: Request) -> Response:
    return FileResponse(_PAGE_FILES / "index.html")


async def _summary(request: Request) -> Response:
    return Response(await _monitor(request).summary(), media_type="application/json")


async def _events(request: Request) -> Response:
    return StreamingResponse(_monitor(request).events(), media_type="text/event-stream")


async def _samples(request: Request) -> Response:
    await _monitor(request).summary()
    samples = _monitor(request).run.samples(request.path_params["step"])
    if samples is None:
        raise Problem(404, "no_validation", "The run has no validation at this step.")
    return JSONResponse(samples)


async def _checkpoints(request: Request) -> Response:
    return JSONResponse((await _monitor(request).inspector.request(checkpoints=True))["checkpoints"])


async def _inspect(request: Request) -> Response:
    return JSONResponse((await _monitor(request).inspector.request(**_inspection_options(request)))["record"])


def _inspection_options(request: Request) -> dict[str, Any]:
    """Return the options of an inspection from the query parameters."""
    query = request.query_params
    text, step = query.get("text", ""), query.get("checkpoint")
    if not text.strip() or len(text) > _MAX_CHARACTERS:
        raise Problem(422, "invalid", f"text must have 1 to {_MAX_CHARACTERS} characters.", field="text")
    if step is not None and not (step.isascii() and step.isdigit() and len(step) < 12):
        raise Problem(422, "invalid", "checkpoint must be a step number.", field="checkpoint")
    return {
        "text": text,
        "checkpoint": None if step is None else int(step),
        "prefix": query.get("prefix", "")[:_MAX_CHARACTERS],
        "trace": query.get("trace") == "true",
        "ablate_heads": _parse_heads(query.get("ablate_heads", "[]")),
    }


def _parse_heads(text: str) -> list[list[Any]]:
    """Parse a JSON list of heads: kind, layer and head, counted from 0."""
    try:
        heads: list[list[Any]] = json.loads(text)
        is_valid = isinstance(heads, list) and all(
            kind in ATTENTION_KINDS and type(layer) is int and type(head) is int for kind, layer, head in heads
        )
    except (ValueError, TypeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise Problem(422, "invalid", 'ablate_heads must be a list such as [["cross", 0, 1]].', field="ablate_heads")
    return heads


def _monitor(request: Request) -> RunMonitor:
    monitor: RunMonitor = request.app.state.monitor
    return monitor


_ROUTES: list[BaseRoute] = [
    Route("/", _page),
    Route("/summary", _summary),
    Route("/events", _events),
    Route("/samples/{step:int}", _samples),
    Route("/checkpoints", _checkpoints),
    Route("/inspect", _inspect),
    Mount("/watch/page", StaticFiles(directory=_PAGE_FILES)),
    Mount("/viewer/static", StaticFiles(directory=_VIEWER_FILES, check_dir=False)),
]


def build_app(folder: Path) -> Starlette:
    """Return the application for the run in a folder, without access control."""
    app = Starlette(routes=_ROUTES, exception_handlers=EXCEPTION_HANDLERS)
    app.state.monitor = RunMonitor(folder)
    return app
