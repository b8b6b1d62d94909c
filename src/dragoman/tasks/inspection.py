"""Inspection of a model: one output with every attention weight and the hypotheses that the search considered."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import Tensor

from dragoman.decoding.engine import SourceItem
from dragoman.decoding.search import Beam
from dragoman.decoding.trace import SearchNode, SearchTrace
from dragoman.errors import UserError
from dragoman.model_config import AttentionKind, HeadIndex
from dragoman.models.head_ablation import ablate_heads, can_ablate_heads, find_attention
from dragoman.models.transducer import Source, Transducer
from dragoman.recipe import DecodingConfig
from dragoman.tasks.attention import attention_weights
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, PAD, START
from dragoman.viewer.alignment import best_alignment_layer
from dragoman.viewer.record import (
    END_PIECE,
    AttentionRecord,
    AttentionWeights,
    BeamNode,
    BeamTree,
    DecodingStep,
    TokenChoice,
)

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel

_TOP_TOKENS = 5  # pieces that are named at each step
_MAX_ABLATED_MODELS = 8  # in the cache
_ROWS_PER_BATCH = 64  # hypotheses whose attention is computed at a time


@dataclass(frozen=True)
class _InspectedTarget:
    """The inspected output: its tokens, the length of the given prefix, and the trace of the search."""

    tokens: tuple[int, ...]
    prefix_length: int = 0
    nodes: tuple[SearchNode, ...] = ()


@dataclass(frozen=True, eq=False)
class InspectedSource:
    """What the model reads: a text, or a recording as frames."""

    text: str  # as the viewer shows it
    item: SourceItem  # as the engine reads it
    batch: Source  # the same, as one row
    seconds: float = 0.0  # of a recording


@dataclass(frozen=True)
class InspectionRequest:
    """What to inspect; `SequenceModel.inspect` explains the options."""

    text: Any  # or a recording
    target: str | None = None
    prefix: str = ""
    ablate_heads: tuple[HeadIndex, ...] = ()
    beam: int | None = None
    trace: bool = False
    on_step: Callable[[], None] | None = None


def inspect_model(sequence_model: "SequenceModel", request: InspectionRequest) -> AttentionRecord:
    """Record every attention weight while the model reads a text and writes its output."""
    if request.target is not None and request.prefix:
        raise UserError("target and prefix cannot both be given.")
    heads = _validate_heads(request.ablate_heads, sequence_model.model)
    model = sequence_model.ablated_model(heads)
    inspect = _inspect_continuation if sequence_model.task.is_language_model else _inspect_output
    return replace(
        inspect(sequence_model, model, request),
        ablated_heads=heads,
        can_ablate=can_ablate_heads(model),
        rerun=partial(_inspect_again, sequence_model, replace(request, ablate_heads=heads, on_step=None)),
    )


def _inspect_again(sequence_model: "SequenceModel", request: InspectionRequest, **changes: Any) -> AttentionRecord:
    """Inspect with some options changed; target and prefix are dropped if the change affects the output."""
    reset = {"target": None, "prefix": ""} if {"text", "prefix", "ablate_heads"} & changes.keys() else {}
    return inspect_model(sequence_model, replace(request, **{**reset, **changes}))


def _inspect_output(sequence_model: "SequenceModel", model: Transducer, request: InspectionRequest) -> AttentionRecord:
    """Record the weights of a source and its output, and the search if it is traced."""
    text = sequence_model.task.to_model_input(request.text)
    target = None if request.target is None else sequence_model.task.to_model_target(text, request.target)
    source = sequence_model.inspected_source(text, target or request.prefix)
    config = sequence_model.decoding_config(request.beam)
    if target is None:
        prefix = sequence_model.prefix_tokens(request.prefix)
        output = _search_target(sequence_model, model, source, config, prefix, request)
    else:
        output = _InspectedTarget(tuple(sequence_model.target_tokenizer.encode(target)))
    record = record_attention(sequence_model, model, source, output.tokens)
    beam = None
    if output.nodes:
        beam = _beam_tree(sequence_model, model, source.batch, output, config, record.cross, request.on_step)
    return replace(record, forced_length=output.prefix_length, beam=beam)


def _inspect_continuation(
    sequence_model: "SequenceModel", model: Transducer, request: InspectionRequest
) -> AttentionRecord:
    """Record the weights while a language model predicts a text."""
    if not request.text:
        raise UserError("The text to inspect is empty.")
    tokens, longest = (
        sequence_model.target_tokenizer.encode(request.text),
        sequence_model.max_length - 1,
    )  # one is START
    if len(tokens) > longest:
        raise UserError(f"The text has {len(tokens)} tokens; at most {longest} fit into the context window.")
    source = InspectedSource("", [], Source.from_ids(sequence_model.batch_of_one([])))
    return replace(record_attention(sequence_model, model, source, tuple(tokens)), forced_length=len(tokens))


def inspected_text(sequence_model: "SequenceModel", text: str, other: str) -> InspectedSource:
    """Return a text as a source; raise an error if it is empty, or it or `other` is too long."""
    if not text.strip():
        raise UserError("The text to inspect is empty.")
    source = sequence_model.source_tokens(text)
    longest = sequence_model.recipe.data.longest
    pieces = max(len(source) - 1, len(sequence_model.target_tokenizer.encode(other)))
    if pieces > longest:
        raise UserError(f"The text has {pieces} tokens; the model reads at most {longest}.")
    return InspectedSource(text, source, Source.from_ids(sequence_model.batch_of_one(source)))


def _search_target(
    sequence_model: "SequenceModel",
    model: Transducer,
    source: InspectedSource,
    config: DecodingConfig,
    prefix: Sequence[int],
    request: InspectionRequest,
) -> _InspectedTarget:
    """Search for an output, and record the search if it is traced."""
    search_trace = SearchTrace()

    def on_step(beam: Beam) -> None:
        if request.on_step:
            request.on_step()
        if request.trace:
            search_trace.record_step(beam)

    notify = on_step if request.trace or request.on_step else None
    best = sequence_model.build_engine(config, model).search([source.item], prefix=prefix, on_step=notify)[0][0]
    return _InspectedTarget(best.tokens, len(prefix), tuple(search_trace.nodes(best.tokens, config.length_penalty)))


def record_attention(
    sequence_model: "SequenceModel", model: Transducer, source: InspectedSource, target: tuple[int, ...]
) -> AttentionRecord:
    """Record the weights of a source and a target, and the probability of each target token."""
    prefix = sequence_model.batch_of_one([START, *target])
    weights = {kind: array[0] for kind, array in attention_weights(model, source.batch, prefix).items()}
    with torch.inference_mode():
        logits = model.decode(prefix, model.encode(source.batch))[0]
    steps = _decoding_steps(logits, (*target, END), sequence_model.target_tokenizer)
    return sequence_model.inspection_record(source, target, weights, steps)


def _decoding_steps(logits: Tensor, target: Sequence[int], tokenizer: Tokenizer) -> tuple[DecodingStep, ...]:
    """Return the log-probability of each token and the likeliest tokens of each step, from logits (T V)."""
    log_probabilities = logits.float().log_softmax(-1)
    top_values, top_tokens = log_probabilities.topk(min(_TOP_TOKENS, logits.shape[-1]))
    rows = zip(log_probabilities.tolist(), target, top_tokens.tolist(), top_values.tolist(), strict=True)
    return tuple(
        DecodingStep(
            row[token],
            tuple(TokenChoice(_token_text(tokenizer, top), value) for top, value in zip(tops, values, strict=True)),
        )
        for row, token, tops, values in rows
    )


def _beam_tree(
    sequence_model: "SequenceModel",
    model: Transducer,
    source: Source,
    output: _InspectedTarget,
    config: DecodingConfig,
    cross: AttentionWeights,
    on_step: Callable[[], None] | None,
) -> BeamTree:
    """Return the hypotheses of the search as text, each with the attention of its step."""
    tokenizer = sequence_model.target_tokenizer
    layer = best_alignment_layer(cross) if len(cross) else 0
    attention = np.zeros((len(output.nodes), int(source.positions[0])), np.float32)
    if len(cross):
        attention = _node_attention(sequence_model, model, source, output.nodes, layer, on_step or (lambda: None))
    nodes = tuple(
        BeamNode(
            parent=node.parent,
            token=node.token,
            piece=_token_text(tokenizer, node.token),
            text=tokenizer.decode(node.path),
            step=node.step,
            log_probability=node.log_probability,
            sum=node.sum,
            score=node.score,
            status=node.status,
        )
        for node in output.nodes
    )
    return BeamTree(nodes, config.beam, config.length_penalty, attention, layer)


def _node_attention(
    sequence_model: "SequenceModel",
    model: Transducer,
    source: Source,
    nodes: Sequence[SearchNode],
    layer: int,
    on_step: Callable[[], None],
) -> AttentionWeights:
    """Return the cross-attention of a layer (nodes S), mean over its heads, at the step that wrote each node."""
    inner = {node.parent for node in nodes}
    leaves = [node.path for index, node in enumerate(nodes) if index not in inner]
    rows: dict[tuple[int, ...], Tensor] = {}
    for first in range(0, len(leaves), _ROWS_PER_BATCH):
        on_step()
        paths = leaves[first : first + _ROWS_PER_BATCH]
        longest = max(map(len, paths))
        prefix = [[START, *path[:-1], *[PAD] * (longest - len(path))] for path in paths]
        with torch.inference_mode():
            weights = model.attention_maps(
                source[torch.zeros(len(paths), dtype=torch.long, device=source.device)],
                torch.tensor(prefix, device=sequence_model.device),
            )
        for path, means in zip(paths, weights.cross[layer].mean(1).float().cpu(), strict=True):
            rows.update({path[: step + 1]: means[step] for step in range(len(path))})
    return np.stack([rows[node.path].numpy() for node in nodes])


def _token_text(tokenizer: Tokenizer, token: int) -> str:
    return END_PIECE if token == END else tokenizer.spell([token])[0]


def attention_sizes(
    model: Transducer, device: torch.device, source: Source | None = None
) -> dict[AttentionKind, tuple[int, int]]:
    """Return how many layers and heads a model has of each kind of attention, of the kinds that it has.

    `source` is any that the model can read; if omitted, the shortest text.
    """
    smallest = torch.tensor([[START, END]], device=device)
    with torch.inference_mode():
        maps = model.eval().attention_maps(source or Source.from_ids(smallest), smallest)
    layers = {kind: getattr(maps, kind) for kind in get_args(AttentionKind)}
    return {kind: (len(weights), weights[0].shape[1]) for kind, weights in layers.items() if weights}


class AblatedModels:
    """A cache of the most recently used models with some heads ablated."""

    def __init__(self) -> None:
        self.models: OrderedDict[frozenset[HeadIndex], Transducer] = OrderedDict()

    def get(self, model: Transducer, heads: tuple[HeadIndex, ...]) -> Transducer:
        """Return `model` with these heads ablated."""
        if not heads or not can_ablate_heads(model):
            return model
        key = frozenset(heads)
        if key not in self.models:
            self.models[key] = ablate_heads(model, heads)
        self.models.move_to_end(key)
        if len(self.models) > _MAX_ABLATED_MODELS:
            self.models.popitem(last=False)
        return self.models[key]


def _validate_heads(heads: Iterable[Sequence[Any]], model: Transducer) -> tuple[HeadIndex, ...]:
    """Return the heads sorted and without duplicates; raise an error if the model does not have them."""
    heads = list(heads)
    if not heads:
        return ()
    if not can_ablate_heads(model):
        raise UserError("Only the heads of a Transformer can be ablated; this model has a different architecture.")
    layers = {"encoder": len(model.encoder), "decoder": len(model.decoder), "cross": len(model.decoder)}
    count = find_attention(model, "encoder", 0).heads
    indices = [tuple(head) for head in heads]
    for index in indices:
        kind, layer, head = index if len(index) == 3 else ("", -1, -1)
        is_number = isinstance(layer, int) and isinstance(head, int)
        if not (kind in layers and is_number and 0 <= layer < layers[kind] and 0 <= head < count):
            raise UserError(
                f"The model has no head {index}: expected (kind, layer, head), where kind is one of "
                f"{', '.join(layers)}, layer is from 0 to {layers.get(kind, max(layers.values())) - 1} and head is "
                f"from 0 to {count - 1}."
            )
    return tuple(sorted(set(indices)))
