"""A Transformer for use: the same parameters, packed, and each of its parts one compiled call.

It is the same model, not another: `encode` and `step` give what those of `Transformer` give, in float32 to rounding, or
with weights of one byte. What is saved is the way from Python to torch and back for a hundred small operations a step.
Each sentence and hypothesis is computed by itself, in the same order whatever its neighbours are, so its numbers are
the same to the last bit in any company.

Shapes: B batch, S source positions, D width, H heads, K width of one head, P source positions in whole vectors,
V vocabulary, W beam.
"""

import math
import threading
from collections.abc import Iterator, Sequence
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
from dragoman.models.transformer import DecoderLayer, EncoderLayer, KeyValue, KVCache, Transformer
from dragoman.native import stack as kernels
from dragoman.native.functions import LANES, CCacheShape, is_supported, raise_if_failed
from dragoman.native.stack import CLayer, CNorm, CSearchOptions, CSearchResults, CStack, LinearWeights, PackedLinear
from dragoman.recipe import DecodingPrecision

_CACHE_BYTES = 4 << 20  # bytes of weights that a core finds in its cache again at the next step
_ROWS_IN_CACHE, _ROWS_BEYOND_CACHE = 32, 128  # hypotheses to work on at once if the weights fit there, and if not
_MAX_PREFIX_BYTES = 1 << 30  # bytes of keys and values of prefixes


def compile_model(model: Any, precision: DecodingPrecision) -> Any:
    """Return the model with its decoder compiled, made anew when a parameter has changed; or the model as it is."""
    if not (isinstance(model, Transformer) and can_compile(model)):
        return model
    kept = model.native_models.get(precision)
    if kept is None or kept.versions is None or kept.versions != kept.current_versions():
        model.native_models[precision] = kept = NativeTransformer(model, precision)
    return kept


def can_compile(model: Transformer) -> bool:
    """Say whether there is a compiler, and this is the paper's model, all in whole vectors of single precision."""
    layer = cast(DecoderLayer, model.decoder[0])
    attentions = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    scaled = all(part.score_function is scaled_dot_product and part.pattern is None for part in attentions)
    layered = all(isinstance(part.norm, nn.LayerNorm) for part in model.modules() if isinstance(part, Residual))
    if not (scaled and layered):
        return False
    sizes = (model.output_weight.shape[1], layer.feed_forward.inner.out_features, layer.attention.key.out_features)
    whole_heads = layer.attention.key.out_features % (layer.attention.heads * LANES) == 0
    alike = layer.attention.key.out_features == layer.attention.value.out_features
    return is_supported(model.output_weight) and whole_heads and alike and all(size % LANES == 0 for size in sizes)


@dataclass(frozen=True)
class SearchResults:
    """The best finished hypotheses of each sentence, the best first; where there are fewer the score is -∞."""

    tokens: Tensor  # B N T, without START and END
    lengths: Tensor  # B N
    scores: Tensor  # B N
    log_probabilities: Tensor  # B N
    truncated: Tensor  # B N

    @classmethod
    def empty(cls, batch: int, n_best: int, room: int) -> "SearchResults":
        """Return places for what is to be found."""
        lengths, scores, sums = (torch.empty(batch, n_best, dtype=kind) for kind in (torch.int64, *[torch.float64] * 2))
        truncated = torch.empty(batch, n_best, dtype=torch.bool)
        return cls(torch.empty(batch, n_best, room, dtype=torch.int32), lengths, scores, sums, truncated)


