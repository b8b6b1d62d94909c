"""Figure 1, all of it: one layer of each kind, both stacks, and the model between two vocabularies.

Shapes: B batch, S source positions, T target positions, D width, H heads, K width of one head, V vocabulary, W beam.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from dragoman.model.attention import SCORES, MultiHeadAttention, Pattern, causal_mask
from dragoman.model.guide import guide_of
from dragoman.model.layers import NORMS, Dropout, FeedForward, Residual, counted, initialise, vocabularies_of
from dragoman.model.patterns import PATTERNS
from dragoman.model.positions import positions_of
from dragoman.model.transducer import Attention, Memory, State, inherited
from dragoman.recipe import Model
from dragoman.tokens import PAD

KeyValue = tuple[Tensor, Tensor]

FIRST_ROOM = 16  # positions that a new cache has room for


class EncoderLayer(nn.Module):
    """The left box of figure 1."""

    def __init__(self, how: Model, number: int = 0, *, causal: bool = False) -> None:
        super().__init__()
        self.attention = self_attention_of(how, number, causal=causal)
        self.feed_forward = FeedForward(how.width, how.inner_width, how.activation)
        self.around_attention = residual_of(how)
        self.around_feed_forward = residual_of(how)

    def forward(self, x: Tensor, mask: Tensor, *, record: bool = False) -> tuple[Tensor, Tensor | None]:
        """Let every source position look at every other, then transform each."""
        reading = self.around_attention.enter(x)
        seen, weights = self.attention(reading, reading, mask, record=record)
        x = self.around_attention.leave(x, seen)
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x))), weights


class DecoderLayer(nn.Module):
    """The right box of figure 1."""

    def __init__(self, how: Model, number: int = 0) -> None:
        super().__init__()
        self.attention = self_attention_of(how, number, causal=True)
        self.cross_attention = attention_of(how)
        self.feed_forward = FeedForward(how.width, how.inner_width, how.activation)
        self.around_attention = residual_of(how)
        self.around_cross_attention = residual_of(how)
        self.around_feed_forward = residual_of(how)

    def forward(
        self, x: Tensor, memory: KeyValue, mask: Tensor | None, memory_mask: Tensor, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:  # B T D, and the weights B H T T and B H T S if recorded
        """Let every target position look at those before it, then at the source, then transform each."""
        reading = self.around_attention.enter(x)
        seen, own_weights = self.attention(reading, reading, mask, record=record)
        x = self.around_attention.leave(x, seen)
        x, cross_weights = self.consult(x, memory, memory_mask, record=record)
        return x, own_weights, cross_weights

    def step(
        self, x: Tensor, own: KeyValue, ancestors: Tensor, memory: KeyValue, memory_mask: Tensor
    ) -> Tensor:  # B W D
        """Read one more position of each hypothesis (B W D) after those in the caches (B C L H K)."""
        seen = self.attention.look_back(self.around_attention.enter(x), *own, ancestors)
        return self.consult(self.around_attention.leave(x, seen), memory, memory_mask)[0]

    def consult(
        self, x: Tensor, memory: KeyValue, memory_mask: Tensor, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Look at the source, then transform each position: the upper two sub-layers."""
        seen, weights = self.cross_attention.look(
            self.around_cross_attention.enter(x), *memory, memory_mask, record=record
        )
        x = self.around_cross_attention.leave(x, seen)
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x))), weights


