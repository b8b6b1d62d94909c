"""A record as one HTML file that needs no network, no server and no other file.

The page is `page.html` with the viewer's modules and style sheet and the look in a JSON block. Its script puts every
string on the page as text, never as HTML, and its content security policy allows that script and that style sheet and
nothing else.
"""

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from dragoman.viewer.document import contents
from dragoman.viewer.record import AttentionRecord

__all__ = ["bundle", "contents", "page", "style"]

STATIC = files("dragoman.viewer") / "static"
IMPORT = re.compile(r'^import .* from "\./([\w-]+\.js)";\n', re.MULTILINE)
START = 'show(document.getElementById("dv-root"), JSON.parse(document.getElementById("dv-look").textContent));\n'


def page(record: AttentionRecord, other: AttentionRecord | None = None) -> str:
    """Return the page of `record`, beside another one to compare it with if there is one."""
    script, sheet = bundle() + START, style()
    parts = {
        "POLICY": policy(script, sheet),
        "STYLE": sheet,
        "LOOK": json_block(contents(record, other)),
        "SCRIPT": script,
    }
    template = files("dragoman.viewer").joinpath("page.html").read_text(encoding="utf-8")
    return "".join(parts.get(part, part) for part in re.split(r"\b(POLICY|STYLE|LOOK|SCRIPT)\b", template))


@cache
def bundle() -> str:
    """Return the viewer's modules as one, each after those that it imports; no two use one name for two things."""
    done: dict[str, str] = {}

    def take(name: str) -> None:
        if name not in done:
            text = (STATIC / name).read_text(encoding="utf-8")
            for other in IMPORT.findall(text):
                take(other)
            done[name] = re.sub(r"^export ", "", IMPORT.sub("", text), flags=re.MULTILINE)

    take("viewer.js")
    return "\n".join(done.values())


@cache
def style() -> str:
    """Return the viewer's style sheet."""
    return (STATIC / "viewer.css").read_text(encoding="utf-8")


def policy(script: str, sheet: str) -> str:
    """Return a content security policy that names the hashes of the page's own script and style sheet."""
    return (
        f"default-src 'none'; script-src '{sha256(script)}'; style-src '{sha256(sheet)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def sha256(text: str) -> str:
    """Return a hash as a content security policy writes it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def json_block(value: Any) -> str:
    """Write JSON that can stand in a script element: nothing in it ends the element or opens a comment."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
