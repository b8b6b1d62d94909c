"""Figure 1, all of it: one layer of each kind, both stacks, and the model between two vocabularies.

Shapes: B batch, S source positions, T target positions, D width, H heads, K width of one head, V vocabulary, W beam.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from dragoman.model_config import SelfAttentionConfig, TransformerConfig
from dragoman.models.attention import SCORE_FUNCTIONS, AttentionPattern, MultiHeadAttention, causal_mask
from dragoman.models.layers import (
    NORMS,
    Dropout,
    FeedForward,
    Residual,
    build_embeddings,
    initialise_weights,
    norm_mask,
)
from dragoman.models.local_attention import PATTERNS
from dragoman.models.next_word import build_next_word_feature
from dragoman.models.positions import build_positions
from dragoman.models.transducer import AttentionMaps, Memory, Source, State, gather_parents
from dragoman.tokens import token_mask

KeyValue = tuple[Tensor, Tensor]

_INITIAL_CAPACITY = 16  # positions that a new cache has room for


class EncoderLayer(nn.Module):
    """The left box of figure 1."""

    def __init__(self, config: SelfAttentionConfig, layer_index: int = 0, *, causal: bool = False) -> None:
        super().__init__()
        self.attention = _build_self_attention(config, layer_index, causal=causal)
        self.feed_forward = FeedForward(config.width, config.inner_width, config.activation)
        self.attention_residual = _build_residual(config)
        self.feed_forward_residual = _build_residual(config)

    def forward(self, x: Tensor, mask: Tensor, *, record: bool = False) -> tuple[Tensor, Tensor | None]:
        """Let every source position look at every other, then transform each."""
        reading = self.attention_residual.pre(x)
        seen, weights = self.attention(reading, reading, mask, record=record)
        x = self.attention_residual.post(x, seen)
        return self.feed_forward_residual.post(x, self.feed_forward(self.feed_forward_residual.pre(x))), weights


class DecoderLayer(nn.Module):
    """The right box of figure 1."""

    def __init__(self, config: TransformerConfig, layer_index: int = 0) -> None:
        super().__init__()
        self.attention = _build_self_attention(config, layer_index, causal=True)
        self.cross_attention = _build_attention(config)
        self.feed_forward = FeedForward(config.width, config.inner_width, config.activation)
        self.attention_residual = _build_residual(config)
        self.cross_attention_residual = _build_residual(config)
        self.feed_forward_residual = _build_residual(config)

    def forward(
        self, x: Tensor, memory: KeyValue, mask: Tensor | None, memory_mask: Tensor, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:  # B T D, and the weights B H T T and B H T S if recorded
        """Let every target position look at those before it, then at the source, then transform each."""
        reading = self.attention_residual.pre(x)
        seen, own_weights = self.attention(reading, reading, mask, record=record)
        x = self.attention_residual.post(x, seen)
        x, cross_weights = self.cross_attention_block(x, memory, memory_mask, record=record)
        return x, own_weights, cross_weights

    def step(
        self, x: Tensor, cache: KeyValue, ancestors: Tensor, memory: KeyValue, memory_mask: Tensor
    ) -> Tensor:  # B W D
        """Read one more position of each hypothesis (B W D) after those in the caches (B C L H K)."""
        seen = self.attention.step(self.attention_residual.pre(x), *cache, ancestors)
        return self.cross_attention_block(self.attention_residual.post(x, seen), memory, memory_mask)[0]

    def cross_attention_block(
        self, x: Tensor, memory: KeyValue, memory_mask: Tensor, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Look at the source, then transform each position: the upper two sub-layers."""
        seen, weights = self.cross_attention.attend_projected(
            self.cross_attention_residual.pre(x), *memory, memory_mask, record=record
        )
        x = self.cross_attention_residual.post(x, seen)
        return self.feed_forward_residual.post(x, self.feed_forward(self.feed_forward_residual.pre(x))), weights


