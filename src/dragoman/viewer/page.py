"""A record as one HTML file that needs no network, no server and no other file.

The page is `page.html` with the record in a JSON block. Its script puts every string on the page as text, never as
HTML, and its content security policy allows that script and that style sheet and nothing else.
"""

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

from dragoman.viewer.document import contents
from dragoman.viewer.record import AttentionRecord

__all__ = ["contents", "page"]


def page(record: AttentionRecord) -> str:
    """Return the attention page of `record`."""
    template = files("dragoman.viewer").joinpath("page.html").read_text(encoding="utf-8")
    template = template.replace("POLICY", policy(template), 1)
    before, after = template.split("RECORD", 1)
    return before + json_block(contents(record)) + after


def policy(template: str) -> str:
    """Return a content security policy that names the hashes of the template's own script and style sheet."""
    (script,) = re.findall(r"<script>(.*?)</script>", template, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", template, re.DOTALL)
    return (
        f"default-src 'none'; script-src '{sha256(script)}'; style-src '{sha256(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def sha256(text: str) -> str:
    """Return a hash as a content security policy writes it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def json_block(value: Any) -> str:
    """Write JSON that can stand in a script element: nothing in it ends the element or opens a comment."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
