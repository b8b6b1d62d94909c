"""What `serve` and `watch` share: the packages they need, access from other machines, and the address they print."""

import re
from importlib.util import find_spec
from socket import socket

from dragoman.errors import UserError

_PACKAGES = ("fastapi", "httptools", "python_multipart", "uvicorn")


def require_serve_packages() -> None:
    """Raise a UserError that names the extra to install if a package is missing."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise UserError(
            f'Missing packages: {", ".join(missing)}; run `pip install -e ".[serve]"` in the directory of Dragoman.'
        )


def check_token(host: str, token: str | None, remedy: str = "Set --token.", *, is_required: bool = True) -> None:
    """Check the form of a token; if required, raise without one on hosts that other machines can reach."""
    from dragoman.server.serve import is_loopback

    if token is not None and not re.fullmatch(r"[\x21-\x7e]{8,512}", token):
        raise UserError("--token must have 8 to 512 ASCII letters, digits and punctuation marks, without spaces.")
    if token is None and is_required and not is_loopback(host):
        raise UserError(
            f"--host {host} is reachable from other machines, and without --token anyone can use the server. {remedy}"
        )


def server_url(listener: socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