@dataclass(frozen=True)
class KVCache:
    """The decoder's state: what each layer has projected of the prefixes and of the memory.

    The caches have room for C hypotheses of L positions and are written to as steps are made. Hypotheses with a common
    beginning share it, so a beam is reordered by renaming: only `ancestors` changes.
    """

    ancestors: Tensor  # B W T, int32: at which of the C places position t of hypothesis w lies
    self_attention: list[KeyValue]  # a layer each: B C L H K
    cross_attention: list[KeyValue]  # a layer each: B H S K
    word_counts: Tensor  # B W: words that each hypothesis has dealt with, for a guide

    @classmethod
    def empty(cls, memory: list[KeyValue], heads: int, widths: tuple[int, int], like: Tensor) -> "KVCache":
        """Return the state before the first token, with caches for heads of these widths, of keys and of values."""
        batch = len(like)
        nothing = torch.empty(batch, 1, 0, dtype=torch.int32, device=like.device)
        key, value = ((batch, 1, _INITIAL_CAPACITY, heads, width) for width in widths)
        counts = torch.zeros(batch, 1, dtype=torch.long, device=like.device)
        return cls(nothing, [(like.new_empty(key), like.new_empty(value)) for _ in memory], memory, counts)

    @property
    def length(self) -> int:
        """Return how many positions were read."""
        return self.ancestors.shape[2]

    def reorder(self, parents: Tensor) -> "KVCache":
        """Let hypothesis w of sentence b continue hypothesis parents[b, w] (B W)."""
        own = _grow_caches(self.self_attention, parents.shape[1], self.length)
        return KVCache(
            gather_parents(self.ancestors, parents), own, self.cross_attention, self.word_counts.gather(1, parents)
        )

    def keep(self, sentences: Tensor) -> "KVCache":
        """Forget all sentences but the given ones."""
        own, memory = select_rows(self.self_attention, sentences), select_rows(self.cross_attention, sentences)
        return KVCache(self.ancestors[sentences], own, memory, self.word_counts[sentences])

    def extend(self) -> "KVCache":
        """Return the state with room for one more position of each hypothesis, which lies at its own place."""
        batch, beam, length = self.ancestors.shape
        own_place = torch.arange(beam, dtype=torch.int32, device=self.ancestors.device).expand(batch, beam)
        ancestors = torch.cat([self.ancestors, own_place[..., None]], dim=2)
        return replace(self, ancestors=ancestors, self_attention=_grow_caches(self.self_attention, beam, length + 1))


def _grow_caches(caches: list[KeyValue], places: int, positions: int) -> list[KeyValue]:
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


def select_rows(layers: list[KeyValue], rows: Tensor) -> list[KeyValue]:
    """Return the given rows of every layer's keys and values."""
    return [(key.index_select(0, rows), value.index_select(0, rows)) for key, value in layers]


