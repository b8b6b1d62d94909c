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

from dragoman.kernels import stack as kernels
from dragoman.kernels.functions import LANES, Caches, available, refuse
from dragoman.kernels.stack import Finished, Layer, Norm, Packed, Plan, Rows, Stack
from dragoman.model.attention import MultiHeadAttention, scaled_dot, version
from dragoman.model.guide import WordGuide
from dragoman.model.layers import Residual
from dragoman.model.transducer import Memory, State
from dragoman.model.transformer import DecoderLayer, EncoderLayer, KeyValue, Prefixes, Transformer
from dragoman.recipe import Precision
from dragoman.tokens import PAD

CACHE = 4 << 20  # bytes of weights that a core finds in its cache again at the next step
FEW_ROWS, MANY_ROWS = 32, 128  # hypotheses to work on at once if the weights fit there, and if not
MOST_ROOM = 1 << 30  # bytes of keys and values of prefixes


def compiled(model: Any, precision: Precision) -> Any:
    """Return the model with its decoder compiled, made anew when a parameter has changed; or the model as it is."""
    if not (isinstance(model, Transformer) and fits(model)):
        return model
    kept = model.packed.get(precision)
    if kept is None or kept.versions is None or kept.versions != kept.present_versions():
        model.packed[precision] = kept = CompiledTransformer(model, precision)
    return kept


def fits(model: Transformer) -> bool:
    """Say whether there is a compiler, and this is the paper's model, all in whole vectors of single precision."""
    layer = cast(DecoderLayer, model.decoder[0])
    attentions = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    scaled = all(part.compare is scaled_dot and part.pattern is None for part in attentions)
    layered = all(isinstance(part.norm, nn.LayerNorm) for part in model.modules() if isinstance(part, Residual))
    if not (scaled and layered):
        return False
    sizes = (model.output.shape[1], layer.feed_forward.inner.out_features, layer.attention.key.out_features)
    whole_heads = layer.attention.key.out_features % (layer.attention.heads * LANES) == 0
    alike = layer.attention.key.out_features == layer.attention.value.out_features
    return available(model.output) and whole_heads and alike and all(size % LANES == 0 for size in sizes)


@dataclass(frozen=True)
class Found:
    """The best finished hypotheses of each sentence, the best first; where there are fewer the score is -∞."""

    tokens: Tensor  # B N T, without START and END
    lengths: Tensor  # B N
    scores: Tensor  # B N
    log_probabilities: Tensor  # B N
    truncated: Tensor  # B N

    @classmethod
    def empty(cls, batch: int, n_best: int, room: int) -> "Found":
        """Return places for what is to be found."""
        lengths, scores, sums = (torch.empty(batch, n_best, dtype=kind) for kind in (torch.int64, *[torch.float64] * 2))
        truncated = torch.empty(batch, n_best, dtype=torch.bool)
        return cls(torch.empty(batch, n_best, room, dtype=torch.int32), lengths, scores, sums, truncated)


