"""Access control: the Host header, the Origin header, the token."""

import base64
import binascii
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from urllib.parse import urlsplit

from dragoman.server.problems import Problem

RawHeaders = Mapping[bytes, bytes]
_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class AccessPolicy:
    """The checks that every request must pass. Without a token anyone who can connect is admitted."""

    def __init__(self, token: str | None, host_names: Iterable[str] = ()) -> None:
        self._token = token.encode() if token else None
        self._host_names = {"localhost", *(name.lower() for name in host_names)}

    @property
    def needs_token(self) -> bool:
        """Whether requests need a token."""
        return self._token is not None

    def check_host(self, values: Sequence[bytes]) -> None:
        """Require one valid Host; refuse unknown names: another site's can resolve to this machine (DNS rebinding)."""
        if len(values) != 1 or not _HOST.fullmatch(values[0]):
            raise Problem(400, "invalid", "A request needs exactly one valid Host header.")
        if not self._is_known_host(values[0]):
            raise Problem(421, "wrong_host", "This host name is not allowed; see --allow-host.")

    def check_origin(self, headers: RawHeaders) -> None:
        """Refuse requests that a page of another site has sent."""
        origin = headers.get(b"origin")
        if origin is None:
            return
        host = ""
        with suppress(ValueError):
            host = urlsplit(origin.decode("latin-1")).netloc.lower()
        if host.encode("latin-1") != headers.get(b"host", b"").lower():
            raise Problem(403, "foreign_origin", "Requests from pages of other sites are not allowed.")

    def has_valid_token(self, headers: RawHeaders) -> bool:
        """Return whether the Authorization header has the token, or no token is needed."""
        return self._token is None or self.matches_token(_authorization_secret(headers.get(b"authorization", b"")))

    def matches_token(self, candidate: bytes) -> bool:
        """Compare with the token in constant time."""
        return self._token is None or hmac.compare_digest(candidate, self._token)

    def _is_known_host(self, host: bytes) -> bool:
        """Return whether a host is one of the allowed names or an IP address, which cannot be rebound."""
        name = _host_name(host)
        return name is None or name in self._host_names


@lru_cache(maxsize=256)
def _host_name(host: bytes) -> str | None:
    """Return the name in a valid Host header; None if it is an IP address."""
    name = host.decode("ascii").lower()
    name = name[1 : name.index("]")] if name.startswith("[") else name.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name
    return None


def token_required() -> Problem:
    """Return the response to a missing or wrong token."""
    return Problem(401, "unauthorized", "A token is required: send `Authorization: Bearer TOKEN`.")


def _authorization_secret(header: bytes) -> bytes:
    """Return the bearer token, or the password of basic authentication, with which a browser sends the token."""
    scheme, _, secret = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return secret.strip()
    if scheme.lower() == b"basic":
        with suppress(binascii.Error, ValueError):
            return base64.b64decode(secret.strip(), validate=True).partition(b":")[2]
    return b""
