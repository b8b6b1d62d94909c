"""The routes of a training's page. All of them only read."""

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
from dragoman.watch.inspector import Inspector
from dragoman.watch.summary import WatchedRun

_PAGE_FILES = Path(str(files("dragoman.watch"))) / "page"
_VIEWER_FILES = Path(str(files("dragoman.viewer"))) / "static"
_POLL_SECONDS = 1.0  # the files are looked at
_PING_SECONDS = 15.0  # after which a silent client is asked whether it is still there
_MAX_CHARACTERS = 1000  # of a sentence to look at


class RunMonitor:
    """Looks at the run for all who watch: once a second, however many they are."""

    def __init__(self, folder: Path) -> None:
        self.run = WatchedRun(folder)
        self.inspector = Inspector(folder)
        self.lock = asyncio.Lock()
        self.polled_at = -_POLL_SECONDS
        self.summary_json = ""

    async def summary(self) -> str:
        """Return the document of this moment as JSON."""
        async with self.lock:
            now = asyncio.get_running_loop().time()
            if now - self.polled_at >= _POLL_SECONDS / 2:
                self.summary_json = json.dumps(await asyncio.to_thread(self.run.summary), allow_nan=False)
                self.polled_at = now
        return self.summary_json

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the document whenever it has changed."""
        sent, quiet = "", 0.0
        while True:
            text = await self.summary()
            if text != sent:
                yield b"data: " + text.encode() + b"\n\n"
                sent, quiet = text, 0.0
            elif quiet >= _PING_SECONDS:
                yield b": still here\n\n"
                quiet = 0.0
            await asyncio.sleep(_POLL_SECONDS)
            quiet += _POLL_SECONDS


async def _page(_request: Request) -> Response:
    """Return the page."""
    return FileResponse(_PAGE_FILES / "index.html")


async def _summary(request: Request) -> Response:
    """Return where the training stands."""
    return Response(await _monitor(request).summary(), media_type="application/json")


async def _events(request: Request) -> Response:
    """Tell where the training stands, again and again."""
    return StreamingResponse(_monitor(request).events(), media_type="text/event-stream")


async def _samples(request: Request) -> Response:
    """Return the sentences of one validation."""
    await _monitor(request).summary()
    found = _monitor(request).run.samples(request.path_params["step"])
    if found is None:
        raise Problem(404, "no_validation", "There was no validation at this step.")
    return JSONResponse(found)


async def _checkpoints(request: Request) -> Response:
    """List the checkpoints that can be looked at."""
    return JSONResponse((await _monitor(request).inspector.request(checkpoints=True))["checkpoints"])


async def _inspect(request: Request) -> Response:
    """Show a translation from inside."""
    return JSONResponse((await _monitor(request).inspector.request(**_inspection_options(request)))["look"])


def _inspection_options(request: Request) -> dict[str, Any]:
    """Read what is to be looked at."""
    asked = request.query_params
    text, step = asked.get("text", ""), asked.get("checkpoint")
    if not text.strip() or len(text) > _MAX_CHARACTERS:
        raise Problem(422, "invalid", f"Give a sentence of up to {_MAX_CHARACTERS} characters.", field="text")
    if step is not None and not (step.isascii() and step.isdigit() and len(step) < 12):
        raise Problem(422, "invalid", "A checkpoint is named by its step.", field="checkpoint")
    return {
        "text": text,
        "checkpoint": None if step is None else int(step),
        "prefix": asked.get("prefix", "")[:_MAX_CHARACTERS],
        "trace": asked.get("trace") == "true",
        "without": _parse_heads(asked.get("without", "[]")),
    }


def _parse_heads(text: str) -> list[list[Any]]:
    """Read a list of heads: kind, layer and head, counted from 0."""
    try:
        found = json.loads(text)
        good = all(len(one) == 3 and one[0] in ("encoder", "decoder", "cross") for one in found)
        whole = all(type(number) is int for one in found for number in one[1:])
    except (ValueError, TypeError, RecursionError):
        good = whole = False
    if not (good and whole and isinstance(found, list)):
        raise Problem(422, "invalid", 'Heads are written as [["cross", 0, 1]].', field="without")
    return found


def _monitor(request: Request) -> RunMonitor:
    """Return what looks at the run."""
    found: RunMonitor = request.app.state.watcher
    return found


_ROUTES: list[BaseRoute] = [
    Route("/", _page),
    Route("/summary", _summary),
    Route("/events", _events),
    Route("/samples/{step:int}", _samples),
    Route("/checkpoints", _checkpoints),
    Route("/look", _inspect),
    Mount("/watch/page", StaticFiles(directory=_PAGE_FILES)),
    Mount("/viewer/static", StaticFiles(directory=_VIEWER_FILES, check_dir=False)),
]


def build_app(folder: Path) -> Starlette:
    """Return the application that shows the training in a folder; the guard stands before it."""
    app = Starlette(routes=_ROUTES, exception_handlers=EXCEPTION_HANDLERS)
    app.state.watcher = RunMonitor(folder)
    return app
