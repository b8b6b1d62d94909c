"""The Transformer of figure 1: encoder and decoder layers, both stacks, embeddings and output projection.

Shapes: B batch, S source positions, T target positions, D width, H heads, K width of one head, V vocabulary, W beam.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, cast

import torch
from torch import Tensor, nn

from dragoman.model_config import SelfAttentionConfig, TransformerConfig
from dragoman.models.attention import SCORE_FUNCTIONS, AttentionPattern, MultiHeadAttention, causal_mask
from dragoman.models.front_end import FrontEnd
from dragoman.models.layers import (
    NORMS,
    Dropout,
    FeedForward,
    Residual,
    VocabularyModel,
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
    """Self-attention and feed-forward (figure 1, left)."""

    def __init__(self, config: SelfAttentionConfig, layer_index: int = 0, *, causal: bool = False) -> None:
        super().__init__()
        self.attention = _build_self_attention(config, layer_index, causal=causal)
        self.feed_forward = FeedForward(config.width, config.inner_width, config.activation)
        self.attention_residual = _build_residual(config)
        self.feed_forward_residual = _build_residual(config)

    def forward(self, x: Tensor, mask: Tensor, *, record: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return the layer's output (B S D) and, if recorded, the attention weights (B H S S)."""
        normed = self.attention_residual.pre(x)
        attended, weights = self.attention(normed, normed, mask, record=record)
        x = self.attention_residual.post(x, attended)
        return self.feed_forward_block(x), weights

    def feed_forward_block(self, x: Tensor) -> Tensor:
        """Apply the feed-forward sub-layer with its residual connection."""
        return self.feed_forward_residual.post(x, self.feed_forward(self.feed_forward_residual.pre(x)))


class LayerCache(Protocol):
    """What a decoder layer keeps between steps, of W hypotheses for each of B sentences; the layer owns its type."""

    def reorder(self, parents: Tensor) -> Self:
        """Return the cache in which hypothesis w of sentence b continues hypothesis parents[b, w] (B W)."""
        ...

    def keep(self, sentences: Tensor) -> Self:
        """Return the cache of the given sentences (row indices)."""
        ...

    def reserve(self, beam: int, length: int) -> Self:
        """Return the cache with room for at least this many hypotheses and positions."""
        ...


@dataclass(frozen=True)
class KVCache:
    """Keys and values of one layer: of the prefixes, and of the encoder's output.

    There is room for C hypotheses of L positions, which is written in place. Hypotheses with a common beginning share
    it: `DecoderState.ancestors` says where each position is stored, so that reordering a beam copies nothing.
    """

    keys: Tensor  # B C L H K
    values: Tensor  # B C L H K
    memory: KeyValue  # B H S K each

    @classmethod
    def empty(cls, memory: KeyValue, heads: int, widths: tuple[int, int], like: Tensor) -> "KVCache":
        """Return a cache for heads of these key and value widths, on the device of `like` (B …)."""
        keys, values = (like.new_empty(len(like), 1, _INITIAL_CAPACITY, heads, width) for width in widths)
        return cls(keys, values, memory)

    def reorder(self, parents: Tensor) -> "KVCache":
        """Return the cache with room for as many hypotheses; the state's `ancestors` are reordered instead."""
        return self.reserve(parents.shape[1], 0)

    def keep(self, sentences: Tensor) -> "KVCache":
        """Return the cache of the given sentences."""
        keys, values, *memory = (part.index_select(0, sentences) for part in (self.keys, self.values, *self.memory))
        return KVCache(keys, values, (memory[0], memory[1]))

    def reserve(self, beam: int, length: int) -> "KVCache":
        """Return the cache with room for at least this many hypotheses and positions, which grow by doubling."""
        had_beam, had_length = self.keys.shape[1:3]
        if beam <= had_beam and length <= had_length:
            return self
        room = (max(beam, had_beam), had_length if length <= had_length else 2 * length)

        def enlarge(cache: Tensor) -> Tensor:
            enlarged = cache.new_empty(len(cache), *room, *cache.shape[3:])
            enlarged[:, :had_beam, :had_length] = cache
            return enlarged

        return KVCache(enlarge(self.keys), enlarge(self.values), self.memory)


