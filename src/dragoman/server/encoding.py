"""JSON as it is sent to clients: encoded by the worker in parts, or by the HTTP process."""

import json
from typing import Any


def encode_json(content: Any) -> bytes:
    """Return a value as the JSON text of a response."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
