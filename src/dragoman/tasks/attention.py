"""Records the attention of a model over given sources and targets, with teacher forcing."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from dragoman.errors import UserError
from dragoman.model_config import AttentionKind
from dragoman.models.transducer import Source, Transducer
from dragoman.tasks.events import OnEvent, ProgressUpdate
from dragoman.tokens import PAD, START
from dragoman.viewer.record import ATTENTION_KINDS, END_PIECE, AttentionRecord, AttentionWeights, CharSpan, DecodingStep

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel

_BATCH_SIZE = 32  # pairs


@torch.inference_mode()
def attention_weights(
    model: Transducer,
    source: Source,  # of B inputs
    prefix: Tensor,  # B T
) -> dict[AttentionKind, AttentionWeights]:
    """Return the weights of a batch (B L H T S) for each kind of attention that the architecture has."""
    maps = model.eval().attention_maps(source, prefix)
    layers = {kind: getattr(maps, kind) for kind in ATTENTION_KINDS}
    return {kind: torch.stack(weights, dim=1).float().cpu().numpy() for kind, weights in layers.items() if weights}


def build_record(
    model: "SequenceModel",
    text: str,
    source: Sequence[int],
    target: Sequence[int],
    weights: Mapping[AttentionKind, AttentionWeights],  # L H T S, possibly padded
    steps: tuple[DecodingStep, ...] = (),
) -> AttentionRecord:
    """Return the record of one source, with END, and one target, without it; a language model has no source."""
    rows, columns = len(target) + 1, len(source)
    sizes = {"encoder": (columns, columns), "decoder": (rows, rows), "cross": (rows, columns)}
    arrays = {kind: np.zeros((0, 0, *sizes[kind]), np.float32) for kind in ATTENTION_KINDS}
    arrays |= {kind: array[:, :, : sizes[kind][0], : sizes[kind][1]] for kind, array in weights.items()}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise UserError(f"{model.name} computes attention weights that are not finite; its weights are damaged.")
    pieces = model.source_tokenizer.pieces(text) if text else []
    source_spans: list[CharSpan] = [*((piece.start, piece.end) for piece in pieces), (len(text), len(text))]
    target_text = model.target_tokenizer.decode(target)
    return AttentionRecord(
        source_pieces=(*model.source_tokenizer.spell(source[:-1]), END_PIECE)[:columns],
        target_pieces=(*model.target_tokenizer.spell(target), END_PIECE),
        source_text=text,
        target_text=target_text,
        encoder=arrays["encoder"],
        decoder=arrays["decoder"],
        cross=arrays["cross"],
        title=model.name,
        source_spans=tuple(source_spans[:columns]),
        target_spans=(*model.target_tokenizer.spans(target), (len(target_text), len(target_text))),
        steps=steps,
    )


def record_batch(
    model: "SequenceModel",
    pairs: Sequence[tuple[str, list[int], list[int]]],  # source text, its tokens with END, target tokens without
    kinds: Sequence[AttentionKind] = ATTENTION_KINDS,
) -> list[AttentionRecord]:
    """Return the records of some pairs, with the weights of these kinds, computed at once."""
    sources = _pad([source for _, source, _ in pairs]).to(model.device)
    prefixes = _pad([[START, *target] for _, _, target in pairs]).to(model.device)
    weights = attention_weights(model.model, Source.from_ids(sources), prefixes)
    return [
        build_record(model, *pair, {kind: array[row] for kind, array in weights.items() if kind in kinds})
        for row, pair in enumerate(pairs)
    ]


def record_attention(
    model: "SequenceModel", pairs: Sequence[tuple[str, str]], on_event: OnEvent, description: str
) -> list[AttentionRecord | None]:
    """Return the record of each pair, computed in batches of similar lengths; None if a side is empty or too long."""
    records: list[AttentionRecord | None] = [None] * len(pairs)
    tokens = [(model.source_tokens(source), model.target_tokenizer.encode(target)) for source, target in pairs]
    longest = model.recipe.data.longest
    usable = [
        n for n, (source, target) in enumerate(tokens) if source and target and len(source) <= longest > len(target)
    ]
    usable.sort(key=lambda number: tuple(map(len, tokens[number])))
    for first in range(0, len(usable), _BATCH_SIZE):
        batch = usable[first : first + _BATCH_SIZE]
        recorded = record_batch(model, [(pairs[number][0], *tokens[number]) for number in batch])
        for number, record in zip(batch, recorded, strict=True):
            records[number] = record
        on_event(ProgressUpdate(description, first + len(batch), len(usable)))
    return records


def _pad(rows: Sequence[list[int]]) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
