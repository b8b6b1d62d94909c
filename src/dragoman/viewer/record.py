"""The attention record: the attention weights of one input and output, with their pieces.

A record contains numpy arrays and strings only. The tasks create it from a model; the viewer never sees the model.

Shapes: S source pieces, T target pieces.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dragoman.model_config import AttentionKind, HeadIndex

AttentionWeights = NDArray[np.float32]
CharSpan = tuple[int, int]  # start and end (exclusive) in characters
MimeBundle = dict[str, Any]  # representations for a notebook, by media type

ATTENTION_KINDS: tuple[AttentionKind, ...] = ("encoder", "decoder", "cross")
START_PIECE = "⟨start⟩"
END_PIECE = "⟨end⟩"
WORD_MARKS = (" ", "▁")  # a piece that begins a word starts with one of them


@dataclass(frozen=True)
class TokenChoice:
    """A candidate for the next piece, with its log-probability."""

    piece: str
    log_probability: float


@dataclass(frozen=True)
class DecodingStep:
    """One step of the decoder: the log-probability of its piece, and the most likely pieces, best first."""

    log_probability: float  # of the piece in the output
    top_choices: tuple[TokenChoice, ...]


@dataclass(frozen=True)
class BeamNode:
    """One piece of one or more hypotheses of a beam search."""

    parent: int | None  # its index; parents precede their children
    token: int
    piece: str
    text: str  # of the hypothesis up to this piece
    step: int  # from 0
    log_probability: float  # of this piece
    sum: float  # of the log-probabilities up to it
    score: float  # the sum divided by the length penalty, which ranks hypotheses
    status: Literal["chosen", "finished", "live", "pruned"]


@dataclass(frozen=True, eq=False)
class BeamTree:
    """Every hypothesis that was in the beam."""

    nodes: tuple[BeamNode, ...]
    width: int
    length_penalty: float
    attention: AttentionWeights  # nodes, S: cross-attention of the node's step, mean over the heads of a layer
    layer: int  # of that attention


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """The attention of one forward pass over a source and its target.

    `target_pieces` are the output pieces, END included. Row t of `decoder` and of `cross` is step t of the decoder: its
    input is `prefix_pieces[t]` and its output `target_pieces[t]`, which labels the row. The columns of `decoder` are
    the prefix, those of `cross` the source. In architectures with joint attention over source and prefix, a row of
    `decoder` and the same row of `cross` sum to 1 together.
    """

    source_pieces: tuple[str, ...]  # S
    target_pieces: tuple[str, ...]  # T
    source_text: str
    target_text: str
    encoder: AttentionWeights  # layers, heads, S, S; zero layers if the architecture lacks this kind
    decoder: AttentionWeights  # layers, heads, T, T
    cross: AttentionWeights  # layers, heads, T, S
    title: str = ""  # of the page; by default the name of the run
    source_spans: tuple[CharSpan, ...] = ()  # S: character span of each piece; ⟨end⟩ is empty at the end
    target_spans: tuple[CharSpan, ...] = ()  # T
    steps: tuple[DecodingStep, ...] = ()  # T
    forced_length: int = 0  # number of target pieces that were forced (the prefix)
    ablated_heads: tuple[HeadIndex, ...] = ()
    can_ablate: bool = True  # whether the architecture supports ablating heads
    beam: BeamTree | None = None
    gold_alignment: str | None = None  # gold word alignment in Pharaoh format, as "0-0 1-2"
    report: Mapping[str, Any] | None = None  # the head report of the run
    skin: str = "text"
    frames: NDArray[np.float32] | None = None  # L F: the signal, if the source is one, as the model reads it
    seconds: float = 0.0  # its length
    # Recomputes the record with some options changed; None if the model is not available.
    rerun: "Callable[..., AttentionRecord] | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for kind in ATTENTION_KINDS:
            _check_shape(kind, self.weights(kind), (len(self.row_labels(kind)), len(self.column_labels(kind))))
        for kinds in self.softmax_groups():
            _check_row_sums(kinds, [self.weights(kind) for kind in kinds])

    def softmax_groups(self) -> list[tuple[AttentionKind, ...]]:
        """Return the kinds that share a softmax: each its own, unless attention over source and prefix is joint."""
        alike = self.decoder.shape[:2] == self.cross.shape[:2]
        together = alike and _are_all_one(_row_sums(self.decoder) + _row_sums(self.cross))
        return [("encoder",), ("decoder", "cross")] if together else [("encoder",), ("decoder",), ("cross",)]

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        """Show the record in a notebook: as a widget if anywidget is installed, otherwise as a page in a frame."""
        from dragoman.viewer.notebook import mime_bundle

        return mime_bundle(self)

    @property
    def kinds(self) -> tuple[AttentionKind, ...]:
        """The kinds of attention that the architecture has; some have none."""
        return tuple(kind for kind in ATTENTION_KINDS if len(self.weights(kind)))

    @property
    def prefix_pieces(self) -> tuple[str, ...]:
        """The decoder's T input pieces: START, then the output without its last piece."""
        return (START_PIECE, *self.target_pieces)[: len(self.target_pieces)]

    def weights(self, kind: AttentionKind) -> AttentionWeights:
        """Return the weights of one kind: layers, heads, rows, columns."""
        return {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}[kind]

    def row_labels(self, kind: AttentionKind) -> tuple[str, ...]:
        """Return the labels of the queries: source pieces, or the output pieces of the steps."""
        return self.source_pieces if kind == "encoder" else self.target_pieces

    def column_labels(self, kind: AttentionKind) -> tuple[str, ...]:
        """Return the labels of the keys: source pieces, or the decoder's input pieces."""
        return self.prefix_pieces if kind == "decoder" else self.source_pieces


def _check_shape(kind: AttentionKind, weights: AttentionWeights, expected: tuple[int, int]) -> None:
    """Raise a ValueError if the weights do not match the number of pieces."""
    if weights.ndim != 4 or weights.shape[2:] != expected or (len(weights) and not weights.size):
        rows, columns = expected
        raise ValueError(
            f"the {kind} weights have shape {weights.shape}, expected (layers, heads, {rows}, {columns}) for the tokens"
        )


def _check_row_sums(kinds: tuple[AttentionKind, ...], weights: list[AttentionWeights]) -> None:
    """Raise a ValueError if rows do not sum to one."""
    sums = np.sum([_row_sums(array) for array in weights], axis=0)
    if not _are_all_one(sums) or any(array.min(initial=0) < 0 for array in weights):
        layer, head, row = np.unravel_index(np.argmax(np.abs(sums - 1)), sums.shape)
        raise ValueError(
            f"row {row} of {' and '.join(kinds)} layer {layer + 1}, head {head + 1} sums to "
            f"{sums[layer, head, row]:.5f}; attention weights must be non-negative and sum to 1"
        )


def _row_sums(weights: AttentionWeights) -> NDArray[np.float64]:
    """Return the sum of each row: layers, heads, rows."""
    sums: NDArray[np.float64] = weights.sum(axis=-1, dtype=np.float64)
    return sums


def _are_all_one(sums: NDArray[np.float64]) -> bool:
    """Return whether all sums are 1, to rounding."""
    return bool(np.all(np.abs(sums - 1) <= 1e-4))
