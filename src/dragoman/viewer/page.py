"""Render a record as a self-contained HTML file.

The page is `page.html` with the viewer's modules, its style sheet, and the record in a JSON block. The script inserts
strings as text, never as HTML; the content security policy allows this script and this style sheet and nothing else.
"""

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from dragoman.viewer.document import viewer_document
from dragoman.viewer.record import AttentionRecord

__all__ = ["bundle_scripts", "read_style_sheet", "render_page", "viewer_document"]

STATIC_FILES = files("dragoman.viewer") / "static"
_IMPORT_STATEMENT = re.compile(r'^import .* from "\./([\w-]+\.js)";\n', re.MULTILINE)
_START_SCRIPT = (
    'show(document.getElementById("dv-root"), JSON.parse(document.getElementById("dv-record").textContent));\n'
)


def render_page(record: AttentionRecord, other: AttentionRecord | None = None) -> str:
    """Return the page of `record`, with `other` next to it if given."""
    script, sheet = bundle_scripts() + _START_SCRIPT, read_style_sheet()
    parts = {
        "POLICY": _content_security_policy(script, sheet),
        "STYLE": sheet,
        "RECORD": _script_safe_json(viewer_document(record, other)),
        "SCRIPT": script,
    }
    template = files("dragoman.viewer").joinpath("page.html").read_text(encoding="utf-8")
    return "".join(parts.get(part, part) for part in re.split(r"\b(POLICY|STYLE|RECORD|SCRIPT)\b", template))


@cache
def bundle_scripts() -> str:
    """Return the viewer's modules in one script, each after its imports; their top-level names are unique."""
    done: dict[str, str] = {}

    def take(name: str) -> None:
        if name not in done:
            text = (STATIC_FILES / name).read_text(encoding="utf-8")
            for other in _IMPORT_STATEMENT.findall(text):
                take(other)
            done[name] = re.sub(r"^export ", "", _IMPORT_STATEMENT.sub("", text), flags=re.MULTILINE)

    take("viewer.js")
    return "\n".join(done.values())


@cache
def read_style_sheet() -> str:
    """Return the viewer's style sheet."""
    return (STATIC_FILES / "viewer.css").read_text(encoding="utf-8")


def _content_security_policy(script: str, sheet: str) -> str:
    """Return a content security policy with the hashes of the script and the style sheet."""
    return (
        f"default-src 'none'; script-src '{_csp_hash(script)}'; style-src '{_csp_hash(sheet)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _csp_hash(text: str) -> str:
    """Return a hash in the syntax of a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _script_safe_json(value: Any) -> str:
    """Return JSON that is safe in a script element: it cannot end the element or open a comment."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
