"""A record as one HTML file that needs no network, no server and no other file.

The page is `page.html` with the record in a JSON block. Its script puts every string on the page as text, never as
HTML, and its content security policy allows that script and that style sheet and nothing else.
"""

import base64
import hashlib
import json
import re
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import numpy as np

from dragoman.viewer.record import KINDS, AttentionRecord, Kind, Weights
from dragoman.viewer.words import Word, is_special, words


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


def contents(record: AttentionRecord) -> dict[str, Any]:
    """Return what the page's script reads."""
    return {
        "title": record.title,
        "prefix": record.prefix_pieces,
        "source": sentence(record.source_text, record.source_pieces),
        "target": sentence(record.target_text, record.target_pieces),
        "kinds": {kind: matrices(record, kind) for kind in KINDS},
    }


def matrices(record: AttentionRecord, kind: Kind) -> dict[str, Any]:
    """Return all matrices of one kind, a byte a weight, with the names of their rows and columns."""
    weights = record.weights(kind)
    layers, heads = weights.shape[:2]
    sides = {"rows": record.rows(kind), "columns": record.columns(kind)}
    return {"layers": layers, "heads": heads, **sides, "weights": as_bytes(weights)}


def as_bytes(weights: Weights) -> str:
    """Round weights from 0 to 1 to 255ths, and write them in base64."""
    return base64.b64encode(np.rint(weights.clip(0, 1) * 255).astype(np.uint8).tobytes()).decode()


def sentence(text: str, pieces: tuple[str, ...]) -> dict[str, Any]:
    """Return a sentence as words and as pieces; each knows which pieces it is made of."""
    single = [Word(piece, i, i + 1, is_special(piece)) for i, piece in enumerate(pieces)]
    # Where the text has no spaces, its words or characters are shown without gaps too.
    return {
        "spaced": len(text.split()) > 1,
        "words": [asdict(word) for word in words(text, pieces)],
        "pieces": [asdict(word) for word in single],
    }
