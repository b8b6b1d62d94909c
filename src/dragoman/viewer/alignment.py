"""Word alignment from cross-attention.

Every target piece is linked to the source piece with the largest weight, END excluded; words are linked if any of their
pieces are, so links are many to many. Deep models attend to the translated word when a piece is the decoder's *input*
rather than its output, so their weights are read one step later (Shift-Att: Chen et al. 2020, arXiv 2004.14837). In
models of two to four layers we measured the opposite, and the mean of all layers and heads works best. The head report
decides between them; without a report, the mean is used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dragoman.viewer.record import AttentionRecord, AttentionWeights
from dragoman.viewer.words import WordSpan, group_words


@dataclass(frozen=True)
class WordLink:
    """A link between two words, with the largest weight between their pieces."""

    source: int  # word index, without START and END
    target: int
    weight: float


@dataclass(frozen=True)
class WordAlignment:
    """The word alignment by one method."""

    links: tuple[WordLink, ...]
    description: str  # of the method, in a sentence
    layer: int | None  # from 0; None if all layers were averaged

    @property
    def pharaoh(self) -> str:
        """The links in Pharaoh format, as `0-0 1-2`, source word first."""
        return " ".join(
            f"{source}-{target}" for source, target in sorted((link.source, link.target) for link in self.links)
        )


def all_alignments(record: AttentionRecord) -> dict[str, WordAlignment]:
    """Return the alignments by all methods; empty if the model has no cross-attention."""
    return {name: method(record) for name, method in _ALIGNMENT_METHODS.items()} if len(record.cross) else {}


def preferred_alignment(record: AttentionRecord) -> WordAlignment | None:
    """Return the alignment by the preferred method; None if the model has no cross-attention."""
    return _ALIGNMENT_METHODS[preferred_method(record)](record) if len(record.cross) else None


def preferred_method(record: AttentionRecord) -> str:
    """Return the method for the model: "shifted" if the head report shows that it aligns better, otherwise "mean"."""
    at_output, at_input = (_best_cross_head(record, key) for key in ("alignment", "alignment_shifted"))
    return "shifted" if at_output and at_input and at_input["alignment_shifted"] > at_output["alignment"] else "mean"


def _best_cross_head(record: AttentionRecord, key: str) -> Mapping[str, Any] | None:
    """Return the cross-attention head with the largest value of a statistic in the report."""
    heads = (record.report or {}).get("heads", ())
    measured = [head for head in heads if head["kind"] == "cross" and head.get(key) is not None]
    return max(measured, key=lambda head: float(head[key]), default=None)


def _shifted_alignment(record: AttentionRecord) -> WordAlignment:
    """Align by the step after each target piece, in the layer that aligns best this way."""
    measured = _best_cross_head(record, "alignment_shifted")
    layer = measured["layer"] if measured else best_alignment_layer(record.cross, weights_when_read)
    about = f"Shift-Att: mean over the heads of layer {layer + 1}, at the step whose input is the word"
    return WordAlignment(link_words(record, weights_when_read(record.cross[layer].mean(0))), about, layer)


def _argmax_alignment(record: AttentionRecord) -> WordAlignment:
    """Align by the step of each target piece, in the layer that aligns best this way."""
    measured = _best_cross_head(record, "alignment")
    layer = measured["layer"] if measured else best_alignment_layer(record.cross)
    about = f"Arg-max: mean over the heads of layer {layer + 1}, at the step that outputs the word"
    return WordAlignment(link_words(record, weights_when_written(record.cross[layer].mean(0))), about, layer)


def _mean_alignment(record: AttentionRecord) -> WordAlignment:
    """Align by the mean of all layers and heads at the step of each target piece."""
    about = "Mean over all layers and heads, at the step that outputs the word"
    return WordAlignment(link_words(record, weights_when_written(record.cross.mean((0, 1)))), about, None)


_ALIGNMENT_METHODS: dict[str, Callable[[AttentionRecord], WordAlignment]] = {
    "mean": _mean_alignment,
    "arg-max": _argmax_alignment,
    "shifted": _shifted_alignment,
}


def weights_when_written(weights: AttentionWeights) -> AttentionWeights:
    """Return the weights (T S) of the step that outputs each target piece, without END on both sides."""
    return weights[:-1, :-1]


def weights_when_read(weights: AttentionWeights) -> AttentionWeights:
    """Return the weights (T S) of the step whose input is each target piece, without END on both sides."""
    return weights[1:, :-1]


def best_alignment_layer(
    cross: AttentionWeights, weights_of_step: Callable[[AttentionWeights], AttentionWeights] = weights_when_written
) -> int:
    """Return the layer with the largest share of mutual arg-max pairs."""
    return int(np.argmax([_mutual_argmax_share(weights_of_step(layer.mean(0))) for layer in cross]))


def best_aligned_weights(cross: AttentionWeights) -> tuple[AttentionWeights, int]:
    """Return the mean cross-attention (T S) over the heads of the layer of `best_alignment_layer`, and that layer."""
    layer = best_alignment_layer(cross)
    weights: AttentionWeights = cross[layer].mean(axis=0)
    return weights, layer


def _mutual_argmax_share(weights: AttentionWeights) -> float:
    """Return the share of target pieces that are the arg-max of their own arg-max."""
    if not weights.size:
        return 0.0
    forward, backward = weights.argmax(1), weights.argmax(0)
    return float(np.mean(backward[forward] == np.arange(len(forward))))


def link_words(record: AttentionRecord, weights: AttentionWeights) -> tuple[WordLink, ...]:
    """Link the words of a record by the arg-max of each target piece (weights T S, without END)."""
    source, target = source_and_target_words(record)
    best: dict[tuple[int, int], float] = {}
    for piece, row in enumerate(weights):
        if len(row):
            pair = (_word_index(source, int(row.argmax())), _word_index(target, piece))
            best[pair] = max(best.get(pair, 0.0), float(row.max()))
    return tuple(WordLink(source, target, weight) for (source, target), weight in sorted(best.items()))


def source_and_target_words(record: AttentionRecord) -> tuple[list[WordSpan], list[WordSpan]]:
    """Return the words of both sides, without START and END."""
    source = group_words(record.source_text, record.source_pieces, record.source_spans)
    target = group_words(record.target_text, record.target_pieces, record.target_spans)
    return [word for word in source if not word.special], [word for word in target if not word.special]


def _word_index(words: list[WordSpan], piece: int) -> int:
    return next(number for number, word in enumerate(words) if word.first <= piece < word.end)


def alignment_error_rate(links: str, gold: str) -> float:
    """Return the alignment error rate of links in Pharaoh format; all gold links count as sure."""
    predicted, correct = set(links.split()), set(gold.split())
    return 1 - 2 * len(predicted & correct) / max(1, len(predicted) + len(correct))