class NativeTransformer:
    """What searching and drawing need of a `Transducer`."""

    def __init__(self, model: Transformer, precision: DecodingPrecision) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        self.versions = self.current_versions()
        self.is_int8 = precision == "int8"
        self.references: list[object] = []  # what C points to
        self.thread_local = threading.local()  # what each thread used last
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
        self.output_rows = LinearWeights.from_parameters(model.output_weight, None, self.is_int8)
        self.decoder_stack.output = self.keep_packed(self.output_rows)
        self.vocabulary_size = len(model.output_weight)

    def current_versions(self) -> list[tuple[int, int]] | None:
        """Return what changes whenever a parameter does, or nothing if torch does not keep count."""
        versions = [parameter_version(parameter) for parameter in self.parameters]
        return None if None in versions else cast(list[tuple[int, int]], versions)

    def build_stack(self, layers: list[CLayer], embedding: Tensor, last: nn.Module, like: DecoderLayer) -> CStack:
        """Put the layers of one side together."""
        return CStack(
            layers=len(layers),
            norm_first=isinstance(last, nn.LayerNorm),
            gelu=like.feed_forward.activation is nn.functional.gelu,
            embedding=self.keep_tensor(embedding).data_ptr(),
            scale=math.sqrt(embedding.shape[1]),
            epsilon=cast(nn.LayerNorm, like.attention_residual.norm).eps,
            layer=(CLayer * len(layers))(*layers),
            last=kernels.norm_pointers(last) if isinstance(last, nn.LayerNorm) else CNorm(),
        )

    def pack_encoder_layer(self, layer: EncoderLayer) -> CLayer:
        """Pack a layer of the encoder."""
        return CLayer(
            joint=self.pack_linear(*layer.attention.joint_projection()),
            own_output=self.pack_linear(layer.attention.output.weight, layer.attention.output.bias),
            inner=self.pack_linear(layer.feed_forward.inner.weight, layer.feed_forward.inner.bias),
            outer=self.pack_linear(layer.feed_forward.outer.weight, layer.feed_forward.outer.bias),
            around_own=kernels.norm_pointers(layer.attention_residual.norm),
            around_feed_forward=kernels.norm_pointers(layer.feed_forward_residual.norm),
        )

    def pack_decoder_layer(self, layer: DecoderLayer) -> CLayer:
        """Pack a layer of the decoder: that of an encoder, and what looks at the source."""
        cross = layer.cross_attention
        packed = self.pack_encoder_layer(cast(EncoderLayer, layer))
        packed.query = self.pack_linear(cross.query.weight, cross.query.bias)
        packed.memory = self.pack_linear(
            torch.cat([cross.key.weight, cross.value.weight]), torch.cat([cross.key.bias, cross.value.bias])
        )
        packed.cross_output = self.pack_linear(cross.output.weight, cross.output.bias)
        packed.around_cross = kernels.norm_pointers(layer.cross_attention_residual.norm)
        return packed

    def pack_linear(self, weight: Tensor, bias: Tensor | None) -> kernels.CLinear:
        """Pack a linear layer, and keep it."""
        return self.keep_packed(LinearWeights.from_parameters(weight, bias, self.is_int8))

    def keep_packed(self, rows: LinearWeights) -> kernels.CLinear:
        """Keep a packed layer as long as this object."""
        self.references.append(packed := PackedLinear(rows))
        return packed.linear

    def keep_tensor(self, tensor: Tensor) -> Tensor:
        """Keep a tensor as long as this object."""
        self.references.append(tensor)
        return tensor.detach()

    def encode(self, source: Source) -> Memory:
        """Read `source` (B S, padded with PAD)."""
        pieces = len(self.model.source_embedding.weight)
        ids = source.values
        assert int(ids.max()) < pieces, f"token {int(ids.max())} is beyond the vocabulary of {pieces} pieces"
        states = torch.empty(*ids.shape, self.model.output_weight.shape[1])
        position = self.model.source_positions(0, ids.shape[1])
        stack = self.copy_stack(self.encoder_stack, source.mask)
        with self.use_rotary_table(stack, ids.shape[1]):
            _call("encode", stack, ids, position, source.mask, states)
        return Memory(states, source.mask, word_starts=self.model.next_word.word_starts(source))

    def initial_state(self, memory: Memory) -> KVCache:
        """Return the state before the first token; the keys of its memory are B H K P, the values B S H K."""
        batch, sources = memory.mask.shape
        columns = -(-sources // LANES) * LANES
        keys, values = (batch, self.heads, self.width, columns), (batch, sources, self.heads, self.width)
        projected = [(torch.empty(keys), torch.empty(values)) for _ in self.model.decoder]
        stack = self.copy_stack(self.decoder_stack, memory.mask, projected)
        _call("keep_memory", stack, memory.states)
        return KVCache.empty(projected, self.heads, (self.width, self.width), memory.states)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, KVCache]:
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, KVCache), f"this is the state of another model: {type(state)}"
        guide, width = self.model.next_word, self.model.output_weight.shape[1]
        counts = state.word_counts + guide.count_words(token)
        places = self.model.target_positions(state.length, 1) + guide.next_word_vectors(memory, counts)  # 1 D, or B W D
        position = places.expand(*token.shape, width).contiguous()
        state = replace(state.extend(), word_counts=counts)
        (batch, beam, length), (_, places, room) = state.ancestors.shape, state.self_attention[0][0].shape[:3]
        stack = self.stack_for_state(state, memory.mask)
        stack.caches = CCacheShape((batch, beam, places, length, room, self.heads, self.width))
        logits = torch.empty(batch, beam, self.vocabulary_size)
        with self.use_rotary_table(stack, length):
            _call("decode_step", stack, token, position, state.ancestors, memory.mask, logits)
        return logits, state

    def max_active_sentences(self, max_lengths: Tensor, beam: int) -> int:
        """Return how many of these sentences to work on at once; none if even one would need too much memory.

        None either with a guide, which the compiled search does not follow: it is asked at each step.
        Rows share the reading of the weights, but what they read themselves should stay in the cache.
        """
        if isinstance(self.model.next_word, NextWordFeature):
            return 0
        prefix = 2 * len(self.model.decoder) * self.heads * self.width * int(max_lengths.max()) * 4
        in_cache = (
            sum(part.weights.nbytes for part in self.references if isinstance(part, PackedLinear)) <= _CACHE_BYTES
        )
        rows = _ROWS_IN_CACHE if in_cache else _ROWS_BEYOND_CACHE
        return min(len(max_lengths), max(1, rows // beam), _MAX_PREFIX_BYTES // ((beam + 1) * prefix))

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
    ) -> SearchResults:
        """Search for the `n_best` best outputs of each sentence, which `decoding.search` explains.

        `longest` (B) is how many tokens each may produce, `penalties` the length penalty of 0, 1, 2 … tokens;
        `allowed` (B V) says which pieces may be said in each sentence, the reserved ones among them.
        """
        room, mask = int(max_lengths.max()), memory.mask
        shape = (active_sentences, beam + 1, room, self.heads, self.width)
        own = [(torch.empty(shape), torch.empty(shape)) for _ in self.model.decoder]
        projected = self.initial_state(memory).cross_attention
        stack = self.point_to_caches(self.copy_stack(self.decoder_stack, mask, projected), own)
        stack.caches = CCacheShape((active_sentences, beam, beam + 1, 0, room, self.heads, self.width))
        found = SearchResults.empty(len(max_lengths), n_best, room)
        lists: tuple[Tensor, ...] = ()
        if allowed is not None:
            ids = allowed.any(dim=0).nonzero().squeeze(1)
            lists = (ids, *_allowed_lists(allowed[:, ids]))
            output = PackedLinear(self.output_rows.select_outputs(ids))
            stack.output = output.linear
        given = (max_lengths, penalties, self.model.target_positions(0, room), mask, *lists)
        plan = CSearchOptions(
            len(max_lengths), active_sentences, beam, n_best, *(tensor.data_ptr() for tensor in given)
        )
        places = CSearchResults(*(tensor.data_ptr() for tensor in vars(found).values()))
        with self.use_rotary_table(stack, room):
            raise_if_failed(kernels.stack_library().search_beams(byref(stack), byref(plan), byref(places)))
        return found

    @contextmanager
    def use_rotary_table(self, stack: CStack, length: int) -> Iterator[None]:
        """Let a stack turn so many places inside this block, if the model is rotary; the table may grow elsewhere."""
        waves = None if self.rotary is None else self.rotary(0, length)
        stack.waves = None if waves is None else waves.data_ptr()
        yield

    def stack_for_state(self, state: KVCache, mask: Tensor) -> CStack:
        """Return the decoder with its layers pointed to a state's caches: mostly the one of the step before."""
        last = getattr(self.thread_local, "last", None)
        if last is None or last[0] is not state.self_attention or last[1] is not state.cross_attention:
            stack = self.point_to_caches(
                self.copy_stack(self.decoder_stack, mask, state.cross_attention), state.self_attention
            )
            self.thread_local.last = last = (state.self_attention, state.cross_attention, stack)
        return cast(CStack, last[2])

    def copy_stack(self, stack: CStack, mask: Tensor, memory: Sequence[KeyValue] = ()) -> CStack:
        """Return a copy of a stack for sources of this size: threads share the weights, but not what they work on."""
        mine = CStack.from_buffer_copy(stack)
        mine.caches = CCacheShape((len(mask), 0, 0, 0, 0, self.heads, self.width))
        mine.sources = mask.shape[1]
        if memory:
            mine.layer = layers = (CLayer * stack.layers)(*stack.layer[: stack.layers])
            for layer, (keys, values) in zip(layers, memory, strict=True):
                layer.memory_keys, layer.memory_values = keys.data_ptr(), values.data_ptr()
        return mine

    def point_to_caches(self, stack: CStack, own: Sequence[KeyValue]) -> CStack:
        """Point the layers of a copy of a stack to the caches of the prefixes."""
        for layer, (keys, values) in zip(stack.layer[: stack.layers], own, strict=True):
            layer.keys, layer.values = keys.data_ptr(), values.data_ptr()
        return stack


def _allowed_lists(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each sentence's list of places in `allowed` (B V) begins (B + 1), and all lists together."""
    starts = torch.zeros(len(allowed) + 1, dtype=torch.int64)
    starts[1:] = allowed.sum(dim=1).cumsum(dim=0)
    return starts, allowed.nonzero()[:, 1].int()


def _call(name: str, stack: CStack, *tensors: Tensor) -> None:
    """Call a function of stack.c."""
    whole = [tensor.contiguous() for tensor in tensors]
    raise_if_failed(getattr(kernels.stack_library(), name)(byref(stack), *(tensor.data_ptr() for tensor in whole)))
