"""Which word translates which, read from cross-attention.

Every target piece is linked to the source piece that gets most of the weight, END left out, and words are linked if any
of their pieces are: so links are many to many. At which step to read is a question of the model. Deep ones look at what
they translate when they *read* a piece rather than when they write it, so it is better read one step late (Shift-Att:
Chen et al. 2020, arXiv 2004.14837). In models of two to four layers we found the opposite, by far, and the mean of all
layers and heads the safest; so the head report, measured on the validation text, decides, and without one the mean.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dragoman.viewer.record import AttentionRecord, AttentionWeights
from dragoman.viewer.words import WordSpan, group_words


@dataclass(frozen=True)
class WordLink:
    """Two words that translate each other, with the largest weight between their pieces."""

    source: int  # words are counted from 0, without START and END
    target: int
    weight: float


@dataclass(frozen=True)
class WordAlignment:
    """The links of one method."""

    links: tuple[WordLink, ...]
    description: str  # what the method does, in a sentence
    layer: int | None  # the one that was read, from 0; nothing if it was all of them

    @property
    def pharaoh(self) -> str:
        """Return the links as `0-0 1-2`, source word first."""
        return " ".join(
            f"{source}-{target}" for source, target in sorted((one.source, one.target) for one in self.links)
        )


def all_alignments(record: AttentionRecord) -> dict[str, WordAlignment]:
    """Return the alignments of all methods; of a model that never looks at the source there are none."""
    return {name: method(record) for name, method in _ALIGNMENT_METHODS.items()} if len(record.cross) else {}


def preferred_method(record: AttentionRecord) -> str:
    """Return the method that suits the model: late reading if its heads were measured to align better so."""
    written, late = (_best_cross_head(record, key) for key in ("alignment", "alignment_shifted"))
    return "shifted" if written and late and late["alignment_shifted"] > written["alignment"] else "mean"


def _best_cross_head(record: AttentionRecord, key: str) -> Mapping[str, Any] | None:
    """Return the cross-attention head that a report finds best at something."""
    heads = (record.report or {}).get("heads", ())
    measured = [head for head in heads if head["kind"] == "cross" and head.get(key) is not None]
    return max(measured, key=lambda head: float(head[key]), default=None)


def _shifted_alignment(record: AttentionRecord) -> WordAlignment:
    """Read each target piece one step late, in the layer that aligns best so."""
    measured = _best_cross_head(record, "alignment_shifted")
    layer = measured["layer"] if measured else best_alignment_layer(record.cross, weights_when_read)
    about = f"Shift-Att: layer {layer + 1}, mean over its heads, read at the step after the word was written"
    return WordAlignment(link_words(record, weights_when_read(record.cross[layer].mean(0))), about, layer)


def _argmax_alignment(record: AttentionRecord) -> WordAlignment:
    """Read each target piece at the step that wrote it, in the layer that aligns best so."""
    measured = _best_cross_head(record, "alignment")
    layer = measured["layer"] if measured else best_alignment_layer(record.cross)
    about = f"Arg-max: layer {layer + 1}, mean over its heads, read at the step that wrote the word"
    return WordAlignment(link_words(record, weights_when_written(record.cross[layer].mean(0))), about, layer)


def _mean_alignment(record: AttentionRecord) -> WordAlignment:
    """Read the mean of all layers and heads at the step that wrote the piece."""
    about = "Mean of all layers and heads, read at the step that wrote the word"
    return WordAlignment(link_words(record, weights_when_written(record.cross.mean((0, 1)))), about, None)


_ALIGNMENT_METHODS: dict[str, Callable[[AttentionRecord], WordAlignment]] = {
    "mean": _mean_alignment,
    "arg-max": _argmax_alignment,
    "shifted": _shifted_alignment,
}


def weights_when_written(weights: AttentionWeights) -> AttentionWeights:
    """Return for each target piece the weights (T S) of the step that wrote it, both ENDs left out."""
    return weights[:-1, :-1]


def weights_when_read(weights: AttentionWeights) -> AttentionWeights:
    """Return for each target piece the weights (T S) of the step that read it, both ENDs left out."""
    return weights[1:, :-1]


def best_alignment_layer(
    cross: AttentionWeights, weights_of_step: Callable[[AttentionWeights], AttentionWeights] = weights_when_written
) -> int:
    """Return the layer in which source and target pieces most often choose each other."""
    return int(np.argmax([_mutual_argmax_share(weights_of_step(layer.mean(0))) for layer in cross]))


def _mutual_argmax_share(weights: AttentionWeights) -> float:
    """Return the share of target pieces whose favourite source piece has them as its favourite too."""
    if not weights.size:
        return 0.0
    forward, backward = weights.argmax(1), weights.argmax(0)
    return float(np.mean(backward[forward] == np.arange(len(forward))))


def link_words(record: AttentionRecord, weights: AttentionWeights) -> tuple[WordLink, ...]:
    """Link the words of a record by the largest weight of each target piece (T S, without the ENDs)."""
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
    """Return which word a piece belongs to."""
    return next(number for number, word in enumerate(words) if word.first <= piece < word.end)


def alignment_error_rate(links: str, gold: str) -> float:
    """Return the alignment error rate of links in Pharaoh's format; all gold links count as sure."""
    ours, right = set(links.split()), set(gold.split())
    return 1 - 2 * len(ours & right) / max(1, len(ours) + len(right))
