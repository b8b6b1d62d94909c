"""A look as one JSON document: all that the viewer's script reads. docs/viewer.md describes it."""

import base64
from dataclasses import asdict
from typing import Any

import numpy as np

from dragoman.viewer.alignment import alignments, error_rate, preferred
from dragoman.viewer.record import KINDS, AttentionRecord, BeamTree, Kind, Span, Step, Weights
from dragoman.viewer.words import Word, is_special, trim, words


def contents(record: AttentionRecord, other: AttentionRecord | None = None) -> dict[str, Any]:
    """Return the document of a record, with that of another one in it to compare with."""
    return {
        "title": record.title,
        "model": record.title,
        "skin": record.skin,
        "prefix": record.prefix_pieces,
        "given": record.given,
        "source": sentence(record.source_text, record.source_pieces, record.source_spans),
        "target": sentence(record.target_text, record.target_pieces, record.target_spans),
        "kinds": {kind: matrices(record, kind) for kind in KINDS},
        "steps": [step(one) for one in record.steps],
        "alignment": alignment(record),
        "beam": None if record.beam is None else beam(record.beam),
        "report": None if record.report is None else dict(record.report),
        "history": (record.report or {}).get("history"),
        "without": [list(head) for head in record.without],
        "switchable": record.switchable,
        "compare": None if other is None else contents(other),
    }


def sentence(text: str, pieces: tuple[str, ...], spans: tuple[Span, ...]) -> dict[str, Any]:
    """Return a sentence as words and as pieces; each knows its pieces and its place in the text."""
    places: list[Span | None] = [trim(text, span) for span in spans] or [None] * len(pieces)
    single = [
        Word(piece, i, i + 1, is_special(piece), None if is_special(piece) else place)
        for i, (piece, place) in enumerate(zip(pieces, places, strict=True))
    ]
    # Where the text has no spaces, its words or characters are shown without gaps too.
    return {
        "text": text,
        "spaced": len(text.split()) > 1,
        "words": [asdict(word) for word in words(text, pieces, spans)],
        "pieces": [asdict(word) for word in single],
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


def step(one: Step) -> dict[str, Any]:
    """Return how sure the model was of a step."""
    best = [[choice.piece, rounded(choice.log_probability)] for choice in one.best]
    return {"log_probability": rounded(one.log_probability), "best": best}


def alignment(record: AttentionRecord) -> dict[str, Any]:
    """Return the links between words by each method, and which one to show first."""
    found = {
        name: {
            "about": one.about,
            "layer": one.layer,
            "links": [[link.source, link.target, rounded(link.weight)] for link in one.links],
            "pharaoh": one.pharaoh,
            "error_rate": None if record.gold is None else rounded(error_rate(one.pharaoh, record.gold)),
        }
        for name, one in alignments(record).items()
    }
    return {"methods": found, "chosen": preferred(record), "gold": record.gold}


def beam(tree: BeamTree) -> dict[str, Any]:
    """Return the nodes of a search, each with a number, and where their steps looked."""
    numbers = ("log_probability", "sum", "score")
    nodes = [
        {"id": place, **asdict(node), **{name: rounded(getattr(node, name)) for name in numbers}}
        for place, node in enumerate(tree.nodes)
    ]
    return {
        "nodes": nodes,
        "width": tree.width,
        "length_penalty": tree.length_penalty,
        "layer": tree.layer,
        "attention": as_bytes(tree.attention),
    }


def rounded(number: float) -> float:
    """Round to what a person can tell apart."""
    return round(number, 4)
