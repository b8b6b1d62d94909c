"""`dragoman watch`: serve a live page of a training."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.network import check_token, require_serve_packages, server_url
from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError
from dragoman.run import Run

_DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8001


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
    Ctrl-C stops the page, not the training."""
    require_serve_packages()
    from dragoman.server.serve import bind_socket
    from dragoman.watch.server import serve

    if run.exists() and not run.is_dir():
        raise UserError(f"{run} is a file; a run is a directory.")
    Run(run).check_files()
    check_token(host, token)
    with bind_socket(host, port) as listening:
        print(server_url(listening), flush=True)
        if not run.exists():
            print_stderr(f"{run} does not exist yet; the page will show it once it is created.")
        asyncio.run(serve(run, listening, allowed_hosts=tuple(allow_host or []), token=token))


@contextmanager
def watch_in_background(run: str, port: int) -> Iterator[None]:
    """Serve a live page while a run is trained; raise before the training starts if the port is taken."""
    require_serve_packages()
    from dragoman.server.serve import bind_socket
    from dragoman.watch.background import background_page

    listening = bind_socket(_DEFAULT_HOST, port)
    print_stderr(f"Live page: {server_url(listening)} (after training: `dragoman watch {run}`).")
    with background_page(Path(run), listening):
        yield