@dataclass(frozen=True)
class Prefixes:
    """The decoder's state: what each layer has projected of the prefixes and of the memory.

    The caches have room for C hypotheses of L positions and are written to as steps are made. Hypotheses with a common
    beginning share it, so a beam is reordered by renaming: only `ancestors` changes.
    """

    ancestors: Tensor  # B W T, int32: at which of the C places position t of hypothesis w lies
    own: list[KeyValue]  # a layer each: B C L H K
    memory: list[KeyValue]  # a layer each: B H S K
    counts: Tensor  # B W: words that each hypothesis has dealt with, for a guide

    @classmethod
    def empty(cls, memory: list[KeyValue], heads: int, widths: tuple[int, int], like: Tensor) -> "Prefixes":
        """Return the state before the first token, with caches for heads of these widths, of keys and of values."""
        batch = len(like)
        nothing = torch.empty(batch, 1, 0, dtype=torch.int32, device=like.device)
        key, value = ((batch, 1, FIRST_ROOM, heads, width) for width in widths)
        counts = torch.zeros(batch, 1, dtype=torch.long, device=like.device)
        return cls(nothing, [(like.new_empty(key), like.new_empty(value)) for _ in memory], memory, counts)

    @property
    def length(self) -> int:
        """Return how many positions were read."""
        return self.ancestors.shape[2]

    def reorder(self, parents: Tensor) -> "Prefixes":
        """Let hypothesis w of sentence b continue hypothesis parents[b, w] (B W)."""
        own = resized(self.own, parents.shape[1], self.length)
        return Prefixes(inherited(self.ancestors, parents), own, self.memory, self.counts.gather(1, parents))

    def keep(self, sentences: Tensor) -> "Prefixes":
        """Forget all sentences but the given ones."""
        own, memory = picked(self.own, sentences), picked(self.memory, sentences)
        return Prefixes(self.ancestors[sentences], own, memory, self.counts[sentences])

    def longer(self) -> "Prefixes":
        """Return the state with room for one more position of each hypothesis, which lies at its own place."""
        batch, beam, length = self.ancestors.shape
        own_place = torch.arange(beam, dtype=torch.int32, device=self.ancestors.device).expand(batch, beam)
        ancestors = torch.cat([self.ancestors, own_place[..., None]], dim=2)
        return replace(self, ancestors=ancestors, own=resized(self.own, beam, length + 1))


def resized(caches: list[KeyValue], places: int, positions: int) -> list[KeyValue]:
    """Return caches (B C L H K) with at least this much room; the room of positions grows by doubling."""
    _, had_places, had_positions = caches[0][0].shape[:3]
    if places <= had_places and positions <= had_positions:
        return caches
    more = (max(places, had_places), had_positions if positions <= had_positions else 2 * positions)

    def larger(cache: Tensor) -> Tensor:
        grown = cache.new_empty(len(cache), *more, *cache.shape[3:])
        grown[:, :had_places, :had_positions] = cache
        return grown

    return [(larger(key), larger(value)) for key, value in caches]


def picked(layers: list[KeyValue], rows: Tensor) -> list[KeyValue]:
    """Return the given rows of every layer's keys and values."""
    return [(key.index_select(0, rows), value.index_select(0, rows)) for key, value in layers]


