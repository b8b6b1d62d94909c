"""A look as one JSON document: all that the viewer's script reads. docs/viewer.md describes it."""

import base64
from dataclasses import asdict
from typing import Any

import numpy as np

from dragoman.viewer.alignment import alignment_error_rate, all_alignments, preferred_method
from dragoman.viewer.record import (
    ATTENTION_KINDS,
    AttentionKind,
    AttentionRecord,
    AttentionWeights,
    BeamTree,
    CharSpan,
    DecodingStep,
)
from dragoman.viewer.words import WordSpan, group_words, is_special_piece, trim_span


def viewer_document(record: AttentionRecord, other: AttentionRecord | None = None) -> dict[str, Any]:
    """Return the document of a record, with that of another one in it to compare with."""
    return {
        "title": record.title,
        "model": record.title,
        "skin": record.skin,
        "prefix": record.prefix_pieces,
        "given": record.forced_length,
        "source": _sentence_document(record.source_text, record.source_pieces, record.source_spans),
        "target": _sentence_document(record.target_text, record.target_pieces, record.target_spans),
        "kinds": {kind: _weights_document(record, kind) for kind in ATTENTION_KINDS},
        "steps": [_step_document(one) for one in record.steps],
        "alignment": _alignment_document(record),
        "beam": None if record.beam is None else _beam_document(record.beam),
        "report": None if record.report is None else dict(record.report),
        "history": (record.report or {}).get("history"),
        "without": [list(head) for head in record.ablated_heads],
        "switchable": record.can_ablate,
        "compare": None if other is None else viewer_document(other),
    }


def _sentence_document(text: str, pieces: tuple[str, ...], spans: tuple[CharSpan, ...]) -> dict[str, Any]:
    """Return a sentence as words and as pieces; each knows its pieces and its place in the text."""
    places: list[CharSpan | None] = [trim_span(text, span) for span in spans] or [None] * len(pieces)
    single = [
        WordSpan(piece, i, i + 1, is_special_piece(piece), None if is_special_piece(piece) else place)
        for i, (piece, place) in enumerate(zip(pieces, places, strict=True))
    ]
    # Where the text has no spaces, its words or characters are shown without gaps too.
    return {
        "text": text,
        "spaced": len(text.split()) > 1,
        "words": [asdict(word) for word in group_words(text, pieces, spans)],
        "pieces": [asdict(word) for word in single],
    }


def _weights_document(record: AttentionRecord, kind: AttentionKind) -> dict[str, Any]:
    """Return all matrices of one kind, a byte a weight, with the names of their rows and columns."""
    weights = record.weights(kind)
    layers, heads = weights.shape[:2]
    sides = {"rows": record.row_labels(kind), "columns": record.column_labels(kind)}
    return {"layers": layers, "heads": heads, **sides, "weights": _encode_weights(weights)}


def _encode_weights(weights: AttentionWeights) -> str:
    """Round weights from 0 to 1 to 255ths, and write them in base64."""
    return base64.b64encode(np.rint(weights.clip(0, 1) * 255).astype(np.uint8).tobytes()).decode()


def _step_document(step: DecodingStep) -> dict[str, Any]:
    """Return how sure the model was of a step."""
    best = [[choice.piece, _round_number(choice.log_probability)] for choice in step.top_choices]
    return {"log_probability": _round_number(step.log_probability), "best": best}


def _alignment_document(record: AttentionRecord) -> dict[str, Any]:
    """Return the links between words by each method, and which one to show first."""
    found = {
        name: {
            "about": one.description,
            "layer": one.layer,
            "links": [[link.source, link.target, _round_number(link.weight)] for link in one.links],
            "pharaoh": one.pharaoh,
            "error_rate": None
            if record.gold_alignment is None
            else _round_number(alignment_error_rate(one.pharaoh, record.gold_alignment)),
        }
        for name, one in all_alignments(record).items()
    }
    return {"methods": found, "chosen": preferred_method(record), "gold": record.gold_alignment}


def _beam_document(tree: BeamTree) -> dict[str, Any]:
    """Return the nodes of a search, each with a number, and where their steps looked."""
    numbers = ("log_probability", "sum", "score")
    nodes = [
        {"id": place, **asdict(node), **{name: _round_number(getattr(node, name)) for name in numbers}}
        for place, node in enumerate(tree.nodes)
    ]
    return {
        "nodes": nodes,
        "width": tree.width,
        "length_penalty": tree.length_penalty,
        "layer": tree.layer,
        "attention": _encode_weights(tree.attention),
    }


def _round_number(number: float) -> float:
    """Round to what a person can tell apart."""
    return round(number, 4)
