"""A Transformer compiled for decoding: the same parameters, packed, and one C call per encoder pass or decoder step.

`NativeTransformer` computes what `Transformer` computes, in float32 up to rounding, or with int8 weights. It saves the
overhead of some hundred small PyTorch operations per step. Every sentence and hypothesis is computed by itself and in
the same order of operations, so its results do not depend on the rest of the batch.

Shapes: B batch, S source positions, D width, H heads, K width of one head, P source positions in whole vectors,
V vocabulary, W beam.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from dragoman.models.attention import MultiHeadAttention, parameter_version, scaled_dot_product
from dragoman.models.layers import Residual
from dragoman.models.next_word import NextWordFeature
from dragoman.models.transducer import Memory, Source, State
from dragoman.models.transformer import (
    DecoderLayer,
    DecoderState,
    EncoderLayer,
    KeyValue,
    KVCache,
    LayerCache,
    Transformer,
)
from dragoman.native import stack as kernels
from dragoman.native.functions import LANES, CCacheShape, is_supported, raise_if_failed
from dragoman.native.stack import CLayer, CNorm, CSearchOptions, CSearchResults, CStack, LinearWeights, PackedLinear
from dragoman.recipe import DecodingPrecision

_CACHE_BYTES = 4 << 20  # weights that stay in a core's cache from step to step
_ROWS_IN_CACHE, _ROWS_BEYOND_CACHE = 32, 128  # rows computed together if the weights fit into the cache, or not
_MAX_PREFIX_BYTES = 1 << 30  # of the key and value caches
_ROWS_BETWEEN_PAUSES = 32  # that a search decodes: about a millisecond of a small model
_ALL_ROWS = (1 << 63) - 1
_ENCODED_TOKENS = 256  # between two pauses


def compile_model(model: Any, precision: DecodingPrecision) -> Any:
    """Return the native version of a model, or the model itself if it has none; reuse it until a parameter changes."""
    if not (isinstance(model, Transformer) and _can_compile(model)):
        return model
    native = model.native_models.get(precision)
    if native is None or native.versions is None or native.versions != native.current_versions():
        model.native_models[precision] = native = NativeTransformer(model, precision)
    return native


def _can_compile(model: Transformer) -> bool:
    """Return whether there is a compiler and the model is the paper's, in float32 and in widths of whole vectors."""
    layer = cast(DecoderLayer, model.decoder[0])
    attentions = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    is_plain = all(part.score_function is scaled_dot_product and part.pattern is None for part in attentions)
    has_layer_norm = all(isinstance(part.norm, nn.LayerNorm) for part in model.modules() if isinstance(part, Residual))
    if not (is_plain and has_layer_norm):
        return False
    keys, values = layer.attention.key.out_features, layer.attention.value.out_features
    sizes = (model.output_weight.shape[1], layer.feed_forward.inner.out_features, keys)
    has_whole_heads = keys % (layer.attention.heads * LANES) == 0 and keys == values
    return is_supported(model.output_weight) and has_whole_heads and all(size % LANES == 0 for size in sizes)


@dataclass(frozen=True)
class SearchResults:
    """The best finished hypotheses of each sentence, sorted by score; a missing one has the score -∞."""

    tokens: Tensor  # B N T, without START and END
    lengths: Tensor  # B N
    scores: Tensor  # B N
    log_probabilities: Tensor  # B N
    truncated: Tensor  # B N

    @classmethod
    def empty(cls, batch: int, n_best: int, room: int) -> "SearchResults":
        """Return uninitialised tensors for the results."""
        lengths, scores, sums = (torch.empty(batch, n_best, dtype=kind) for kind in (torch.int64, *[torch.float64] * 2))
        truncated = torch.empty(batch, n_best, dtype=torch.bool)
        return cls(torch.empty(batch, n_best, room, dtype=torch.int32), lengths, scores, sums, truncated)