class Transformer(nn.Module):
    """The encoder–decoder of figure 1; a `Transducer`."""

    def __init__(self, how: Model, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding, self.projection = vocabularies_of(
            how, source_vocabulary, target_vocabulary
        )
        self.source_positions = positions_of(how)
        self.target_positions = positions_of(how)
        self.guide = guide_of(how, source_vocabulary, target_vocabulary)
        self.dropout = Dropout(how.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(how, number) for number in range(how.layers))
        self.decoder = nn.ModuleList(DecoderLayer(how, number) for number in range(how.decoder_depth))
        # Only norm-first needs a last norm: after the paper's order every layer ends with one.
        self.encoder_norm = NORMS[how.normalisation](how.width) if how.norm == "pre" else nn.Identity()
        self.decoder_norm = NORMS[how.normalisation](how.width) if how.norm == "pre" else nn.Identity()
        self.packed: dict[str, Any] = {}  # what model/compiled.py keeps for the next search
        initialise(self)

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is packed for this process alone out of a copy."""
        return {**self.__dict__, "packed": {}}

    @property
    def output(self) -> Tensor:
        """The matrix that turns hidden vectors into logits (V D); section 3.4 shares it with the embedding."""
        return self.target_embedding.weight if self.projection is None else self.projection.weight

    def encode(self, source: Tensor) -> Memory:
        """Read `source` (B S, padded with PAD)."""
        return self.read(source)[0]

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the logits (B T V) of the token after each position of `prefix` (B T)."""
        return self.hidden(prefix, memory) @ self.output.T

    def hidden(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden vectors (B T D) over `prefix`."""
        return self.write(prefix, memory)[0]

    def attention(self, source: Tensor, prefix: Tensor) -> Attention:
        """Return the weights with which `source` and `prefix` are read."""
        memory, encoder = self.read(source, record=True)
        _, decoder, cross = self.write(prefix, memory, record=True)
        return Attention(encoder, decoder, cross)

    def read(self, source: Tensor, *, record: bool = False) -> tuple[Memory, list[Tensor]]:
        """Run the encoder; the second part holds each layer's weights (B H S S) if recorded."""
        mask = source != PAD  # B S
        x = self.dropout(self.source_embedding(source) + self.source_positions(0, source.shape[1]))  # B S D
        recorded: list[Tensor] = []
        with counted(mask):
            for layer in self.encoder:
                x, weights = layer(x, mask[:, None, None], record=record)
                recorded += [weights] if record else []
            return Memory(self.encoder_norm(x), mask, firsts=self.guide.firsts(source)), recorded

    def write(
        self, prefix: Tensor, memory: Memory, *, record: bool = False
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Run the decoder; the other parts hold each layer's weights (B H T T, B H T S) if recorded."""
        length = prefix.shape[1]
        patterned = cast(DecoderLayer, self.decoder[0]).attention.pattern is not None  # and causal by itself
        mask = None if patterned else causal_mask(length, prefix.device)[None, None]  # 1 1 T T
        ahead = self.guide.ahead(memory, self.guide.counted(prefix).cumsum(dim=1))
        x = self.dropout(self.target_embedding(prefix) + self.target_positions(0, length) + ahead)  # B T D
        own: list[Tensor] = []
        cross: list[Tensor] = []
        with counted(prefix != PAD):
            for layer, projected in zip(self.decoder, self.project(memory), strict=True):
                x, own_weights, cross_weights = layer(x, projected, mask, memory.mask[:, None, None], record=record)
                own += [own_weights] if record else []
                cross += [cross_weights] if record else []
            return self.decoder_norm(x), own, cross

    def project(self, memory: Memory) -> list[KeyValue]:
        """Return the memory's keys and values (B H S K) for each layer. What stands at padding is never looked at."""
        states = memory.states.masked_fill(~memory.mask[..., None], 0.0)  # a zero weight would not stop a NaN
        return [cast(DecoderLayer, layer).cross_attention.project(states) for layer in self.decoder]

    def start(self, memory: Memory) -> Prefixes:
        """Return the state before the first token: one empty prefix a sentence."""
        projected = self.project(memory)
        key, value = projected[0]
        return Prefixes.empty(projected, key.shape[1], (key.shape[3], value.shape[3]), memory.states)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, Prefixes]:
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, Prefixes), f"this is the state of another model: {type(state)}"
        counts = state.counts + self.guide.counted(token)
        ahead = self.guide.ahead(memory, counts)
        x = self.target_embedding(token) + self.target_positions(state.length, 1) + ahead  # B W D
        state = replace(state.longer(), counts=counts)
        mask = memory.mask[:, None, None]
        for layer, own, projected in zip(self.decoder, state.own, state.memory, strict=True):
            x = cast(DecoderLayer, layer).step(x, own, state.ancestors, projected, mask)
        return self.decoder_norm(x) @ self.output.T, state


def self_attention_of(how: Model, number: int, *, causal: bool) -> MultiHeadAttention:
    """Build the self-attention of a layer (counted from 0), which may be restricted to a pattern."""
    return attention_of(how, pattern=PATTERNS[how.pattern](how.window, number), causal=causal, rotary=how.rotary)


def attention_of(
    how: Model, *, pattern: Pattern | None = None, causal: bool = False, rotary: bool = False
) -> MultiHeadAttention:
    """Build the attention that a recipe asks for; unless told otherwise the heads share the width."""
    share = how.width // how.heads
    key_width, value_width = how.key_width or share, how.value_width or share
    compare = SCORES[how.score](how.heads, key_width)
    return MultiHeadAttention(
        how.width, how.heads, key_width, value_width, compare, pattern=pattern, causal=causal, rotary=rotary
    )


def residual_of(how: Model) -> Residual:
    """Build the way around a sub-layer that a recipe asks for."""
    return Residual(how.width, how.dropout, how.norm, NORMS[how.normalisation])