class CompiledTransformer:
    """What searching and drawing need of a `Transducer`."""

    def __init__(self, model: Transformer, precision: Precision) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        self.versions = self.present_versions()
        self.in_bytes = precision == "int8"
        self.alive: list[object] = []  # what C points to
        self.thread = threading.local()  # what each thread used last
        decoder = [cast(DecoderLayer, layer) for layer in model.decoder]
        self.heads = decoder[0].attention.heads
        self.width = decoder[0].attention.key.out_features // self.heads
        self.waves = decoder[0].attention.waves
        self.encoder_stack = self.stack(
            [self.encoder_layer(cast(EncoderLayer, layer)) for layer in model.encoder],
            model.source_embedding.weight, model.encoder_norm, decoder[0],
        )  # fmt: skip
        self.decoder_stack = self.stack(
            [self.decoder_layer(layer) for layer in decoder],
            model.target_embedding.weight, model.decoder_norm, decoder[0],
        )  # fmt: skip
        self.output = Rows.of(model.output, None, self.in_bytes)
        self.decoder_stack.output = self.kept_packed(self.output)
        self.vocabulary = len(model.output)

    def present_versions(self) -> list[tuple[int, int]] | None:
        """Return what changes whenever a parameter does, or nothing if torch does not keep count."""
        versions = [version(parameter) for parameter in self.parameters]
        return None if None in versions else cast(list[tuple[int, int]], versions)

    def stack(self, layers: list[Layer], embedding: Tensor, last: nn.Module, like: DecoderLayer) -> Stack:
        """Put the layers of one side together."""
        return Stack(
            layers=len(layers),
            norm_first=isinstance(last, nn.LayerNorm),
            gelu=like.feed_forward.activation is nn.functional.gelu,
            embedding=self.kept(embedding).data_ptr(),
            scale=math.sqrt(embedding.shape[1]),
            epsilon=cast(nn.LayerNorm, like.around_attention.norm).eps,
            layer=(Layer * len(layers))(*layers),
            last=kernels.norm_of(last) if isinstance(last, nn.LayerNorm) else Norm(),
        )

    def encoder_layer(self, layer: EncoderLayer) -> Layer:
        """Pack a layer of the encoder."""
        return Layer(
            joint=self.packed(*layer.attention.joint()),
            own_output=self.packed(layer.attention.output.weight, layer.attention.output.bias),
            inner=self.packed(layer.feed_forward.inner.weight, layer.feed_forward.inner.bias),
            outer=self.packed(layer.feed_forward.outer.weight, layer.feed_forward.outer.bias),
            around_own=kernels.norm_of(layer.around_attention.norm),
            around_feed_forward=kernels.norm_of(layer.around_feed_forward.norm),
        )

    def decoder_layer(self, layer: DecoderLayer) -> Layer:
        """Pack a layer of the decoder: that of an encoder, and what looks at the source."""
        cross = layer.cross_attention
        packed = self.encoder_layer(cast(EncoderLayer, layer))
        packed.query = self.packed(cross.query.weight, cross.query.bias)
        packed.memory = self.packed(
            torch.cat([cross.key.weight, cross.value.weight]), torch.cat([cross.key.bias, cross.value.bias])
        )
        packed.cross_output = self.packed(cross.output.weight, cross.output.bias)
        packed.around_cross = kernels.norm_of(layer.around_cross_attention.norm)
        return packed

    def packed(self, weight: Tensor, bias: Tensor | None) -> kernels.Linear:
        """Pack a linear layer, and keep it."""
        return self.kept_packed(Rows.of(weight, bias, self.in_bytes))

    def kept_packed(self, rows: Rows) -> kernels.Linear:
        """Keep a packed layer as long as this object."""
        self.alive.append(packed := Packed(rows))
        return packed.linear

    def kept(self, tensor: Tensor) -> Tensor:
        """Keep a tensor as long as this object."""
        self.alive.append(tensor)
        return tensor.detach()

    def encode(self, source: Tensor) -> Memory:
        """Read `source` (B S, padded with PAD)."""
        pieces = len(self.model.source_embedding.weight)
        assert int(source.max()) < pieces, f"token {int(source.max())} is beyond the vocabulary of {pieces} pieces"
        mask = source != PAD
        states = torch.empty(*source.shape, self.model.output.shape[1])
        position = self.model.source_positions(0, source.shape[1])
        stack = self.sized(self.encoder_stack, mask)
        with self.turning(stack, source.shape[1]):
            call("encode", stack, source, position, mask, states)
        return Memory(states, mask, firsts=self.model.guide.firsts(source))

    def start(self, memory: Memory) -> Prefixes:
        """Return the state before the first token; the keys of its memory are B H K P, the values B S H K."""
        batch, sources = memory.mask.shape
        columns = -(-sources // LANES) * LANES
        keys, values = (batch, self.heads, self.width, columns), (batch, sources, self.heads, self.width)
        projected = [(torch.empty(keys), torch.empty(values)) for _ in self.model.decoder]
        stack = self.sized(self.decoder_stack, memory.mask, projected)
        call("keep_memory", stack, memory.states)
        return Prefixes.empty(projected, self.heads, (self.width, self.width), memory.states)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, Prefixes]:
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, Prefixes), f"this is the state of another model: {type(state)}"
        guide, width = self.model.guide, self.model.output.shape[1]
        counts = state.counts + guide.counted(token)
        places = self.model.target_positions(state.length, 1) + guide.ahead(memory, counts)  # 1 D, or B W D
        position = places.expand(*token.shape, width).contiguous()
        state = replace(state.longer(), counts=counts)
        (batch, beam, length), (_, places, room) = state.ancestors.shape, state.own[0][0].shape[:3]
        stack = self.pointed(state, memory.mask)
        stack.caches = Caches((batch, beam, places, length, room, self.heads, self.width))
        logits = torch.empty(batch, beam, self.vocabulary)
        with self.turning(stack, length):
            call("decode_step", stack, token, position, state.ancestors, memory.mask, logits)
        return logits, state

    def room(self, longest: Tensor, beam: int) -> int:
        """Return how many of these sentences to work on at once; none if even one would need too much memory.

        None either with a guide, which the compiled search does not follow: it is asked at each step.
        Rows share the reading of the weights, but what they read themselves should stay in the cache.
        """
        if isinstance(self.model.guide, WordGuide):
            return 0
        prefix = 2 * len(self.model.decoder) * self.heads * self.width * int(longest.max()) * 4
        in_cache = sum(part.weights.nbytes for part in self.alive if isinstance(part, Packed)) <= CACHE
        rows = FEW_ROWS if in_cache else MANY_ROWS
        return min(len(longest), max(1, rows // beam), MOST_ROOM // ((beam + 1) * prefix))

    def search(
        self,
        memory: Memory,
        longest: Tensor,
        penalties: Tensor,
        *,
        beam: int,
        n_best: int,
        at_once: int,
        allowed: Tensor | None = None,
    ) -> Found:
        """Search for the `n_best` best outputs of each sentence, which `decoding.search` explains.

        `longest` (B) is how many tokens each may produce, `penalties` the length penalty of 0, 1, 2 … tokens;
        `allowed` (B V) says which pieces may be said in each sentence, the reserved ones among them.
        """
        room, mask = int(longest.max()), memory.mask
        shape = (at_once, beam + 1, room, self.heads, self.width)
        own = [(torch.empty(shape), torch.empty(shape)) for _ in self.model.decoder]
        projected = self.start(memory).memory
        stack = self.with_caches(self.sized(self.decoder_stack, mask, projected), own)
        stack.caches = Caches((at_once, beam, beam + 1, 0, room, self.heads, self.width))
        found = Found.empty(len(longest), n_best, room)
        lists: tuple[Tensor, ...] = ()
        if allowed is not None:
            ids = allowed.any(dim=0).nonzero().squeeze(1)
            lists = (ids, *lists_of(allowed[:, ids]))
            output = Packed(self.output.only(ids))
            stack.output = output.linear
        given = (longest, penalties, self.model.target_positions(0, room), mask, *lists)
        plan = Plan(len(longest), at_once, beam, n_best, *(tensor.data_ptr() for tensor in given))
        places = Finished(*(tensor.data_ptr() for tensor in vars(found).values()))
        with self.turning(stack, room):
            refuse(kernels.compiled().search_beams(byref(stack), byref(plan), byref(places)))
        return found

    @contextmanager
    def turning(self, stack: Stack, length: int) -> Iterator[None]:
        """Let a stack turn so many places inside this block, if the model is rotary; the table may grow elsewhere."""
        waves = None if self.waves is None else self.waves(0, length)
        stack.waves = None if waves is None else waves.data_ptr()
        yield

    def pointed(self, state: Prefixes, mask: Tensor) -> Stack:
        """Return the decoder with its layers pointed to a state's caches: mostly the one of the step before."""
        last = getattr(self.thread, "last", None)
        if last is None or last[0] is not state.own or last[1] is not state.memory:
            stack = self.with_caches(self.sized(self.decoder_stack, mask, state.memory), state.own)
            self.thread.last = last = (state.own, state.memory, stack)
        return cast(Stack, last[2])

    def sized(self, stack: Stack, mask: Tensor, memory: Sequence[KeyValue] = ()) -> Stack:
        """Return a copy of a stack for sources of this size: threads share the weights, but not what they work on."""
        mine = Stack.from_buffer_copy(stack)
        mine.caches = Caches((len(mask), 0, 0, 0, 0, self.heads, self.width))
        mine.sources = mask.shape[1]
        if memory:
            mine.layer = layers = (Layer * stack.layers)(*stack.layer[: stack.layers])
            for layer, (keys, values) in zip(layers, memory, strict=True):
                layer.memory_keys, layer.memory_values = keys.data_ptr(), values.data_ptr()
        return mine

    def with_caches(self, stack: Stack, own: Sequence[KeyValue]) -> Stack:
        """Point the layers of a copy of a stack to the caches of the prefixes."""
        for layer, (keys, values) in zip(stack.layer[: stack.layers], own, strict=True):
            layer.keys, layer.values = keys.data_ptr(), values.data_ptr()
        return stack


def lists_of(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each sentence's list of places in `allowed` (B V) begins (B + 1), and all lists together."""
    starts = torch.zeros(len(allowed) + 1, dtype=torch.int64)
    starts[1:] = allowed.sum(dim=1).cumsum(dim=0)
    return starts, allowed.nonzero()[:, 1].int()


def call(name: str, stack: Stack, *tensors: Tensor) -> None:
    """Call a function of stack.c."""
    whole = [tensor.contiguous() for tensor in tensors]
    refuse(getattr(kernels.compiled(), name)(byref(stack), *(tensor.data_ptr() for tensor in whole)))
