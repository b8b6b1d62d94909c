"""The JSON document of an attention record, which the viewer's script reads. docs/viewer.md describes it."""

import base64
from dataclasses import asdict
from typing import Any

import numpy as np

from dragoman.model_config import AttentionKind
from dragoman.viewer.alignment import alignment_error_rate, all_alignments, preferred_method
from dragoman.viewer.record import ATTENTION_KINDS, AttentionRecord, AttentionWeights, BeamTree, CharSpan, DecodingStep
from dragoman.viewer.words import WordSpan, group_words, is_special_piece, trim_span

_FRAME_PERCENTILES = (1.0, 99.5)  # of the levels that are drawn as black and white


def viewer_document(record: AttentionRecord, other: AttentionRecord | None = None) -> dict[str, Any]:
    """Return the document of a record, with the document of another record to compare with in it."""
    return {
        "title": record.title,
        "model": record.title,
        "skin": record.skin,
        "signal": _signal_document(record),
        "prefix": record.prefix_pieces,
        "forced_length": record.forced_length,
        "source": _sentence_document(record.source_text, record.source_pieces, record.source_spans),
        "target": _sentence_document(record.target_text, record.target_pieces, record.target_spans),
        "kinds": {kind: _weights_document(record, kind) for kind in ATTENTION_KINDS},
        "steps": [_step_document(step) for step in record.steps],
        "alignment": _alignment_document(record),
        "beam": None if record.beam is None else _beam_document(record.beam),
        "report": None if record.report is None else dict(record.report),
        "history": (record.report or {}).get("history"),
        "ablated_heads": [list(head) for head in record.ablated_heads],
        "can_ablate": record.can_ablate,
        "compare": None if other is None else viewer_document(other),
    }


def _sentence_document(text: str, pieces: tuple[str, ...], spans: tuple[CharSpan, ...]) -> dict[str, Any]:
    """Return a sentence as words and as pieces, each with its pieces and its span in the text."""
    trimmed: list[CharSpan | None] = [trim_span(text, span) for span in spans] or [None] * len(pieces)
    single_pieces = [
        WordSpan(piece, i, i + 1, is_special_piece(piece), None if is_special_piece(piece) else span)
        for i, (piece, span) in enumerate(zip(pieces, trimmed, strict=True))
    ]
    return {
        "text": text,
        "spaced": len(text.split()) > 1,  # a text without spaces is shown without gaps between its words
        "words": [asdict(word) for word in group_words(text, pieces, spans)],
        "pieces": [asdict(piece) for piece in single_pieces],
    }


def _signal_document(record: AttentionRecord) -> dict[str, Any] | None:
    """Return the frames of a recording, one byte per band of each frame: from its quietest to its loudest."""
    if record.frames is None:
        return None
    frames = record.frames.astype(np.float32)
    quietest, loudest = (float(np.percentile(frames, share)) for share in _FRAME_PERCENTILES)
    scaled = (frames - quietest) / max(loudest - quietest, 1e-6)
    return {"frames": _encode_weights(scaled), "bands": frames.shape[1], "seconds": _round_number(record.seconds)}


def _weights_document(record: AttentionRecord, kind: AttentionKind) -> dict[str, Any]:
    """Return all matrices of one kind, one byte per weight, with their row and column labels."""
    weights = record.weights(kind)
    layers, heads = weights.shape[:2]
    labels = {"rows": record.row_labels(kind), "columns": record.column_labels(kind)}
    return {"layers": layers, "heads": heads, **labels, "weights": _encode_weights(weights)}


def _encode_weights(weights: AttentionWeights) -> str:
    """Quantise weights from 0 to 1 to bytes, and encode them in base64."""
    return base64.b64encode(np.rint(weights.clip(0, 1) * 255).astype(np.uint8).tobytes()).decode()


def _step_document(step: DecodingStep) -> dict[str, Any]:
    top_choices = [[choice.piece, _round_number(choice.log_probability)] for choice in step.top_choices]
    return {"log_probability": _round_number(step.log_probability), "top_choices": top_choices}


def _alignment_document(record: AttentionRecord) -> dict[str, Any]:
    """Return the word alignment by each method, and the name of the preferred method."""
    gold = record.gold_alignment
    methods = {
        name: {
            "description": alignment.description,
            "layer": alignment.layer,
            "links": [[link.source, link.target, _round_number(link.weight)] for link in alignment.links],
            "pharaoh": alignment.pharaoh,
            "error_rate": None if gold is None else _round_number(alignment_error_rate(alignment.pharaoh, gold)),
        }
        for name, alignment in all_alignments(record).items()
    }
    return {"methods": methods, "preferred": preferred_method(record), "gold": gold}


def _beam_document(tree: BeamTree) -> dict[str, Any]:
    """Return the nodes of a search with their indices, and their cross-attention."""
    nodes = [
        {
            "id": index,
            **asdict(node),
            "log_probability": _round_number(node.log_probability),
            "sum": _round_number(node.sum),
            "score": _round_number(node.score),
        }
        for index, node in enumerate(tree.nodes)
    ]
    return {
        "nodes": nodes,
        "width": tree.width,
        "length_penalty": tree.length_penalty,
        "layer": tree.layer,
        "attention": _encode_weights(tree.attention),
    }


def _round_number(number: float) -> float:
    return round(number, 4)
