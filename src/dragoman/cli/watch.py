"""`dragoman watch`: a live page of a training."""

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
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory; it may be there only later.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = _DEFAULT_HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = DEFAULT_PORT,
    token: Annotated[
        str | None,
        typer.Option(envvar="DRAGOMAN_TOKEN", help="Answer only those who show this token, as the password."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name that browsers may call us by; repeatable.")
    ] = None,
) -> None:
    """Show the training in RUN on a live page: curves, sample translations, attention of its checkpoints.

    Only files of RUN are read, so the training may run in another process, be over, or not have begun. Ctrl-C ends the
    page, and nothing else."""
    _require_packages()
    from dragoman.watch.server import serve

    if run.exists() and not run.is_dir():
        raise UserError(f"{run} is a file; a run is a directory.")
    _check_access(host, token)
    with _listen(host, port) as listening:
        print(_page_url(listening), flush=True)
        if not run.exists():
            print_stderr(f"{run} is not there yet; the page shows it when it is.")
        asyncio.run(serve(run, listening, allowed_hosts=tuple(allow_host or []), token=token))


def _require_packages() -> None:
    """Say what to install if the page cannot be served."""
    if not all(find_spec(name) for name in _REQUIRED_PACKAGES):
        raise UserError('The page needs some more packages: pip install "dragoman[serve]"')


def _check_access(host: str, token: str | None) -> None:
    """Refuse to show a training to others without a lock, and a lock that anyone can pick."""
    from dragoman.server.serve import is_loopback

    if token is not None and not re.fullmatch(r"[\x21-\x7e]{8,512}", token):
        raise UserError("--token has 8 to 512 letters, digits and marks, without spaces; this one has not.")
    if token is None and not is_loopback(host):
        raise UserError(f"--host {host} can be reached from other machines, where anyone could look; give a --token.")


def _listen(host: str, port: int) -> "socket":
    """Return a socket that listens."""
    from dragoman.server.serve import bind_socket as listening

    return listening(host, port)


def _page_url(listener: "socket") -> str:
    """Return what to type into a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


@contextmanager
def watch_in_background(run: str, port: int) -> Iterator[None]:
    """Show a run on a page while it is trained; a port that is taken is refused before the training begins."""
    _require_packages()
    from dragoman.watch.background import background_page

    listening = _listen(_DEFAULT_HOST, port)
    print_stderr(f"Watch it at {_page_url(listening)} until it ends, and with `dragoman watch {run}` after that.")
    with background_page(Path(run), listening):
        yield