@dataclass(frozen=True)
class DecoderState:
    """The decoder's state: a cache per layer, and where the positions of each hypothesis are stored in it."""

    ancestors: Tensor  # B W T, int32: the row (of C) of a cache that holds position t of hypothesis w
    layers: list[LayerCache]
    word_counts: Tensor  # B W: source words that each hypothesis has completed

    @classmethod
    def empty(cls, layers: list[LayerCache], like: Tensor) -> "DecoderState":
        """Return the state before the first token: one empty hypothesis per sentence of `like` (B …)."""
        ancestors = torch.empty(len(like), 1, 0, dtype=torch.int32, device=like.device)
        return cls(ancestors, layers, torch.zeros(len(like), 1, dtype=torch.long, device=like.device))

    @property
    def length(self) -> int:
        """The number of positions decoded so far."""
        return self.ancestors.shape[2]

    def reorder(self, parents: Tensor) -> "DecoderState":
        """Return the state in which hypothesis w of sentence b continues hypothesis parents[b, w] (B W)."""
        layers = _same_list(self.layers, [layer.reorder(parents) for layer in self.layers])
        return DecoderState(gather_parents(self.ancestors, parents), layers, self.word_counts.gather(1, parents))

    def keep(self, sentences: Tensor) -> "DecoderState":
        """Return the state of the given sentences."""
        layers = [layer.keep(sentences) for layer in self.layers]
        return DecoderState(self.ancestors[sentences], layers, self.word_counts[sentences])

    def extend(self) -> "DecoderState":
        """Return the state with room for one more position of each hypothesis."""
        batch, beam, length = self.ancestors.shape
        row = torch.arange(beam, dtype=torch.int32, device=self.ancestors.device).expand(batch, beam)
        layers = _same_list(self.layers, [layer.reserve(beam, length + 1) for layer in self.layers])
        return replace(self, ancestors=torch.cat([self.ancestors, row[..., None]], dim=2), layers=layers)


def _same_list(old: list[LayerCache], new: list[LayerCache]) -> list[LayerCache]:
    """Return `old` itself if nothing has changed: native code keeps pointers to the caches of a list."""
    return old if all(a is b for a, b in zip(old, new, strict=True)) else new


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward (figure 1, right)."""

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
        """Apply the three sub-layers to whole target sequences (B T D)."""
        normed = self.attention_residual.pre(x)
        attended, self_weights = self.attention(normed, normed, mask, record=record)
        x = self.attention_residual.post(x, attended)
        x, cross_weights = self.cross_attention_block(x, memory, memory_mask, record=record)
        return x, self_weights, cross_weights

    def initial_cache(self, memory_states: Tensor) -> LayerCache:
        """Return the cache before the first token; `memory_states` (B S D) is zero at padding."""
        key, value = self.cross_attention.project_keys_values(memory_states)
        return KVCache.empty((key, value), key.shape[1], (key.shape[3], value.shape[3]), memory_states)

    def step(
        self, x: Tensor, cache: LayerCache, ancestors: Tensor, memory_mask: Tensor
    ) -> tuple[Tensor, LayerCache]:  # B W D, and the cache with the new position
        """Apply the layer to one more position of each hypothesis (B W D); its key and value are written in place."""
        assert isinstance(cache, KVCache), f"expected KVCache, got {type(cache).__name__}"
        attended = self.attention.step(self.attention_residual.pre(x), cache.keys, cache.values, ancestors)
        x, _ = self.cross_attention_block(self.attention_residual.post(x, attended), cache.memory, memory_mask)
        return x, cache

    def cross_attention_block(
        self, x: Tensor, memory: KeyValue, memory_mask: Tensor, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Apply the upper two sub-layers: cross-attention and feed-forward."""
        attended, weights = self.cross_attention.attend_projected(
            self.cross_attention_residual.pre(x), *memory, memory_mask, record=record
        )
        x = self.cross_attention_residual.post(x, attended)
        return self.feed_forward_residual.post(x, self.feed_forward(self.feed_forward_residual.pre(x))), weights


