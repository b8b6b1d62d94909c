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

from dragoman.viewer.record import Weights

Flags = NDArray[np.bool_]
Tokens = NDArray[np.int64]
Floats = NDArray[np.float64]

FARTHEST = 5  # offset that a positional head may look at
THRESHOLDS = {
    "positional": 0.90,  # of the queries look at one fixed offset
    "rare": 0.25,  # more often than chance would the rarest piece be looked at
    "alignment": 0.10,  # more links are followed than by the best fixed offset
    "sink": 0.50,  # of the weight lies on START and END
    "punctuation": 0.50,  # of the weight lies on punctuation
    "copy": 0.90,  # of the pieces that occur on both sides are looked at
}


@dataclass(frozen=True, eq=False)
class Reading:
    """One kind of attention over one sentence, and what stands at its positions.

    A row stands for a source piece in the encoder, for the piece just read in the decoder, and for the piece about to
    be written in cross attention. Rows of START and END are not counted.
    """

    weights: Weights  # L H T S
    rows: Tokens  # T, the pieces that look; equal pieces have equal numbers on both sides
    columns: Tokens  # S, the pieces looked at
    special_rows: Flags  # T
    special: Flags  # S
    punctuation: Flags  # S
    frequency: Tokens  # S, how often each piece occurs in the text
    own: bool = False  # self-attention: position t of the rows is position t of the columns
    causal: bool = False  # row t sees columns up to t alone
    links: Flags | None = None  # T S, which piece each written one translates; cross attention only

    @property
    def visible(self) -> Flags:
        """Return T S: what a row may look at."""
        shape = self.weights.shape[2:]
        return np.tri(*shape, dtype=np.bool_) if self.causal else np.ones(shape, dtype=np.bool_)

    @property
    def words(self) -> Flags:
        """Return T S: what a row may look at, but for START and END."""
        return self.visible & ~self.special


@dataclass(frozen=True)
class Numbers:
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

    def badges(self) -> list[str]:
        """Return the names that the numbers earn."""
        found = {
            "positional": self.positional,
            "rare": above(self.rare, self.rare_baseline),
            "alignment": above(largest(self.alignment, self.alignment_shifted), self.alignment_baseline),
            "sink": self.sink,
            "punctuation": self.punctuation,
            "copy": self.copy,
        }
        return [name for name, value in found.items() if value is not None and value >= THRESHOLDS[name]]


