"""A model watched over many sentence pairs: the attention records of all of them, computed many at a time."""

from collections.abc import Sequence

import numpy as np
import torch

from dragoman.models.transducer import Source
from dragoman.tasks.events import OnEvent, ProgressUpdate
from dragoman.tasks.translate import Translator
from dragoman.tokens import PAD, START
from dragoman.viewer.record import (
    ATTENTION_KINDS,
    END_PIECE,
    AttentionKind,
    AttentionRecord,
    AttentionWeights,
    CharSpan,
)

_BATCH_SIZE = 32  # sentence pairs read at a time


def record_attention(
    model: Translator, pairs: Sequence[tuple[str, str]], on_event: OnEvent, what: str
) -> list[AttentionRecord | None]:
    """Return the attention over each pair, read with the right target; None where a side is empty or too long."""
    found: list[AttentionRecord | None] = [None] * len(pairs)
    tokens = [(model.source_tokens(source), model.target_tokenizer.encode(target)) for source, target in pairs]
    longest = model.recipe.data.longest
    fits = [
        n for n, (source, target) in enumerate(tokens) if source and target and len(source) <= longest > len(target)
    ]
    fits.sort(key=lambda number: tuple(map(len, tokens[number])))
    for first in range(0, len(fits), _BATCH_SIZE):
        some = fits[first : first + _BATCH_SIZE]
        weights = _attention_weights(model, [tokens[number] for number in some])
        for row, number in enumerate(some):
            mine = {kind: array[row] for kind, array in weights.items()}
            found[number] = _build_record(model, pairs[number], tokens[number], mine)
        on_event(ProgressUpdate(what, first + len(some), len(fits)))
    return found


@torch.inference_mode()
def _attention_weights(
    model: Translator, tokens: Sequence[tuple[list[int], list[int]]]
) -> dict[AttentionKind, AttentionWeights]:
    """Return all weights of some pairs side by side: B L H T S of each kind that the architecture has."""
    source = _pad_rows([source for source, _ in tokens])
    prefix = _pad_rows([[START, *target] for _, target in tokens])
    seen = model.model.eval().attention_maps(Source.from_ids(source.to(model.device)), prefix.to(model.device))
    layers = {kind: getattr(seen, kind) for kind in ATTENTION_KINDS}
    return {kind: torch.stack(found, dim=1).float().cpu().numpy() for kind, found in layers.items() if found}


def _pad_rows(rows: Sequence[list[int]]) -> torch.Tensor:
    """Return rows of tokens side by side."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def _build_record(
    model: Translator,
    pair: tuple[str, str],
    tokens: tuple[list[int], list[int]],
    weights: dict[AttentionKind, AttentionWeights],
) -> AttentionRecord:
    """Put the weights of one pair, L H T S and padded, together with its pieces."""
    (text, _), (source, target) = pair, tokens
    translation = model.target_tokenizer.decode(target)
    sizes = {"encoder": (len(source),) * 2, "decoder": (len(target) + 1,) * 2, "cross": (len(target) + 1, len(source))}
    cut = {kind: np.zeros((0, 0, *sizes[kind]), np.float32) for kind in ATTENTION_KINDS}
    cut |= {kind: array[:, :, : sizes[kind][0], : sizes[kind][1]] for kind, array in weights.items()}
    spans: list[CharSpan] = [(one.start, one.end) for one in model.source_tokenizer.pieces(text)]
    return AttentionRecord(
        source_pieces=(*model.source_tokenizer.spell(source[:-1]), END_PIECE),
        target_pieces=(*model.target_tokenizer.spell(target), END_PIECE),
        source_text=text,
        target_text=translation,
        encoder=cut["encoder"],
        decoder=cut["decoder"],
        cross=cut["cross"],
        title=model.name,
        source_spans=(*spans, (len(text),) * 2),
        target_spans=(*model.target_tokenizer.spans(target), (len(translation),) * 2),
    )
