"""The body of a request as fields: JSON, or a form as LibreTranslate's clients send it."""

import json
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qs

from dragoman.server.access import Headers
from dragoman.server.problems import Problem

_FormFields = dict[str, Any]
_URLENCODED, _MULTIPART, _JSON = "application/x-www-form-urlencoded", "multipart/form-data", "application/json"
_MAX_FIELDS = 200


def parse_fields(body: bytes, content_type: str, query: bytes = b"") -> _FormFields:
    """Return the fields of a body; those of the address stand behind them. A repeated field is a list."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _MULTIPART:
        found = _multipart_fields(body, content_type)
    elif kind == _JSON or (not kind and body[:1] == b"{"):
        found = _json_fields(body)
    elif kind in ("", _URLENCODED):
        found = _urlencoded_fields(body)
    else:
        raise Problem(415, "content_type", f"Send {_JSON} or a form.")
    return {**_urlencoded_fields(query), **found}


def _json_fields(body: bytes) -> _FormFields:
    """Read a JSON object."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "not_json", "The body is not valid JSON.") from None
    if not isinstance(found, dict):
        raise Problem(400, "not_json", "The body is not a JSON object.")
    return found


def _urlencoded_fields(body: bytes) -> _FormFields:
    """Read name=value&name=value."""
    try:
        found = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise Problem(400, "not_a_form", "The form is not written as forms are, in UTF-8.") from None
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def _multipart_fields(body: bytes, content_type: str) -> _FormFields:
    """Read a form in parts, as browsers send it; files in it are not for us."""
    head = b"content-type: " + content_type.encode("latin-1", "replace").replace(b"\n", b"") + b"\r\n\r\n"
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    found: dict[str, list[str]] = {}
    try:
        for part in list(message.iter_parts())[:_MAX_FIELDS]:
            name = part.get_param("name", header="content-disposition")
            value = part.get_payload(decode=True)
            if isinstance(name, str) and isinstance(value, bytes):
                found.setdefault(name, []).append(value.decode())
    except (ValueError, KeyError, AttributeError, TypeError, LookupError):
        raise Problem(400, "not_a_form", "The form is not written as forms are, in UTF-8.") from None
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def api_key(body: bytes, headers: Headers, query: bytes) -> bytes:
    """Return the key in the body or in the address, as LibreTranslate's clients send it; nothing if there is none."""
    try:
        found = parse_fields(body, headers.get(b"content-type", b"").decode("latin-1"), query).get("api_key")
    except Problem:
        return b""
    return found.encode("utf-8", "replace") if isinstance(found, str) else b""