class Transformer(VocabularyModel):
    """The encoder–decoder of figure 1; a `Transducer`."""

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        # With a front end there are no source tokens, and the source embedding is that of the target, which is shared.
        self.front_end = FrontEnd(config.frame_width, config.width) if config.frame_width else None
        self.ctc = nn.Linear(config.width, target_vocabulary) if config.ctc_weight else None
        self.source_positions = build_positions(config)
        self.target_positions = build_positions(config)
        self.next_word = build_next_word_feature(config, source_vocabulary, target_vocabulary)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config, index) for index in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(config, index) for index in range(config.decoder_depth))
        # Only pre-norm needs a final norm: with the paper's post-norm every layer ends with one.
        self.encoder_norm = _norm_class(config)(config.width) if config.norm == "pre" else nn.Identity()
        self.decoder_norm = _norm_class(config)(config.width) if config.norm == "pre" else nn.Identity()
        self.native_models: dict[str, Any] = {}  # a cache of native/model.py, by precision
        initialise_weights(self)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the native models, which hold pointers of this process."""
        return {**self.__dict__, "native_models": {}}

    def encode(self, source: Source) -> Memory:
        """Encode a batch of token ids or frames."""
        return self.run_encoder(source)[0]

    def ctc_log_probabilities(self, memory: Memory) -> Tensor:
        """Return the log-probabilities (B S V) of the tokens that CTC hears at each position; PAD is the blank."""
        assert self.ctc is not None, "the model has no CTC output"
        logits: Tensor = self.ctc(memory.states)
        return logits.float().log_softmax(dim=-1)

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the decoder's last hidden states (B T D) over `prefix` (B T)."""
        return self.run_decoder(prefix, memory)[0]

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:
        """Return the attention weights of every layer over `source` and `prefix`."""
        memory, encoder = self.run_encoder(source, record=True)
        _, decoder, cross = self.run_decoder(prefix, memory, record=True)
        return AttentionMaps(encoder, decoder, cross)

    def run_encoder(self, source: Source, *, record: bool = False) -> tuple[Memory, list[Tensor]]:
        """Return the encoder's output and, if recorded, the attention weights of each layer (B H S S)."""
        x, mask = self.embed_source(source)
        x = self.dropout(x + self.source_positions(0, mask.shape[1]))  # B S D
        recorded: list[Tensor] = []
        with norm_mask(mask):
            for layer in self.encoder:
                x, weights = layer(x, mask[:, None, None], record=record)
                recorded += [weights] if record else []
            memory = Memory(self.encoder_norm(x), mask, word_starts=self.next_word.word_starts(source))
        return memory, recorded

    def embed_source(self, source: Source) -> tuple[Tensor, Tensor]:
        """Return the encoder's input (B S D) and its mask (B S), which a front end shortens."""
        if self.front_end is None:
            return self.source_embedding(source.values), source.mask
        vectors, mask = self.front_end(source)
        return vectors, mask

    def run_decoder(
        self, prefix: Tensor, memory: Memory, *, record: bool = False
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return the last hidden states and, if recorded, the weights of each layer (B H T T and B H T S)."""
        length = prefix.shape[1]
        has_pattern = cast(DecoderLayer, self.decoder[0]).attention.pattern is not None  # a pattern is causal by itself
        mask = None if has_pattern else causal_mask(length, prefix.device)[None, None]  # 1 1 T T
        next_word = self.next_word.next_word_vectors(memory, self.next_word.count_words(prefix).cumsum(dim=1))
        x = self.dropout(self.target_embedding(prefix) + self.target_positions(0, length) + next_word)  # B T D
        states = memory.masked_states()
        decoder: list[Tensor] = []
        cross: list[Tensor] = []
        with norm_mask(token_mask(prefix)):
            for layer in self.decoder_layers:
                projected = layer.cross_attention.project_keys_values(states)
                x, self_weights, cross_weights = layer(x, projected, mask, memory.mask[:, None, None], record=record)
                decoder += [self_weights] if record else []
                cross += [cross_weights] if record else []
            return self.decoder_norm(x), decoder, cross

    @property
    def decoder_layers(self) -> Iterable[DecoderLayer]:
        """The decoder's layers, typed."""
        return cast(Iterable[DecoderLayer], self.decoder)

    def initial_state(self, memory: Memory) -> DecoderState:
        """Return the state before the first token: one empty hypothesis per sentence."""
        states = memory.masked_states()
        return DecoderState.empty([layer.initial_cache(states) for layer in self.decoder_layers], states)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, DecoderState]:
        """Feed one more token to each of W hypotheses (B W); return the logits of the next token (B W V)."""
        assert isinstance(state, DecoderState), f"expected DecoderState, got {type(state).__name__}"
        counts = state.word_counts + self.next_word.count_words(token)
        next_word = self.next_word.next_word_vectors(memory, counts)
        x = self.target_embedding(token) + self.target_positions(state.length, 1) + next_word  # B W D
        state = state.extend()
        caches: list[LayerCache] = []
        for layer, cache in zip(self.decoder_layers, state.layers, strict=True):
            x, extended = layer.step(x, cache, state.ancestors, memory.mask[:, None, None])
            caches.append(extended)
        return self.logits(self.decoder_norm(x)), replace(state, layers=caches, word_counts=counts)


def _build_self_attention(config: SelfAttentionConfig, layer_index: int, *, causal: bool) -> MultiHeadAttention:
    pattern = PATTERNS[config.pattern](config.window, layer_index)
    return _build_attention(config, pattern=pattern, causal=causal, rotary=config.rotary)


def _build_attention(
    config: SelfAttentionConfig, *, pattern: AttentionPattern | None = None, causal: bool = False, rotary: bool = False
) -> MultiHeadAttention:
    head_width = config.width // config.heads
    key_width, value_width = config.key_width or head_width, config.value_width or head_width
    score_function = SCORE_FUNCTIONS[config.score](config.heads, key_width)
    return MultiHeadAttention(
        config.width,
        config.heads,
        key_width,
        value_width,
        score_function,
        pattern=pattern,
        causal=causal,
        rotary=rotary,
    )


def _build_residual(config: SelfAttentionConfig) -> Residual:
    return Residual(config.width, config.dropout, config.norm, _norm_class(config))


def _norm_class(config: SelfAttentionConfig) -> Callable[[int], nn.Module]:
    return NORMS[config.normalisation if isinstance(config, TransformerConfig) else "layer"]