class Transformer(nn.Module):
    """The encoder–decoder of figure 1; a `Transducer`."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding, self.projection = build_embeddings(
            config, source_vocabulary, target_vocabulary
        )
        self.source_positions = build_positions(config)
        self.target_positions = build_positions(config)
        self.next_word = build_next_word_feature(config, source_vocabulary, target_vocabulary)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config, number) for number in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(config, number) for number in range(config.decoder_depth))
        # Only norm-first needs a last norm: after the paper's order every layer ends with one.
        self.encoder_norm = _norm_class(config)(config.width) if config.norm == "pre" else nn.Identity()
        self.decoder_norm = _norm_class(config)(config.width) if config.norm == "pre" else nn.Identity()
        self.native_models: dict[str, Any] = {}  # what native/model.py keeps for the next search
        initialise_weights(self)

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is packed for this process alone out of a copy."""
        return {**self.__dict__, "native_models": {}}

    @property
    def output_weight(self) -> Tensor:
        """The matrix that turns hidden vectors into logits (V D); section 3.4 shares it with the embedding."""
        return self.target_embedding.weight if self.projection is None else self.projection.weight

    def encode(self, source: Source) -> Memory:
        """Read `source` (B S, padded with PAD)."""
        return self.run_encoder(source)[0]

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the logits (B T V) of the token after each position of `prefix` (B T)."""
        return self.hidden_states(prefix, memory) @ self.output_weight.T

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden vectors (B T D) over `prefix`."""
        return self.run_decoder(prefix, memory)[0]

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:
        """Return the weights with which `source` and `prefix` are read."""
        memory, encoder = self.run_encoder(source, record=True)
        _, decoder, cross = self.run_decoder(prefix, memory, record=True)
        return AttentionMaps(encoder, decoder, cross)

    def run_encoder(self, source: Source, *, record: bool = False) -> tuple[Memory, list[Tensor]]:
        """Run the encoder; the second part holds each layer's weights (B H S S) if recorded."""
        x = self.dropout(self.source_embedding(source.values) + self.source_positions(0, source.mask.shape[1]))  # B S D
        recorded: list[Tensor] = []
        with norm_mask(source.mask):
            for layer in self.encoder:
                x, weights = layer(x, source.mask[:, None, None], record=record)
                recorded += [weights] if record else []
            return Memory(self.encoder_norm(x), source.mask, word_starts=self.next_word.word_starts(source)), recorded

    def run_decoder(
        self, prefix: Tensor, memory: Memory, *, record: bool = False
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Run the decoder; the other parts hold each layer's weights (B H T T, B H T S) if recorded."""
        length = prefix.shape[1]
        patterned = cast(DecoderLayer, self.decoder[0]).attention.pattern is not None  # and causal by itself
        mask = None if patterned else causal_mask(length, prefix.device)[None, None]  # 1 1 T T
        ahead = self.next_word.next_word_vectors(memory, self.next_word.count_words(prefix).cumsum(dim=1))
        x = self.dropout(self.target_embedding(prefix) + self.target_positions(0, length) + ahead)  # B T D
        own: list[Tensor] = []
        cross: list[Tensor] = []
        with norm_mask(token_mask(prefix)):
            for layer, projected in zip(self.decoder, self.project_memory(memory), strict=True):
                x, own_weights, cross_weights = layer(x, projected, mask, memory.mask[:, None, None], record=record)
                own += [own_weights] if record else []
                cross += [cross_weights] if record else []
            return self.decoder_norm(x), own, cross

    def project_memory(self, memory: Memory) -> list[KeyValue]:
        """Return the memory's keys and values (B H S K) for each layer. What stands at padding is never looked at."""
        states = memory.states.masked_fill(~memory.mask[..., None], 0.0)  # a zero weight would not stop a NaN
        return [cast(DecoderLayer, layer).cross_attention.project_keys_values(states) for layer in self.decoder]

    def initial_state(self, memory: Memory) -> KVCache:
        """Return the state before the first token: one empty prefix a sentence."""
        projected = self.project_memory(memory)
        key, value = projected[0]
        return KVCache.empty(projected, key.shape[1], (key.shape[3], value.shape[3]), memory.states)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, KVCache]:
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, KVCache), f"this is the state of another model: {type(state)}"
        counts = state.word_counts + self.next_word.count_words(token)
        ahead = self.next_word.next_word_vectors(memory, counts)
        x = self.target_embedding(token) + self.target_positions(state.length, 1) + ahead  # B W D
        state = replace(state.extend(), word_counts=counts)
        mask = memory.mask[:, None, None]
        for layer, own, projected in zip(self.decoder, state.self_attention, state.cross_attention, strict=True):
            x = cast(DecoderLayer, layer).step(x, own, state.ancestors, projected, mask)
        return self.decoder_norm(x) @ self.output_weight.T, state


def _build_self_attention(config: SelfAttentionConfig, layer_index: int, *, causal: bool) -> MultiHeadAttention:
    """Build the self-attention of a layer (counted from 0), which may be restricted to a pattern."""
    return _build_attention(
        config, pattern=PATTERNS[config.pattern](config.window, layer_index), causal=causal, rotary=config.rotary
    )


def _build_attention(
    config: SelfAttentionConfig, *, pattern: AttentionPattern | None = None, causal: bool = False, rotary: bool = False
) -> MultiHeadAttention:
    """Build the attention that a recipe asks for; unless told otherwise the heads share the width."""
    share = config.width // config.heads
    key_width, value_width = config.key_width or share, config.value_width or share
    compare = SCORE_FUNCTIONS[config.score](config.heads, key_width)
    return MultiHeadAttention(
        config.width, config.heads, key_width, value_width, compare, pattern=pattern, causal=causal, rotary=rotary
    )


def _build_residual(config: SelfAttentionConfig) -> Residual:
    """Build the way around a sub-layer that a recipe asks for."""
    return Residual(config.width, config.dropout, config.norm, _norm_class(config))


def _norm_class(config: SelfAttentionConfig) -> Callable[[int], nn.Module]:
    return NORMS[config.normalisation if isinstance(config, TransformerConfig) else "layer"]
