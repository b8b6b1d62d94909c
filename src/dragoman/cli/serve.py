"""`dragoman serve`: an HTTP server and a web page."""

import asyncio
import logging
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman.cli.network import check_token, require_serve_packages, server_url
from dragoman.cli.options import DeviceOption, PrecisionOption
from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError
from dragoman.run import Run

_LANGUAGES = re.compile(r"(.+)=([A-Za-z][A-Za-z0-9-]{0,30}):([A-Za-z][A-Za-z0-9-]{0,30})")


def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run directories; one model per run.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="DRAGOMAN_TOKEN", help="Token that clients must send; preferably set in the environment."),
    ] = None,
    languages: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=en:de",
            help="Languages of a run, if not in the names of its training files; repeatable.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Accept requests for this host name; repeatable.")
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="Read client addresses from X-Forwarded-For.")
    ] = False,
    without_token: Annotated[
        bool, typer.Option("--without-token", help="Listen on a non-loopback host without a token.")
    ] = False,
    open_to_all: Annotated[bool, typer.Option("--open-to-all", help="Confirm --without-token.")] = False,
    threads: Annotated[int, typer.Option(min=0, max=1024, help="Number of decoding threads; 0: one per core.")] = 0,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set a server limit (see /v1/info); repeatable.")
    ] = None,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log one line per request, without its text.")
    ] = False,
    precision: PrecisionOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Serve the models in RUN… over HTTP, with a web page for translating and for inspecting attention.

    The server has a native API and, for translators, the LibreTranslate API; /docs describes both. Ctrl-C or
    SIGTERM stops the server after all accepted requests are answered."""
    require_serve_packages()
    from dragoman.server.limits import Limits
    from dragoman.server.serve import ServerConfig, bind_socket
    from dragoman.server.serve import serve as serve_until_stopped

    remedy = "Set --token, or give both --without-token and --open-to-all."
    check_token(host, token, remedy, is_required=not (without_token and open_to_all))
    for run in runs:
        Run(run).read_recipe()  # report at once what the worker would report after seconds
    config = ServerConfig(
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
    listen_socket = bind_socket(host, port)
    url = server_url(listen_socket)
    asyncio.run(serve_until_stopped(config, listen_socket, lambda service: _announce(url, service)))


def _parse_languages(languages: list[str]) -> dict[str, tuple[str, str]]:
    pairs = {}
    for value in languages:
        match = _LANGUAGES.fullmatch(value)
        if not match:
            raise UserError(
                f"--languages {value}: expected the name of a run and two language codes, such as NAME=en:de."
            )
        pairs[match[1]] = match[2], match[3]
    return pairs


def _announce(url: str, service: Any) -> None:
    """Print the URL to stdout and the models to stderr."""
    print(url, flush=True)
    for model in service.info()["models"]:
        pair = f"{model['source_name']} to {model['target_name']}"
        description = pair if model["has_language_pair"] else model["noun"]
        print_stderr(f"{model['name']}: {description}, {model['parameters']:,} parameters")
