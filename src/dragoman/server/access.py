"""Who may come in: by the name they call us by, by the page they come from, by the token they show."""

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from dragoman.server.problems import Problem

Headers = dict[bytes, bytes]


class AccessPolicy:
    """The checks that every request passes, whatever it asks for."""

    def __init__(self, token: str | None, host_names: Iterable[str] = ()) -> None:
        self.token = token.encode() if token else None
        self.host_names = {"localhost", *(name.lower() for name in host_names)}

    def check_host(self, headers: Headers) -> None:
        """Refuse a request for a name that is not ours: a foreign page can make its own name lead here."""
        if not self.is_known_host(headers.get(b"host", b"")):
            raise Problem(421, "wrong_host", "This server does not answer to that host name.")

    def check_origin(self, headers: Headers) -> None:
        """Refuse a request that a page of another site has sent."""
        origin = headers.get(b"origin")
        if origin is None:
            return
        try:
            place = urlsplit(origin.decode("latin-1")).netloc.lower()
        except ValueError:
            place = ""
        if place.encode("latin-1") != headers.get(b"host", b"").lower():
            raise Problem(403, "foreign_origin", "Pages of other sites may not use this server.")

    def is_known_host(self, host: bytes) -> bool:
        """Say whether a host is an address, which nobody can redirect, or one of our names."""
        name = _parse_hostname(host.decode("latin-1"))
        if name is None:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.host_names
        return True

    def has_valid_token(self, headers: Headers) -> bool:
        """Say whether the header shows the token, if one is asked for."""
        return self.token is None or any(
            self.matches_token(shown) for shown in _authorization_secrets(headers.get(b"authorization"))
        )

    def matches_token(self, candidate: bytes) -> bool:
        """Compare in a time that does not tell how much of it was right."""
        return self.token is None or hmac.compare_digest(candidate, self.token)


def _parse_hostname(host: str) -> str | None:
    """Return a Host header without its port, or nothing if it is none."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname if parts.port is None or parts.port else None
    except ValueError:
        return None


def _authorization_secrets(header: bytes | None) -> list[bytes]:
    """Return the secret in an Authorization header: a bearer's, or the password that a browser asks for."""
    kind, _, secret = (header or b"").partition(b" ")
    if kind.lower() == b"bearer":
        return [secret.strip()]
    if kind.lower() == b"basic":
        try:
            return [base64.b64decode(secret.strip(), validate=True).partition(b":")[2]]
        except (binascii.Error, ValueError):
            return []
    return []


def unauthorized() -> Problem:
    """Return the answer to whoever shows no token, or a wrong one."""
    return Problem(401, "unauthorized", "This server asks for its token: send it as `Authorization: Bearer TOKEN`.")