class NativeTransformer:
    """An `IncrementalDecoder` with the parameters of a Transformer."""

    def __init__(self, model: Transformer, precision: DecodingPrecision) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        self.versions = self.current_versions()
        self.is_int8 = precision == "int8"
        self.references: list[object] = []  # objects whose memory C points to
        self.thread_local = threading.local()  # the stack that each thread used last
        decoder = [cast(DecoderLayer, layer) for layer in model.decoder]
        self.heads = decoder[0].attention.heads
        self.width = decoder[0].attention.key.out_features // self.heads
        self.rotary = decoder[0].attention.rotary
        self.encoder_stack = self.build_stack(
            [self.pack_encoder_layer(cast(EncoderLayer, layer)) for layer in model.encoder],
            model.source_embedding.weight, model.encoder_norm, decoder[0],
        )  # fmt: skip
        self.decoder_stack = self.build_stack(
            [self.pack_decoder_layer(layer) for layer in decoder],
            model.target_embedding.weight, model.decoder_norm, decoder[0],
        )  # fmt: skip
        self.output_rows = LinearWeights.from_parameters(model.output_weight, model.output_bias, self.is_int8)
        self.decoder_stack.output = self.keep_packed(self.output_rows)
        self.vocabulary_size = len(model.output_weight)

    def current_versions(self) -> list[tuple[int, int]] | None:
        """Return values that change with the parameters; None if PyTorch does not count versions."""
        versions = [parameter_version(parameter) for parameter in self.parameters]
        return None if None in versions else cast(list[tuple[int, int]], versions)

    def build_stack(self, layers: list[CLayer], embedding: Tensor, last: nn.Module, like: DecoderLayer) -> CStack:
        """Return the C struct of the encoder or decoder."""
        return CStack(
            layers=len(layers),
            norm_first=isinstance(last, nn.LayerNorm),
            gelu=like.feed_forward.activation is nn.functional.gelu,
            embedding=self.keep_tensor(embedding).data_ptr(),
            scale=math.sqrt(embedding.shape[1]),
            epsilon=cast(nn.LayerNorm, like.attention_residual.norm).eps,
            layer=(CLayer * len(layers))(*layers),
            final_norm=kernels.norm_pointers(last) if isinstance(last, nn.LayerNorm) else CNorm(),
        )

    def pack_encoder_layer(self, layer: EncoderLayer) -> CLayer:
        """Return the C struct of an encoder layer."""
        return CLayer(
            joint=self.pack_linear(*layer.attention.joint_projection()),
            self_output=self.pack_linear(layer.attention.output.weight, layer.attention.output.bias),
            inner=self.pack_linear(layer.feed_forward.inner.weight, layer.feed_forward.inner.bias),
            outer=self.pack_linear(layer.feed_forward.outer.weight, layer.feed_forward.outer.bias),
            self_norm=kernels.norm_pointers(layer.attention_residual.norm),
            feed_forward_norm=kernels.norm_pointers(layer.feed_forward_residual.norm),
        )

    def pack_decoder_layer(self, layer: DecoderLayer) -> CLayer:
        """Return the C struct of a decoder layer: that of an encoder layer, and cross-attention."""
        cross = layer.cross_attention
        packed = self.pack_encoder_layer(cast(EncoderLayer, layer))
        packed.query = self.pack_linear(cross.query.weight, cross.query.bias)
        packed.memory = self.pack_linear(
            torch.cat([cross.key.weight, cross.value.weight]), torch.cat([cross.key.bias, cross.value.bias])
        )
        packed.cross_output = self.pack_linear(cross.output.weight, cross.output.bias)
        packed.cross_norm = kernels.norm_pointers(layer.cross_attention_residual.norm)
        return packed

    def pack_linear(self, weight: Tensor, bias: Tensor | None) -> kernels.CLinear:
        """Pack a linear layer and keep it alive."""
        return self.keep_packed(LinearWeights.from_parameters(weight, bias, self.is_int8))

    def keep_packed(self, rows: LinearWeights) -> kernels.CLinear:
        """Pack weights and keep them alive as long as this object."""
        self.references.append(packed := PackedLinear(rows))
        return packed.linear

    def keep_tensor(self, tensor: Tensor) -> Tensor:
        """Keep a tensor alive as long as this object."""
        self.references.append(tensor)
        return tensor.detach()

    def encode(self, source: Source, pause: Callable[[], None] | None = None) -> Memory:
        """Encode a batch of token ids; `pause` is called between parts of a large batch.

        What has a front end is encoded by PyTorch.
        """
        if self.model.front_end is not None:
            return self.model.encode(source)
        size, ids = len(self.model.source_embedding.weight), source.values
        assert int(ids.max()) < size, f"token id {int(ids.max())} is out of range for a vocabulary of {size}"
        states = torch.empty(*ids.shape, self.model.output_weight.shape[1])
        position = self.model.source_positions(0, ids.shape[1])
        for rows, first, end in self._encoding_steps(ids) if pause else [(slice(None), 0, len(self.model.encoder))]:
            stack = self.copy_stack(self.encoder_stack, source.mask[rows])
            with self.use_rotary_table(stack, ids.shape[1]):
                _call("encode", stack, first, end, ids[rows], position, source.mask[rows], states[rows])
            if pause:
                pause()
        return Memory(states, source.mask, word_starts=self.model.next_word.word_starts(source))

    def _encoding_steps(self, ids: Tensor) -> Iterator[tuple[slice, int, int]]:
        """Yield some sentences of a batch (B S) and the layers to apply to them: all at once, or one if it is long."""
        batch, length = ids.shape
        layers, together = len(self.model.encoder), max(1, _ENCODED_TOKENS // length)
        layer_steps = [(layer, layer + 1) for layer in range(layers)] if length > _ENCODED_TOKENS else [(0, layers)]
        for first_row in range(0, batch, together):
            yield from ((slice(first_row, first_row + together), first, end) for first, end in layer_steps)

    def initial_state(self, memory: Memory) -> DecoderState:
        """Return the state before the first token; the memory's keys are stored as B H K P, its values as B S H K."""
        projected = self._project_memory(memory)
        widths = (self.width, self.width)
        layers: list[LayerCache] = [
            KVCache.empty(key_value, self.heads, widths, memory.states) for key_value in projected
        ]
        return DecoderState.empty(layers, memory.states)

    def _project_memory(self, memory: Memory) -> list[KeyValue]:
        batch, sources = memory.mask.shape
        columns = -(-sources // LANES) * LANES
        keys, values = (batch, self.heads, self.width, columns), (batch, sources, self.heads, self.width)
        projected = [(torch.empty(keys), torch.empty(values)) for _ in self.model.decoder]
        _call("project_memory", self.copy_stack(self.decoder_stack, memory.mask, projected), memory.states)
        return projected

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, DecoderState]:
        """Feed one more token to each of W hypotheses (B W); return the logits of the next token (B W V)."""
        assert isinstance(state, DecoderState), f"expected DecoderState, got {type(state).__name__}"
        feature, width = self.model.next_word, self.model.output_weight.shape[1]
        counts = state.word_counts + feature.count_words(token)
        vectors = self.model.target_positions(state.length, 1) + feature.next_word_vectors(memory, counts)
        position = vectors.expand(*token.shape, width).contiguous()  # B W D
        state = replace(state.extend(), word_counts=counts)
        (batch, beam, length), caches = state.ancestors.shape, cast(list[KVCache], state.layers)
        rows, capacity = caches[0].keys.shape[1:3]
        stack = self.stack_for_state(state, memory.mask)
        stack.caches = CCacheShape((batch, beam, rows, length, capacity, self.heads, self.width))
        logits = torch.empty(batch, beam, self.vocabulary_size)
        with self.use_rotary_table(stack, length):
            _call("decode_step", stack, token, position, state.ancestors, memory.mask, logits)
        return logits, state

    def max_active_sentences(self, max_lengths: Tensor, beam: int) -> int:
        """Return how many sentences to search at the same time; 0 if the model cannot be searched natively.

        That is the case if one sentence would need too much memory, or if the decoder's input has the next word, which
        search.c does not know. More sentences share the loading of the weights, but their activations should stay in
        the cache.
        """
        if isinstance(self.model.next_word, NextWordFeature):
            return 0
        prefix_bytes = 2 * len(self.model.decoder) * self.heads * self.width * int(max_lengths.max()) * 4
        weights = sum(part.weights.nbytes for part in self.references if isinstance(part, PackedLinear))
        rows = _ROWS_IN_CACHE if weights <= _CACHE_BYTES else _ROWS_BEYOND_CACHE
        return min(len(max_lengths), max(1, rows // beam), _MAX_PREFIX_BYTES // ((beam + 1) * prefix_bytes))

    def search(
        self,
        memory: Memory,
        max_lengths: Tensor,
        penalties: Tensor,
        *,
        beam: int,
        n_best: int,
        active_sentences: int,
        allowed: Tensor | None = None,
        pause: Callable[[], None] | None = None,
    ) -> SearchResults:
        """Return the `n_best` best outputs of each sentence; decoding/search.py describes the algorithm.

        `max_lengths` (B) limits the tokens of each output, `penalties` are the length penalties of 0, 1, 2 … tokens;
        `allowed` (B V) restricts the tokens of each sentence, and includes the reserved ones. `pause` is called every
        few steps; what it raises ends the search.
        """
        capacity, mask = int(max_lengths.max()), memory.mask
        shape = (active_sentences, beam + 1, capacity, self.heads, self.width)
        caches = [(torch.empty(shape), torch.empty(shape)) for _ in self.model.decoder]
        projected = self._project_memory(memory)
        stack = self.point_to_caches(self.copy_stack(self.decoder_stack, mask, projected), caches)
        stack.caches = CCacheShape((active_sentences, beam, beam + 1, 0, capacity, self.heads, self.width))
        results = SearchResults.empty(len(max_lengths), n_best, capacity)
        lists: tuple[Tensor, ...] = ()
        if allowed is not None:
            ids = allowed.any(dim=0).nonzero().squeeze(1)
            lists = (ids, *_allowed_lists(allowed[:, ids]))
            output = PackedLinear(self.output_rows.select_outputs(ids))
            stack.output = output.linear
        inputs = (max_lengths, penalties, self.model.target_positions(0, capacity), mask, *lists)
        options = CSearchOptions(
            len(max_lengths), active_sentences, beam, n_best, *(tensor.data_ptr() for tensor in inputs)
        )
        pointers = CSearchResults(*(tensor.data_ptr() for tensor in vars(results).values()))
        with self.use_rotary_table(stack, capacity):
            _run_search(stack, options, pointers, pause)
        return results

    @contextmanager
    def use_rotary_table(self, stack: CStack, length: int) -> Iterator[None]:
        """Point a stack to the rotary table of so many positions and keep the table alive in this block."""
        table = None if self.rotary is None else self.rotary(0, length)
        stack.rotary = None if table is None else table.data_ptr()
        yield

    def stack_for_state(self, state: DecoderState, mask: Tensor) -> CStack:
        """Return the decoder stack that points to a state's caches; usually that of the previous step."""
        last = getattr(self.thread_local, "last", None)
        if last is None or last[0] is not state.layers:
            caches = cast(list[KVCache], state.layers)
            stack = self.copy_stack(self.decoder_stack, mask, [cache.memory for cache in caches])
            stack = self.point_to_caches(stack, [(cache.keys, cache.values) for cache in caches])
            self.thread_local.last = last = (state.layers, stack)
        return cast(CStack, last[1])

    def copy_stack(self, stack: CStack, mask: Tensor, memory: Sequence[KeyValue] = ()) -> CStack:
        """Return a copy of a stack for sources of this size: threads share the weights but not the caches."""
        copied = CStack.from_buffer_copy(stack)
        copied.caches = CCacheShape((len(mask), 0, 0, 0, 0, self.heads, self.width))
        copied.sources = mask.shape[1]
        if memory:
            copied.layer = layers = (CLayer * stack.layers)(*stack.layer[: stack.layers])
            for layer, (keys, values) in zip(layers, memory, strict=True):
                layer.memory_keys, layer.memory_values = keys.data_ptr(), values.data_ptr()
        return copied

    def point_to_caches(self, stack: CStack, caches: Sequence[KeyValue]) -> CStack:
        """Point the layers of a copied stack to the key and value caches."""
        for layer, (keys, values) in zip(stack.layer[: stack.layers], caches, strict=True):
            layer.keys, layer.values = keys.data_ptr(), values.data_ptr()
        return stack


def _allowed_lists(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Return the start of each sentence's list in `allowed` (B V), as B + 1 offsets, and the concatenated lists."""
    starts = torch.zeros(len(allowed) + 1, dtype=torch.int64)
    starts[1:] = allowed.sum(dim=1).cumsum(dim=0)
    return starts, allowed.nonzero()[:, 1].int()


def _run_search(
    stack: CStack, options: CSearchOptions, results: CSearchResults, pause: Callable[[], None] | None
) -> None:
    library = kernels.stack_library()
    search = library.start_search(byref(stack), byref(options), byref(results))
    raise_if_failed(search is None)
    rows = _ROWS_BETWEEN_PAUSES if pause else _ALL_ROWS
    try:
        while (unfinished := library.continue_search(search, rows)) > 0:
            if pause:
                pause()
        raise_if_failed(unfinished < 0)
    finally:
        library.end_search(search)


def _call(name: str, stack: CStack, *arguments: Tensor | int) -> None:
    """Call a function of stack.c with tensors and numbers."""
    contiguous = [part.contiguous() if isinstance(part, Tensor) else part for part in arguments]
    values = [part.data_ptr() if isinstance(part, Tensor) else part for part in contiguous]
    raise_if_failed(getattr(kernels.stack_library(), name)(byref(stack), *values))
