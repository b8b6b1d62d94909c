"""What kind of head it is: numbers of every head, taken over many sentences, and the names that they earn.

One sentence shows what a head did; only many show what it does. The kinds of heads and the first threshold are those of
Voita et al. 2019 (arXiv 1905.09418). START and END are where a head looks that has nothing to say: they count as sinks,
and the numbers about words leave them out.

Shapes: L layers, H heads, T positions that look (rows), S positions looked at (columns).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.viewer.record import AttentionWeights

BoolArray = NDArray[np.bool_]
TokenArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

MAX_OFFSET = 5  # offset that a positional head may look at
BADGE_THRESHOLDS = {
    "positional": 0.90,  # of the queries look at one fixed offset
    "rare": 0.25,  # more often than chance would the rarest piece be looked at
    "alignment": 0.10,  # more links are followed than by the best fixed offset
    "sink": 0.50,  # of the weight lies on START and END
    "punctuation": 0.50,  # of the weight lies on punctuation
    "copy": 0.90,  # of the pieces that occur on both sides are looked at
}


@dataclass(frozen=True, eq=False)
class SentenceAttention:
    """One kind of attention over one sentence, and what stands at its positions.

    A row stands for a source piece in the encoder, for the piece just read in the decoder, and for the piece about to
    be written in cross attention. Rows of START and END are not counted.
    """

    weights: AttentionWeights  # L H T S
    row_tokens: TokenArray  # T, the pieces that look; equal pieces have equal numbers on both sides
    column_tokens: TokenArray  # S, the pieces looked at
    special_rows: BoolArray  # T
    special_columns: BoolArray  # S
    punctuation_columns: BoolArray  # S
    column_frequency: TokenArray  # S, how often each piece occurs in the text
    is_self_attention: bool = False  # self-attention: position t of the rows is position t of the columns
    is_causal: bool = False  # row t sees columns up to t alone
    links: BoolArray | None = None  # T S, which piece each written one translates; cross attention only

    @property
    def visible_mask(self) -> BoolArray:
        """Return T S: what a row may look at."""
        shape = self.weights.shape[2:]
        return np.tri(*shape, dtype=np.bool_) if self.is_causal else np.ones(shape, dtype=np.bool_)

    @property
    def word_mask(self) -> BoolArray:
        """Return T S: what a row may look at, but for START and END."""
        return self.visible_mask & ~self.special_columns


@dataclass(frozen=True)
class HeadMeasures:
    """What was measured of one head; None where the text held nothing to measure it by."""

    positional: float | None  # share of queries whose heaviest key is at one fixed offset …
    offset: int | None  # … namely this one
    rare: float | None  # share of queries whose heaviest word is the rarest that they see
    rare_baseline: float | None  # the share that chance would have
    alignment: float | None  # share of linked pieces whose heaviest source piece is the linked one, when written …
    alignment_shifted: float | None  # … and one step later, when just read
    alignment_baseline: float | None  # the share that the best fixed offset would have
    sink: float | None  # weight on START and END
    punctuation: float | None  # weight on punctuation
    punctuation_baseline: float | None  # the weight it would have if all were looked at alike
    copy: float | None  # share of pieces that occur elsewhere, or on the other side, whose heaviest word is the same
    entropy: float | None  # bits
    distance: float | None  # pieces between the one that looks and what it looks at
    confidence: float | None  # the heaviest weight on a word

    def earned_badges(self) -> list[str]:
        """Return the names that the numbers earn."""
        found = {
            "positional": self.positional,
            "rare": _difference(self.rare, self.rare_baseline),
            "alignment": _difference(_largest_known(self.alignment, self.alignment_shifted), self.alignment_baseline),
            "sink": self.sink,
            "punctuation": self.punctuation,
            "copy": self.copy,
        }
        return [name for name, value in found.items() if value is not None and value >= BADGE_THRESHOLDS[name]]


class HeadStatistics:
    """Sums over sentences, for every head of one kind of attention."""

    def __init__(self, layers: int, heads: int) -> None:
        self.shape = (layers, heads)
        self.sums: dict[str, FloatArray] = {}
        self.counts: Counter[str] = Counter()
        self.offset_hits = np.zeros((2 * MAX_OFFSET + 1, layers, heads))
        self.offset_queries = np.zeros(2 * MAX_OFFSET + 1)
        self.link_offsets: Counter[int] = Counter()

    def add(self, sentence: SentenceAttention) -> None:
        """Take one more sentence into account."""
        counted = ~sentence.special_rows
        words = sentence.word_mask
        among_words = np.where(words, sentence.weights, -1.0)  # L H T S
        best = among_words.argmax(-1)  # L H T
        self._add_offsets(sentence, counted)
        self._add_weights(sentence, counted)
        self._add_values("confidence", among_words.max(-1)[..., counted])
        self._add_rare(sentence, words, best, counted)
        self._add_copies(sentence, words, best, counted)
        if sentence.links is not None:
            self._add_links(sentence.links, best)

    def _add_values(self, name: str, values: NDArray[Any]) -> None:
        """Add values (L H N), one for each of N queries."""
        self.sums[name] = self.sums.get(name, np.zeros(self.shape)) + values.sum(-1, dtype=np.float64)
        self.counts[name] += values.shape[-1]

    def _add_baseline(self, name: str, values: NDArray[Any]) -> None:
        """Add values (N) that do not depend on the head."""
        self._add_values(name, np.broadcast_to(values, (*self.shape, len(values))))

    def _add_offsets(self, sentence: SentenceAttention, counted: BoolArray) -> None:
        """Count how often the heaviest key is so many positions away."""
        rows = np.flatnonzero(counted)
        away = sentence.weights[:, :, rows].argmax(-1) - rows  # L H R
        farthest = 0 if sentence.is_causal else MAX_OFFSET
        for place, offset in enumerate(range(-MAX_OFFSET, farthest + 1)):
            has_key = (rows + offset >= 0) & (rows + offset < sentence.weights.shape[-1])
            self.offset_hits[place] += (away[..., has_key] == offset).sum(-1)
            self.offset_queries[place] += has_key.sum()
        self.counts["queries"] += len(rows)

    def _add_weights(self, sentence: SentenceAttention, counted: BoolArray) -> None:
        """Sum where the weight lies, how far away and how evenly."""
        weights, words = sentence.weights[:, :, counted], sentence.word_mask[counted]
        self._add_values("sink", weights[..., sentence.special_columns].sum(-1))
        self._add_values("punctuation", weights[..., sentence.punctuation_columns].sum(-1))
        even = sentence.visible_mask[counted] / sentence.visible_mask[counted].sum(-1, keepdims=True)
        self._add_baseline("punctuation_baseline", even[:, sentence.punctuation_columns].sum(-1))
        self._add_values("entropy", -(weights * np.log2(np.maximum(weights, 1e-30))).sum(-1))
        away = np.abs(np.arange(weights.shape[-1]) - np.flatnonzero(counted)[:, None])  # R S
        self._add_values("distance", (weights * words * away).sum(-1))
        self._add_values("on_words", (weights * words).sum(-1))

    def _add_rare(
        self, sentence: SentenceAttention, words: BoolArray, best: NDArray[np.int64], counted: BoolArray
    ) -> None:
        """Count how often the heaviest word is the rarest, where there is a choice."""
        rows = np.flatnonzero(counted & (words.sum(-1) > 1))
        least = np.where(words, sentence.column_frequency, np.iinfo(np.int64).max).min(-1, keepdims=True)
        rarest = words & (sentence.column_frequency == least)  # T S
        self._add_values("rare", rarest[rows, best[..., rows]])
        self._add_baseline("rare_baseline", rarest[rows].sum(-1) / words[rows].sum(-1))

    def _add_copies(
        self, sentence: SentenceAttention, words: BoolArray, best: NDArray[np.int64], counted: BoolArray
    ) -> None:
        """Count how often the heaviest word is the same piece, where there is one."""
        same = words & (sentence.row_tokens[:, None] == sentence.column_tokens)  # T S
        if sentence.is_self_attention:
            np.fill_diagonal(same, False)
        rows = np.flatnonzero(counted & same.any(-1))
        self._add_values("copy", same[rows, best[..., rows]])

    def _add_links(self, links: BoolArray, best: NDArray[np.int64]) -> None:
        """Count how often the heaviest word is the linked one, when a piece is written and when it was just read."""
        rows = np.flatnonzero(links.any(-1))
        self._add_values("alignment", links[rows, best[..., rows]])
        earlier = rows[rows + 1 < best.shape[-1]]  # the last piece of a cut-off text is never read
        self._add_values("alignment_shifted", links[earlier, best[..., earlier + 1]])
        targets, sources = np.nonzero(links)
        self.link_offsets.update((sources - targets).tolist())

    def head_measures(self, layer: int, head: int) -> HeadMeasures:
        """Return what was found of one head."""
        mean = {name: self._mean(name, layer, head) for name in self.sums}
        share, offset = self._best_fixed_offset(layer, head)
        on_words = self.sums["on_words"][layer, head] if "on_words" in self.sums else 0.0
        linked = self.counts["alignment"]
        return HeadMeasures(
            positional=share,
            offset=offset,
            alignment_baseline=max(self.link_offsets.values()) / linked if linked else None,
            distance=float(self.sums["distance"][layer, head] / on_words) if on_words > 0 else None,
            **{name: mean.get(name) for name in _MEAN_FIELDS},
        )

    def _mean(self, name: str, layer: int, head: int) -> float | None:
        """Return the mean of what was noted under a name."""
        return float(self.sums[name][layer, head] / self.counts[name]) if self.counts[name] else None

    def _best_fixed_offset(self, layer: int, head: int) -> tuple[float | None, int | None]:
        """Return the share of the commonest offset, and the offset; most queries must have a key there."""
        enough = self.offset_queries > self.counts["queries"] / 2
        if not enough.any():
            return None, None
        shares = np.where(enough, self.offset_hits[:, layer, head] / np.maximum(self.offset_queries, 1), -1.0)
        return float(shares.max()), int(shares.argmax()) - MAX_OFFSET

    def report(self) -> list[dict[str, Any]]:
        """Return every head with its place, its badges and its numbers, ready to be written as JSON."""
        layers, heads = self.shape
        places = [(layer, head) for layer in range(layers) for head in range(heads)]
        found = [(layer, head, self.head_measures(layer, head)) for layer, head in places]
        return [
            {"layer": layer, "head": head, "badges": numbers.earned_badges(), **_round_numbers(asdict(numbers))}
            for layer, head, numbers in found
        ]


_MEAN_FIELDS = (
    "rare", "rare_baseline", "alignment", "alignment_shifted", "sink", "punctuation", "punctuation_baseline", "copy",
    "entropy", "confidence",
)  # fmt: skip


def _difference(value: float | None, baseline: float | None) -> float | None:
    """Return by how much a value exceeds its baseline, if both are known."""
    return None if value is None or baseline is None else value - baseline


def _largest_known(*values: float | None) -> float | None:
    """Return the largest of the values that are known."""
    return max((value for value in values if value is not None), default=None)


def _round_numbers(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Round to what a person, or a bar on a page, can tell apart."""
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in numbers.items()}
