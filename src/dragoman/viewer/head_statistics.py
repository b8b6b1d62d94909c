"""Statistics of attention heads over many sentences, and the badges that they earn.

The types of heads and the first threshold are those of Voita et al. 2019 (arXiv 1905.09418). START and END count as
sinks; statistics of words exclude them. The keys of a recording are positions in time, of which it is known whether
they are silent: they have no statistics of pieces, and some of their own.

Shapes: L layers, H heads, T queries (rows), S keys (columns).
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.viewer.record import AttentionWeights

BoolArray = NDArray[np.bool_]
TokenArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_MAX_OFFSET = 5  # of a positional head
BADGE_THRESHOLDS = {
    "positional": 0.90,  # share of queries that attend to one fixed offset
    "rare": 0.25,  # above chance, share of queries that attend to the rarest piece
    "alignment": 0.10,  # above the best fixed offset, share of links
    "sink": 0.50,  # share of the weight on START and END
    "punctuation": 0.50,  # share of the weight on punctuation
    "copy": 0.90,  # share of repeated pieces that attend to an equal piece
    "silence": 0.25,  # above uniform attention, share of the weight on silence
}
_TIME_FIELDS = ("silence", "silence_baseline", "width", "monotonic")  # of positions in time only


@dataclass(frozen=True, eq=False)
class SentenceAttention:
    """One kind of attention over one sentence, with the pieces of its rows and columns.

    A row is a source piece in the encoder, an input piece in the decoder, and an output piece in cross-attention. Rows
    of START and END are not counted.
    """

    weights: AttentionWeights  # L H T S
    row_tokens: TokenArray  # T, queries; equal pieces have equal numbers on both sides
    column_tokens: TokenArray  # S, keys
    special_rows: BoolArray  # T
    special_columns: BoolArray  # S
    punctuation_columns: BoolArray  # S
    column_frequency: TokenArray  # S, frequency of each piece in the text
    is_self_attention: bool = False  # row t and column t are the same position
    is_causal: bool = False  # row t attends to columns up to t only
    links: BoolArray | None = None  # T S, source pieces that each output piece translates; cross-attention only
    silent_columns: BoolArray | None = None  # S, if the keys are positions in time

    @property
    def visible_mask(self) -> BoolArray:
        """T S: the columns that a row may attend to."""
        shape = self.weights.shape[2:]
        return np.tri(*shape, dtype=np.bool_) if self.is_causal else np.ones(shape, dtype=np.bool_)

    @property
    def word_mask(self) -> BoolArray:
        """T S: the columns that a row may attend to, without START and END."""
        return self.visible_mask & ~self.special_columns


@dataclass(frozen=True)
class HeadMeasures:
    """The statistics of one head; None if the text has nothing to measure it by."""

    positional: float | None  # share of queries whose arg-max is at one fixed offset …
    offset: int | None  # … which is this one
    rare: float | None  # share of queries whose arg-max word is the rarest visible one
    rare_baseline: float | None  # the share by chance
    alignment: float | None  # share of linked pieces whose arg-max is the linked source piece, as output …
    alignment_shifted: float | None  # … and one step later, as input
    alignment_baseline: float | None  # the share of the best fixed offset
    sink: float | None  # weight on START and END
    punctuation: float | None  # weight on punctuation
    punctuation_baseline: float | None  # the same for uniform attention
    copy: float | None  # share of repeated pieces whose arg-max word is an equal piece
    entropy: float | None  # bits
    distance: float | None  # mean distance in pieces between query and key
    confidence: float | None  # mean of the largest weight on a word
    silence: float | None = None  # weight on silence
    silence_baseline: float | None = None  # the same for uniform attention
    width: float | None = None  # mean standard deviation of the attended position
    monotonic: float | None = None  # share of the steps whose arg-max is not before that of the step before

    def earned_badges(self) -> list[str]:
        """Return the badges of the head."""
        measures = {
            "positional": self.positional,
            "rare": _difference(self.rare, self.rare_baseline),
            "alignment": _difference(_largest_known(self.alignment, self.alignment_shifted), self.alignment_baseline),
            "sink": self.sink,
            "punctuation": self.punctuation,
            "copy": self.copy,
            "silence": _difference(self.silence, self.silence_baseline),
        }
        return [name for name, value in measures.items() if value is not None and value >= BADGE_THRESHOLDS[name]]


class HeadStatistics:
    """Accumulates the statistics of every head of one kind of attention over sentences."""

    def __init__(self, layers: int, heads: int) -> None:
        self.shape = (layers, heads)
        self.sums: dict[str, FloatArray] = {}
        self.counts: Counter[str] = Counter()
        self.offset_hits = np.zeros((2 * _MAX_OFFSET + 1, layers, heads))
        self.offset_queries = np.zeros(2 * _MAX_OFFSET + 1)
        self.link_offsets: Counter[int] = Counter()

    def add(self, sentence: SentenceAttention) -> None:
        """Add one sentence."""
        counted = ~sentence.special_rows
        words = sentence.word_mask
        among_words = np.where(words, sentence.weights, -1.0)  # L H T S
        best = among_words.argmax(-1)  # L H T
        self._add_values("entropy", _entropy(sentence.weights[:, :, counted]))
        self._add_values("confidence", among_words.max(-1)[..., counted])
        if sentence.silent_columns is None or sentence.is_self_attention:  # else, rows and columns differ in kind
            self._add_offsets(sentence, counted)
            self._add_distances(sentence, counted)
        if sentence.silent_columns is None:
            self._add_weights(sentence, counted)
            self._add_rare(sentence, words, best, counted)
            self._add_copies(sentence, words, best, counted)
        else:
            self._add_times(sentence, sentence.silent_columns, counted)
        if sentence.links is not None:
            self._add_links(sentence.links, best)

    def _add_values(self, name: str, values: NDArray[Any]) -> None:
        """Add the values of N queries (L H N)."""
        self.sums[name] = self.sums.get(name, np.zeros(self.shape)) + values.sum(-1, dtype=np.float64)
        self.counts[name] += values.shape[-1]

    def _add_baseline(self, name: str, values: NDArray[Any]) -> None:
        """Add values (N) that do not depend on the head."""
        self._add_values(name, np.broadcast_to(values, (*self.shape, len(values))))

    def _add_offsets(self, sentence: SentenceAttention, counted: BoolArray) -> None:
        """Count the offsets of the arg-max."""
        rows = np.flatnonzero(counted)
        offsets = sentence.weights[:, :, rows].argmax(-1) - rows  # L H R
        farthest = 0 if sentence.is_causal else _MAX_OFFSET
        for index, offset in enumerate(range(-_MAX_OFFSET, farthest + 1)):
            has_key = (rows + offset >= 0) & (rows + offset < sentence.weights.shape[-1])
            self.offset_hits[index] += (offsets[..., has_key] == offset).sum(-1)
            self.offset_queries[index] += has_key.sum()
        self.counts["queries"] += len(rows)

    def _add_weights(self, sentence: SentenceAttention, counted: BoolArray) -> None:
        """Add the weight on sinks and punctuation."""
        weights = sentence.weights[:, :, counted]
        self._add_values("sink", weights[..., sentence.special_columns].sum(-1))
        self._add_values("punctuation", weights[..., sentence.punctuation_columns].sum(-1))
        even = sentence.visible_mask[counted] / sentence.visible_mask[counted].sum(-1, keepdims=True)
        self._add_baseline("punctuation_baseline", even[:, sentence.punctuation_columns].sum(-1))

    def _add_distances(self, sentence: SentenceAttention, counted: BoolArray) -> None:
        """Add the distance between queries and the words that they attend to."""
        weights, words = sentence.weights[:, :, counted], sentence.word_mask[counted]
        away = np.abs(np.arange(weights.shape[-1]) - np.flatnonzero(counted)[:, None])  # R S
        self._add_values("distance", (weights * words * away).sum(-1))
        self._add_values("on_words", (weights * words).sum(-1))

    def _add_times(self, sentence: SentenceAttention, silent: BoolArray, counted: BoolArray) -> None:
        """Add the weight on silence, the width of the attention in time, and whether it moves forward."""
        weights = sentence.weights[:, :, counted]  # L H R S
        self._add_values("silence", weights[..., silent].sum(-1))
        self._add_baseline("silence_baseline", np.full(weights.shape[2], silent.mean()))
        times = np.arange(weights.shape[-1], dtype=np.float64)
        centres = weights @ times  # L H R
        self._add_values("width", np.sqrt(np.maximum(weights @ times**2 - centres**2, 0.0)))
        if not sentence.is_self_attention:
            self._add_values("monotonic", np.diff(weights.argmax(-1), axis=-1) >= 0)

    def _add_rare(
        self, sentence: SentenceAttention, words: BoolArray, best: NDArray[np.int64], counted: BoolArray
    ) -> None:
        """Count the queries whose arg-max word is the rarest, if they see more than one word."""
        rows = np.flatnonzero(counted & (words.sum(-1) > 1))
        least = np.where(words, sentence.column_frequency, np.iinfo(np.int64).max).min(-1, keepdims=True)
        rarest = words & (sentence.column_frequency == least)  # T S
        self._add_values("rare", rarest[rows, best[..., rows]])
        self._add_baseline("rare_baseline", rarest[rows].sum(-1) / words[rows].sum(-1))

    def _add_copies(
        self, sentence: SentenceAttention, words: BoolArray, best: NDArray[np.int64], counted: BoolArray
    ) -> None:
        """Count the queries whose arg-max word is an equal piece, if there is one."""
        same = words & (sentence.row_tokens[:, None] == sentence.column_tokens)  # T S
        if sentence.is_self_attention:
            np.fill_diagonal(same, False)
        rows = np.flatnonzero(counted & same.any(-1))
        self._add_values("copy", same[rows, best[..., rows]])

    def _add_links(self, links: BoolArray, best: NDArray[np.int64]) -> None:
        """Count the linked pieces whose arg-max is the linked word, as output and as input."""
        rows = np.flatnonzero(links.any(-1))
        self._add_values("alignment", links[rows, best[..., rows]])
        earlier = rows[rows + 1 < best.shape[-1]]  # the last piece of a truncated text is never an input
        self._add_values("alignment_shifted", links[earlier, best[..., earlier + 1]])
        self._add_baseline("alignment_chance", links[rows].mean(-1))
        targets, sources = np.nonzero(links)
        self.link_offsets.update((sources - targets).tolist())

    def head_measures(self, layer: int, head: int) -> HeadMeasures:
        """Return the statistics of one head."""
        mean = {name: self._mean(name, layer, head) for name in self.sums}
        share, offset = self._best_fixed_offset(layer, head)
        on_words = self.sums["on_words"][layer, head] if "on_words" in self.sums else 0.0
        return HeadMeasures(
            positional=share,
            offset=offset,
            alignment_baseline=self._alignment_baseline(layer, head),
            distance=float(self.sums["distance"][layer, head] / on_words) if on_words > 0 else None,
            **{name: mean.get(name) for name in _MEAN_FIELDS},
        )

    def _alignment_baseline(self, layer: int, head: int) -> float | None:
        """Return the share of links at the best fixed offset, or by chance if targets and times are linked."""
        if not self.counts["alignment"]:
            return None
        by_chance = self._mean("alignment_chance", layer, head)
        return by_chance if self.counts["silence"] else max(self.link_offsets.values()) / self.counts["alignment"]

    def _mean(self, name: str, layer: int, head: int) -> float | None:
        """Return the mean of a statistic."""
        return float(self.sums[name][layer, head] / self.counts[name]) if self.counts[name] else None

    def _best_fixed_offset(self, layer: int, head: int) -> tuple[float | None, int | None]:
        """Return the share of the most frequent offset, and the offset; most queries must have a key there."""
        enough = self.offset_queries > self.counts["queries"] / 2
        if not enough.any():
            return None, None
        shares = np.where(enough, self.offset_hits[:, layer, head] / np.maximum(self.offset_queries, 1), -1.0)
        return float(shares.max()), int(shares.argmax()) - _MAX_OFFSET

    def report(self) -> list[dict[str, Any]]:
        """Return every head with its layer, index, badges and statistics, as JSON."""
        layers, heads = self.shape
        indices = [(layer, head) for layer in range(layers) for head in range(heads)]
        measures = [(layer, head, self.head_measures(layer, head)) for layer, head in indices]
        return [
            {"layer": layer, "head": head, "badges": numbers.earned_badges(), **_known_measures(numbers)}
            for layer, head, numbers in measures
        ]


_MEAN_FIELDS = (
    "rare", "rare_baseline", "alignment", "alignment_shifted", "sink", "punctuation", "punctuation_baseline", "copy",
    "entropy", "confidence", *_TIME_FIELDS,
)  # fmt: skip


def _difference(value: float | None, baseline: float | None) -> float | None:
    return None if value is None or baseline is None else value - baseline


def _largest_known(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _entropy(weights: AttentionWeights) -> NDArray[Any]:
    """Return the entropy of each row in bits."""
    entropy: NDArray[Any] = -(weights * np.log2(np.maximum(weights, 1e-30))).sum(-1)
    return entropy


def _known_measures(measures: HeadMeasures) -> dict[str, Any]:
    """Return the statistics, rounded, without those of positions in time that were not measured."""
    numbers = {name: value for name, value in asdict(measures).items() if value is not None or name not in _TIME_FIELDS}
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in numbers.items()}
