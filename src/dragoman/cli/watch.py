"""`dragoman watch`: serve a live page of a training."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError

if TYPE_CHECKING:
    from socket import socket

_DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8001
_REQUIRED_PACKAGES = ("fastapi", "uvicorn", "httptools")


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory; it need not exist yet.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = _DEFAULT_HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = DEFAULT_PORT,
    token: Annotated[
        str | None,
        typer.Option(envvar="DRAGOMAN_TOKEN", help="Require this token as the password of HTTP basic authentication."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Additional host name to accept in requests; repeatable.")
    ] = None,
) -> None:
    """Serve a live page of the training in RUN: curves, sample outputs and the attention of its checkpoints.

    The page only reads files of RUN, so the training may run in another process, be finished, or not have started.
    Ctrl-C stops the page and nothing else."""
    _require_packages()
    from dragoman.watch.server import serve

    if run.exists() and not run.is_dir():
        raise UserError(f"{run} is a file; a run is a directory.")
    _check_access(host, token)
    with _listen(host, port) as listening:
        print(_page_url(listening), flush=True)
        if not run.exists():
            print_stderr(f"{run} does not exist yet; the page will show it once it is created.")
        asyncio.run(serve(run, listening, allowed_hosts=tuple(allow_host or []), token=token))


def _require_packages() -> None:
    """Raise a UserError that names the extra to install if a package is missing."""
    if not all(find_spec(name) for name in _REQUIRED_PACKAGES):
        raise UserError('The live page needs additional packages: pip install "dragoman[serve]"')


def _check_access(host: str, token: str | None) -> None:
    """Require a well-formed token on non-loopback hosts."""
    from dragoman.server.serve import is_loopback

    if token is not None and not re.fullmatch(r"[\x21-\x7e]{8,512}", token):
        raise UserError("--token must be 8 to 512 printable ASCII characters without spaces.")
    if token is None and not is_loopback(host):
        raise UserError(f"--host {host} is reachable from other machines; set --token to restrict access.")


def _listen(host: str, port: int) -> "socket":
    from dragoman.server.serve import bind_socket

    return bind_socket(host, port)


def _page_url(listener: "socket") -> str:
    """Return the address of the page."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


@contextmanager
def watch_in_background(run: str, port: int) -> Iterator[None]:
    """Serve a live page while a run is trained; raise before the training starts if the port is taken."""
    _require_packages()
    from dragoman.watch.background import background_page

    listening = _listen(_DEFAULT_HOST, port)
    print_stderr(f"Live page: {_page_url(listening)} (after training: `dragoman watch {run}`).")
    with background_page(Path(run), listening):
        yield
