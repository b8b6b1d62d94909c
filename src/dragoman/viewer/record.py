"""What is shown: the attention weights of one translation, with the pieces they belong to.

Only numpy arrays and strings: whoever has a model fills the record, whoever draws never sees the model.

Shapes: S source pieces, T target pieces.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

AttentionWeights = NDArray[np.float32]
AttentionKind = Literal["encoder", "decoder", "cross"]
HeadIndex = tuple[AttentionKind, int, int]  # kind, layer and head, counted from 0
CharSpan = tuple[int, int]  # from a character of a text up to, not including, another
MimeBundle = dict[str, Any]  # what a notebook shows, by media type

ATTENTION_KINDS: tuple[AttentionKind, ...] = ("encoder", "decoder", "cross")
START_PIECE = "⟨start⟩"
END_PIECE = "⟨end⟩"
WORD_MARKS = (" ", "▁")  # either of them opens a piece that begins a word


@dataclass(frozen=True)
class TokenChoice:
    """A piece that could be written, and how probable the model found it."""

    piece: str
    log_probability: float


@dataclass(frozen=True)
class DecodingStep:
    """What was written at one step of the decoder, and what it would have liked best, the likeliest first."""

    log_probability: float  # of the piece that was written
    top_choices: tuple[TokenChoice, ...]


@dataclass(frozen=True)
class BeamNode:
    """A piece that some hypothesis of the search went on with."""

    parent: int | None  # its place among the nodes; parents stand before their children
    token: int
    piece: str
    text: str  # all that the hypothesis says up to here
    step: int  # at which it was written, from 0
    log_probability: float  # of this piece
    sum: float  # of the log-probabilities up to it
    score: float  # the sum divided by the length penalty: what hypotheses are ranked by
    state: Literal["chosen", "finished", "live", "pruned"]


@dataclass(frozen=True, eq=False)
class BeamTree:
    """Every hypothesis that was ever in the beam."""

    nodes: tuple[BeamNode, ...]
    width: int
    length_penalty: float
    attention: (
        AttentionWeights  # nodes, S: cross-attention of the step that wrote the node, mean over the heads of a layer
    )
    layer: int  # of that attention


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """The attention of one forward pass over a source and its target.

    `target_pieces` are the pieces that were written, END among them. Row t of `decoder` and of `cross` belongs to step
    t, position t of the prefix: the decoder has just read `prefix_pieces[t]` and is about to write `target_pieces[t]`.
    We name these rows by what was written. The columns of `decoder` are the prefix, those of `cross` the source. Where
    one look goes to both, a row of `decoder` and the same row of `cross` only sum to 1 together.
    """

    source_pieces: tuple[str, ...]  # S
    target_pieces: tuple[str, ...]  # T
    source_text: str
    target_text: str
    encoder: AttentionWeights  # layers, heads, S, S; of a kind that the architecture lacks there are no layers
    decoder: AttentionWeights  # layers, heads, T, T
    cross: AttentionWeights  # layers, heads, T, S
    title: str = ""  # the run's name, or whatever the page should be called
    source_spans: tuple[CharSpan, ...] = ()  # S: where in the text each piece stands; ⟨end⟩ stands behind it
    target_spans: tuple[CharSpan, ...] = ()  # T
    steps: tuple[DecodingStep, ...] = ()  # T
    forced_length: int = 0  # how many target pieces were given to begin with
    ablated_heads: tuple[HeadIndex, ...] = ()  # heads that were switched off
    can_ablate: bool = True  # whether heads can be
    beam: BeamTree | None = None
    gold_alignment: str | None = None  # links between words that are known to be right, as "0-0 1-2"
    report: Mapping[str, Any] | None = None  # the head report of the run, if there is one
    skin: str = "text"
    # How to look once more with something changed, if whoever made the record can do that.
    rerun: "Callable[..., AttentionRecord] | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for kind in ATTENTION_KINDS:
            _check_shape(kind, self.weights(kind), (len(self.row_labels(kind)), len(self.column_labels(kind))))
        for kinds in self.softmax_groups():
            _check_row_sums(kinds, [self.weights(kind) for kind in kinds])

    def softmax_groups(self) -> list[tuple[AttentionKind, ...]]:
        """Return which kinds are normalised together: each by itself, unless one look goes to source and target."""
        alike = self.decoder.shape[:2] == self.cross.shape[:2]
        together = alike and _are_all_one(_row_sums(self.decoder) + _row_sums(self.cross))
        return [("encoder",), ("decoder", "cross")] if together else [("encoder",), ("decoder",), ("cross",)]

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        """Show the record in a notebook: as a widget where anywidget is installed, else as a page in a frame."""
        from dragoman.viewer.notebook import mime_bundle

        return mime_bundle(self)

    @property
    def kinds(self) -> tuple[AttentionKind, ...]:
        """Return the kinds of attention that the architecture has; some have none."""
        return tuple(kind for kind in ATTENTION_KINDS if len(self.weights(kind)))

    @property
    def prefix_pieces(self) -> tuple[str, ...]:
        """Return the T pieces that the decoder read: START, then all it had written before its last piece."""
        return (START_PIECE, *self.target_pieces)[: len(self.target_pieces)]

    def weights(self, kind: AttentionKind) -> AttentionWeights:
        """Return the weights of one kind: layers, heads, rows, columns."""
        return {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}[kind]

    def row_labels(self, kind: AttentionKind) -> tuple[str, ...]:
        """Return the names of the positions that look: a source piece, or the piece that the step wrote."""
        return self.source_pieces if kind == "encoder" else self.target_pieces

    def column_labels(self, kind: AttentionKind) -> tuple[str, ...]:
        """Return the pieces that are looked at: the source, or in the decoder what it had read."""
        return self.prefix_pieces if kind == "decoder" else self.source_pieces


def _check_shape(kind: AttentionKind, weights: AttentionWeights, expected: tuple[int, int]) -> None:
    """Refuse weights that do not belong to the pieces beside them."""
    if weights.ndim != 4 or weights.shape[2:] != expected or (len(weights) and not weights.size):
        rows, columns = expected
        raise ValueError(
            f"the {kind} weights have the shape {weights.shape}; the pieces ask for (layers, heads, {rows}, {columns})"
        )


def _check_row_sums(kinds: tuple[AttentionKind, ...], weights: list[AttentionWeights]) -> None:
    """Refuse rows that no softmax can have made."""
    sums = np.sum([_row_sums(each) for each in weights], axis=0)
    if not _are_all_one(sums) or any(each.min(initial=0) < 0 for each in weights):
        layer, head, row = np.unravel_index(np.argmax(np.abs(sums - 1)), sums.shape)
        raise ValueError(
            f"row {row} of {' and '.join(kinds)} layer {layer + 1}, head {head + 1} sums to "
            f"{sums[layer, head, row]:.5f}; attention weights are not negative and sum to 1"
        )


def _row_sums(weights: AttentionWeights) -> NDArray[np.float64]:
    """Return layers, heads, rows: what the weights of each row come to."""
    sums: NDArray[np.float64] = weights.sum(axis=-1, dtype=np.float64)
    return sums


def _are_all_one(sums: NDArray[np.float64]) -> bool:
    """Say whether all sums are 1, to rounding."""
    return bool(np.all(np.abs(sums - 1) <= 1e-4))
