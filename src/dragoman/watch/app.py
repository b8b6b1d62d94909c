"""The routes of a training's page. All of them only read."""

import asyncio
import json
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from dragoman.server.app import failed, refused, told
from dragoman.server.problems import Problem
from dragoman.watch.looks import Looks
from dragoman.watch.summary import Watched

PAGE = Path(str(files("dragoman.watch"))) / "page"
VIEWER = Path(str(files("dragoman.viewer"))) / "static"
EVERY_SECONDS = 1.0  # the files are looked at
PING_SECONDS = 15.0  # after which a silent client is asked whether it is still there
CHARACTERS = 1000  # of a sentence to look at


class Watcher:
    """Looks at the run for all who watch: once a second, however many they are."""

    def __init__(self, folder: Path) -> None:
        self.run = Watched(folder)
        self.looks = Looks(folder)
        self.turn = asyncio.Lock()
        self.looked_at = -EVERY_SECONDS
        self.text = ""

    async def summary(self) -> str:
        """Return the document of this moment as JSON."""
        async with self.turn:
            now = asyncio.get_running_loop().time()
            if now - self.looked_at >= EVERY_SECONDS / 2:
                self.text = json.dumps(await asyncio.to_thread(self.run.summary), allow_nan=False)
                self.looked_at = now
        return self.text

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the document whenever it has changed."""
        sent, quiet = "", 0.0
        while True:
            text = await self.summary()
            if text != sent:
                yield b"data: " + text.encode() + b"\n\n"
                sent, quiet = text, 0.0
            elif quiet >= PING_SECONDS:
                yield b": still here\n\n"
                quiet = 0.0
            await asyncio.sleep(EVERY_SECONDS)
            quiet += EVERY_SECONDS


async def page(_request: Request) -> Response:
    """Return the page."""
    return FileResponse(PAGE / "index.html")


async def summary(request: Request) -> Response:
    """Return where the training stands."""
    return Response(await watcher(request).summary(), media_type="application/json")


async def events(request: Request) -> Response:
    """Tell where the training stands, again and again."""
    return StreamingResponse(watcher(request).events(), media_type="text/event-stream")


async def samples(request: Request) -> Response:
    """Return the sentences of one validation."""
    await watcher(request).summary()
    found = watcher(request).run.samples(request.path_params["step"])
    if found is None:
        raise Problem(404, "no_validation", "There was no validation at this step.")
    return JSONResponse(found)


async def checkpoints(request: Request) -> Response:
    """List the checkpoints that can be looked at."""
    return JSONResponse((await watcher(request).looks.ask(checkpoints=True))["checkpoints"])


async def look(request: Request) -> Response:
    """Show a translation from inside."""
    return JSONResponse((await watcher(request).looks.ask(**question(request)))["look"])


def question(request: Request) -> dict[str, Any]:
    """Read what is to be looked at."""
    asked = request.query_params
    text, step = asked.get("text", ""), asked.get("checkpoint")
    if not text.strip() or len(text) > CHARACTERS:
        raise Problem(422, "invalid", f"Give a sentence of up to {CHARACTERS} characters.", field="text")
    if step is not None and not (step.isascii() and step.isdigit() and len(step) < 12):
        raise Problem(422, "invalid", "A checkpoint is named by its step.", field="checkpoint")
    return {
        "text": text,
        "checkpoint": None if step is None else int(step),
        "prefix": asked.get("prefix", "")[:CHARACTERS],
        "trace": asked.get("trace") == "true",
        "without": heads(asked.get("without", "[]")),
    }


def heads(written: str) -> list[list[Any]]:
    """Read a list of heads: kind, layer and head, counted from 0."""
    try:
        found = json.loads(written)
        good = all(len(one) == 3 and one[0] in ("encoder", "decoder", "cross") for one in found)
        whole = all(type(number) is int for one in found for number in one[1:])
    except (ValueError, TypeError, RecursionError):
        good = whole = False
    if not (good and whole and isinstance(found, list)):
        raise Problem(422, "invalid", 'Heads are written as [["cross", 0, 1]].', field="without")
    return found


def watcher(request: Request) -> Watcher:
    """Return what looks at the run."""
    found: Watcher = request.app.state.watcher
    return found


ROUTES: list[BaseRoute] = [
    Route("/", page),
    Route("/summary", summary),
    Route("/events", events),
    Route("/samples/{step:int}", samples),
    Route("/checkpoints", checkpoints),
    Route("/look", look),
    Mount("/watch/page", StaticFiles(directory=PAGE)),
    Mount("/viewer/static", StaticFiles(directory=VIEWER, check_dir=False)),
]


def build(folder: Path) -> Starlette:
    """Return the application that shows the training in a folder; the guard stands before it."""
    app = Starlette(routes=ROUTES, exception_handlers={Problem: told, HTTPException: refused, Exception: failed})
    app.state.watcher = Watcher(folder)
    return app