class Statistics:
    """Sums over sentences, for every head of one kind of attention."""

    def __init__(self, layers: int, heads: int) -> None:
        self.shape = (layers, heads)
        self.sums: dict[str, Floats] = {}
        self.counts: Counter[str] = Counter()
        self.at_offset = np.zeros((2 * FARTHEST + 1, layers, heads))
        self.has_offset = np.zeros(2 * FARTHEST + 1)
        self.link_offsets: Counter[int] = Counter()

    def add(self, reading: Reading) -> None:
        """Take one more sentence into account."""
        counted = ~reading.special_rows
        words = reading.words
        among_words = np.where(words, reading.weights, -1.0)  # L H T S
        best = among_words.argmax(-1)  # L H T
        self.add_offsets(reading, counted)
        self.add_weights(reading, counted)
        self.note("confidence", among_words.max(-1)[..., counted])
        self.add_rare(reading, words, best, counted)
        self.add_copies(reading, words, best, counted)
        if reading.links is not None:
            self.add_links(reading.links, best)

    def note(self, name: str, values: NDArray[Any]) -> None:
        """Add values (L H N), one for each of N queries."""
        self.sums[name] = self.sums.get(name, np.zeros(self.shape)) + values.sum(-1, dtype=np.float64)
        self.counts[name] += values.shape[-1]

    def note_chance(self, name: str, values: NDArray[Any]) -> None:
        """Add values (N) that do not depend on the head."""
        self.note(name, np.broadcast_to(values, (*self.shape, len(values))))

    def add_offsets(self, reading: Reading, counted: Flags) -> None:
        """Count how often the heaviest key is so many positions away."""
        rows = np.flatnonzero(counted)
        away = reading.weights[:, :, rows].argmax(-1) - rows  # L H R
        farthest = 0 if reading.causal else FARTHEST
        for place, offset in enumerate(range(-FARTHEST, farthest + 1)):
            has_key = (rows + offset >= 0) & (rows + offset < reading.weights.shape[-1])
            self.at_offset[place] += (away[..., has_key] == offset).sum(-1)
            self.has_offset[place] += has_key.sum()
        self.counts["queries"] += len(rows)

    def add_weights(self, reading: Reading, counted: Flags) -> None:
        """Sum where the weight lies, how far away and how evenly."""
        weights, words = reading.weights[:, :, counted], reading.words[counted]
        self.note("sink", weights[..., reading.special].sum(-1))
        self.note("punctuation", weights[..., reading.punctuation].sum(-1))
        even = reading.visible[counted] / reading.visible[counted].sum(-1, keepdims=True)
        self.note_chance("punctuation_baseline", even[:, reading.punctuation].sum(-1))
        self.note("entropy", -(weights * np.log2(np.maximum(weights, 1e-30))).sum(-1))
        away = np.abs(np.arange(weights.shape[-1]) - np.flatnonzero(counted)[:, None])  # R S
        self.note("distance", (weights * words * away).sum(-1))
        self.note("on_words", (weights * words).sum(-1))

    def add_rare(self, reading: Reading, words: Flags, best: NDArray[np.int64], counted: Flags) -> None:
        """Count how often the heaviest word is the rarest, where there is a choice."""
        rows = np.flatnonzero(counted & (words.sum(-1) > 1))
        least = np.where(words, reading.frequency, np.iinfo(np.int64).max).min(-1, keepdims=True)
        rarest = words & (reading.frequency == least)  # T S
        self.note("rare", rarest[rows, best[..., rows]])
        self.note_chance("rare_baseline", rarest[rows].sum(-1) / words[rows].sum(-1))

    def add_copies(self, reading: Reading, words: Flags, best: NDArray[np.int64], counted: Flags) -> None:
        """Count how often the heaviest word is the same piece, where there is one."""
        same = words & (reading.rows[:, None] == reading.columns)  # T S
        if reading.own:
            np.fill_diagonal(same, False)
        rows = np.flatnonzero(counted & same.any(-1))
        self.note("copy", same[rows, best[..., rows]])

    def add_links(self, links: Flags, best: NDArray[np.int64]) -> None:
        """Count how often the heaviest word is the linked one, when a piece is written and when it was just read."""
        rows = np.flatnonzero(links.any(-1))
        self.note("alignment", links[rows, best[..., rows]])
        earlier = rows[rows + 1 < best.shape[-1]]  # the last piece of a cut-off text is never read
        self.note("alignment_shifted", links[earlier, best[..., earlier + 1]])
        targets, sources = np.nonzero(links)
        self.link_offsets.update((sources - targets).tolist())

    def numbers(self, layer: int, head: int) -> Numbers:
        """Return what was found of one head."""
        mean = {name: self.mean(name, layer, head) for name in self.sums}
        share, offset = self.fixed_offset(layer, head)
        on_words = self.sums["on_words"][layer, head] if "on_words" in self.sums else 0.0
        linked = self.counts["alignment"]
        return Numbers(
            positional=share,
            offset=offset,
            alignment_baseline=max(self.link_offsets.values()) / linked if linked else None,
            distance=float(self.sums["distance"][layer, head] / on_words) if on_words > 0 else None,
            **{name: mean.get(name) for name in MEANS},
        )

    def mean(self, name: str, layer: int, head: int) -> float | None:
        """Return the mean of what was noted under a name."""
        return float(self.sums[name][layer, head] / self.counts[name]) if self.counts[name] else None

    def fixed_offset(self, layer: int, head: int) -> tuple[float | None, int | None]:
        """Return the share of the commonest offset, and the offset; most queries must have a key there."""
        enough = self.has_offset > self.counts["queries"] / 2
        if not enough.any():
            return None, None
        shares = np.where(enough, self.at_offset[:, layer, head] / np.maximum(self.has_offset, 1), -1.0)
        return float(shares.max()), int(shares.argmax()) - FARTHEST

    def heads(self) -> list[dict[str, Any]]:
        """Return every head with its place, its badges and its numbers, ready to be written as JSON."""
        layers, heads = self.shape
        places = [(layer, head) for layer in range(layers) for head in range(heads)]
        found = [(layer, head, self.numbers(layer, head)) for layer, head in places]
        return [
            {"layer": layer, "head": head, "badges": numbers.badges(), **rounded(asdict(numbers))}
            for layer, head, numbers in found
        ]


MEANS = (
    "rare", "rare_baseline", "alignment", "alignment_shifted", "sink", "punctuation", "punctuation_baseline", "copy",
    "entropy", "confidence",
)  # fmt: skip


def above(value: float | None, baseline: float | None) -> float | None:
    """Return by how much a value exceeds its baseline, if both are known."""
    return None if value is None or baseline is None else value - baseline


def largest(*values: float | None) -> float | None:
    """Return the largest of the values that are known."""
    return max((value for value in values if value is not None), default=None)


def rounded(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Round to what a person, or a bar on a page, can tell apart."""
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in numbers.items()}
