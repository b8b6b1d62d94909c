"""`dragoman serve`: an HTTP service and a web page."""

import asyncio
import logging
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman.cli.options import DeviceOption, PrecisionOption
from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError

_LANGUAGES = re.compile(r"(.+)=([A-Za-z][A-Za-z0-9-]{0,30}):([A-Za-z][A-Za-z0-9-]{0,30})")


def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run directories, one for each model to serve.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="DRAGOMAN_TOKEN", help="Answer only those who show this token; better in the variable."),
    ] = None,
    languages: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=en:de", help="The languages of a run, where its files do not tell; repeatable."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name that clients may call us by; repeatable.")
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="Tell clients apart by the X-Forwarded-For of the proxy before us.")
    ] = False,
    without_token: Annotated[
        bool, typer.Option("--without-token", help="Listen on an address that others can reach, without a token.")
    ] = False,
    open_to_all: Annotated[
        bool, typer.Option("--open-to-all", help="Say it a second time, as --without-token alone is not enough.")
    ] = False,
    threads: Annotated[int, typer.Option(min=0, max=1024, help="Threads that decode; 0: one a core.")] = 0,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Change a limit that /v1/info shows; repeatable.")
    ] = None,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Write a line for each request, without its text.")
    ] = False,
    precision: PrecisionOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Serve the models in RUN… over HTTP, with a web page to use them on and to look inside.

    The API is our own and, for translators, LibreTranslate's; the page at /docs describes both. Ctrl-C or SIGTERM ends
    it, after what was asked has been answered."""
    _require_extra()
    from dragoman.server.limits import Limits
    from dragoman.server.serve import ServerConfig, bind_socket
    from dragoman.server.serve import serve as serve_until_stopped

    _check_token(host, token, confirmed=without_token and open_to_all)
    _check_runs(runs)
    plan = ServerConfig(
        tuple(map(str, runs)),
        host,
        port,
        token,
        _parse_languages(languages or []),
        tuple(allow_host or []),
        behind_proxy,
        threads,
        device,
        Limits().with_changes(limit or []),
        precision,
    )
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("dragoman.server").setLevel(logging.INFO if log_requests else logging.WARNING)
    listening = bind_socket(host, port)
    asyncio.run(serve_until_stopped(plan, listening, lambda service: _announce(listening.getsockname(), service)))


def _require_extra() -> None:
    """Say what to install where it is missing."""
    missing = [name for name in ("fastapi", "httptools", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UserError(f'{" and ".join(missing)} is not installed; `pip install "dragoman[serve]"` brings it.')


def _check_token(host: str, token: str | None, *, confirmed: bool) -> None:
    """Refuse to open a door to others without a lock, unless told twice; and a lock that anyone can pick."""
    from dragoman.server.serve import is_loopback

    if token is not None and not re.fullmatch(r"[\x21-\x7e]{8,512}", token):
        raise UserError("--token has 8 to 512 letters, digits and marks, without spaces; this one has not.")
    if token is None and not is_loopback(host) and not confirmed:
        raise UserError(
            f"--host {host} can be reached from other machines, and without --token anyone there may use it. "
            "Give a token, or say both --without-token and --open-to-all."
        )


def _check_runs(runs: list[Path]) -> None:
    """Refuse at once what the worker would refuse after seconds."""
    for run in runs:
        if not run.is_dir():
            raise UserError(f"{run}: no such run directory. `dragoman train` makes one.")
        if not (run / "recipe.toml").exists():
            raise UserError(f"{run} is not a run directory: it has no recipe.toml. `dragoman train` makes one.")


def _parse_languages(languages: list[str]) -> dict[str, tuple[str, str]]:
    """Read NAME=en:de."""
    found = {}
    for each in languages:
        match = _LANGUAGES.fullmatch(each)
        if not match:
            raise UserError(f"--languages {each}: expected the name of a run and two codes, as in NAME=en:de.")
        found[match[1]] = match[2], match[3]
    return found


def _announce(address: Any, service: Any) -> None:
    """Print the address to open, and say what is served there."""
    host, port = address[:2]
    print(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/", flush=True)
    for model in service.info()["models"]:
        pair = f"{model['source_name']} to {model['target_name']}"
        print_stderr(
            f"{model['name']}: {pair if model['languages'] else model['noun']}, {model['parameters']:,} parameters"
        )
