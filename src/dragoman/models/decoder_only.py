"""The decoder-only Transformer: source and target are one sequence in one causal stack.

A layer is an encoder layer (self-attention and feed-forward) in which every position attends to itself and those before
it, in the source as in the target. Target position t of a sentence whose source has n tokens is position n + t of the
sequence, whatever the padding. Without a source it is a language model. A restricted pattern (local_attention.py)
counts positions along the whole sequence, so the first target tokens have the last source tokens as neighbours.

Shapes: B batch, S source positions, T target positions, N = S + T, D width, H heads, K width of one head, L layers,
V vocabulary, W beam.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.model_config import DecoderOnlyConfig
from dragoman.models.attention import AttentionPattern, MultiHeadAttention, attend
from dragoman.models.layers import Dropout, VocabularyModel, initialise_weights
from dragoman.models.positions import build_positions
from dragoman.models.transducer import AttentionMaps, Memory, Source, State, gather_parents
from dragoman.models.transformer import EncoderLayer, KeyValue
from dragoman.tokens import token_mask


@dataclass(frozen=True)
class DecoderOnlyCache:
    """The decoder's state: keys and values of all hypotheses of a sentence, and a mask of those of each hypothesis.

    Hypotheses share their common beginning, above all the source, so reordering a beam changes only `mask`.
    Positions of discarded hypotheses stay in the cache, masked.
    """

    mask: Tensor  # B W N, True at the positions of hypothesis w of sentence b
    positions: Tensor  # B N, the position in its sequence
    layers: list[KeyValue]  # per layer: B H N K, the source first, then W positions per step

    def reorder(self, parents: Tensor) -> "DecoderOnlyCache":
        """Return the state in which hypothesis w of sentence b continues hypothesis parents[b, w] (B W)."""
        return replace(self, mask=gather_parents(self.mask, parents))

    def keep(self, sentences: Tensor) -> "DecoderOnlyCache":
        """Return the state of the given sentences."""
        return DecoderOnlyCache(
            self.mask[sentences],
            self.positions[sentences],
            [(key[sentences], value[sentences]) for key, value in self.layers],
        )

    def extend(self) -> "DecoderOnlyCache":
        """Return the state with one more position per hypothesis, whose keys and values are still missing."""
        batch, beam, _ = self.mask.shape
        itself = torch.eye(beam, dtype=torch.bool, device=self.mask.device).expand(batch, -1, -1)
        position = self.mask[:, :1].sum(dim=2).expand(-1, beam)  # the length of each hypothesis
        return DecoderOnlyCache(
            torch.cat([self.mask, itself], dim=2), torch.cat([self.positions, position], dim=1), self.layers
        )


@dataclass(frozen=True)
class _AttentionView:
    """The positions, of N in total, that the last T of them may attend to."""

    query_length: int  # T
    positions: Tensor  # B N, the position in its sequence
    mask: Tensor  # B 1 N, False at padding; or B T N, if the T positions are of different hypotheses

    @classmethod
    def causal(cls, padding_mask: Tensor, query_length: int) -> "_AttentionView":
        """Return the causal view of the last positions of padded rows; `padding_mask` (B N) is False at padding."""
        return cls(query_length, _token_positions(padding_mask), padding_mask[:, None])

    @property
    def is_consecutive(self) -> bool:
        """Whether the T positions follow each other in one sequence."""
        return self.mask.shape[1] < self.query_length

    @cached_property
    def attention_mask(self) -> Tensor:
        """The mask (B 1 T N) of the allowed positions."""
        total = self.mask.shape[2]
        causal = torch.ones(self.query_length, total, dtype=torch.bool, device=self.mask.device).tril(
            total - self.query_length
        )
        return (self.mask & causal if self.is_consecutive else self.mask)[:, None]


class DecoderOnly(VocabularyModel):
    """The decoder-only Transformer; a `Transducer`.

    Its memory holds the keys and values of the source in every layer, concatenated along D: B S L(HK + HK).
    """

    def __init__(self, config: DecoderOnlyConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        self.positions = build_positions(config)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config, number, causal=True) for number in range(config.layers))
        # Only pre-norm needs a final norm: with the paper's post-norm every layer ends with one.
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        initialise_weights(self)

    def encode(self, source: Source) -> Memory:
        """Encode a batch of token ids, which may be empty (S = 0)."""
        return self.run_source(source)[0]

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden states (B T D) over `prefix` (B T)."""
        return self.target_states(prefix, memory)[0]

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:
        """Return the attention weights of every layer over `source` and `prefix`.

        A target position attends to source and target in one softmax, so a row of `cross` and the same row of
        `decoder` sum to one together.
        """
        memory, encoder = self.run_source(source, record=True)
        _, weights = self.target_states(prefix, memory, record=True)
        length = source.mask.shape[1]
        # A language model has no source.
        cross = [layer_weights[..., :length] for layer_weights in weights] if length else []
        return AttentionMaps(encoder, [layer_weights[..., length:] for layer_weights in weights], cross)

    def run_source(self, source: Source, *, record: bool = False) -> tuple[Memory, list[Tensor]]:
        """Return the memory of the source and, if recorded, the weights of each layer (B H S S)."""
        mask, length = source.mask, source.mask.shape[1]
        empty = self.output_weight.new_zeros(len(source), 0, sum(self.key_value_widths))
        if not length:
            return Memory(empty, mask), []
        x = self.dropout(self.source_embedding(source.values) + self.positions(0, length))  # B S D
        before = self.unpack_memory(Memory(empty, mask[:, :0]))
        _, cache, weights = self.run_layers(x, before, _AttentionView.causal(mask, length), record=record)
        return Memory(_pack_memory(cache), mask), weights

    def target_states(self, prefix: Tensor, memory: Memory, *, record: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Return the hidden states of the target and, if recorded, the weights of each layer (B H T N)."""
        x, _, _, weights = self.run_target(prefix, memory, record=record)
        return x, weights

    def prefill(self, prefix: Tensor, memory: Memory) -> tuple[Tensor, DecoderOnlyCache]:
        """Process a prefix (B T, without padding) at once; return the logits after it (B 1 V) and the state."""
        x, cache, view, _ = self.run_target(prefix, memory)
        return self.logits(x[:, -1:]), DecoderOnlyCache(view.mask, view.positions, cache)

    def run_target(
        self, prefix: Tensor, memory: Memory, *, record: bool = False
    ) -> tuple[Tensor, list[KeyValue], _AttentionView, list[Tensor]]:
        """Return the hidden states (B T D), keys and values of the whole sequence, the view and the weights."""
        length = prefix.shape[1]
        view = _AttentionView.causal(torch.cat([memory.mask, token_mask(prefix)], dim=1), length)
        x = self.dropout(self.target_embedding(prefix) + self.position_vectors(view.positions[:, -length:]))  # B T D
        x, cache, weights = self.run_layers(x, self.unpack_memory(memory), view, record=record)
        return self.norm(x), cache, view, weights

    def run_layers(
        self, x: Tensor, cache: list[KeyValue], view: _AttentionView, *, record: bool = False
    ) -> tuple[Tensor, list[KeyValue], list[Tensor]]:
        """Apply all layers to T positions (B T D) that follow those in the cache (B H S K per layer).

        Return the output, the extended cache (B H N K per layer) and, if recorded, the weights (B H T N per layer).
        """
        extended: list[KeyValue] = []
        recorded: list[Tensor] = []
        for layer, (keys, values) in zip(cast(Iterable[EncoderLayer], self.layers), cache, strict=True):
            normed = layer.attention_residual.pre(x)
            key, value = layer.attention.project_keys_values(normed, view.positions[:, -view.query_length :])
            extended.append((torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)))
            attended, weights = _attend_view(layer.attention, normed, *extended[-1], view, record=record)
            x = layer.attention_residual.post(x, attended)
            x = layer.feed_forward_block(x)
            recorded += [weights] if weights is not None else []
        return x, extended, recorded

    def initial_state(self, memory: Memory) -> DecoderOnlyCache:
        """Return the state before the first token: one hypothesis per sentence, with the source in its cache."""
        return DecoderOnlyCache(memory.mask[:, None], _token_positions(memory.mask), self.unpack_memory(memory))

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, DecoderOnlyCache]:  # noqa: ARG002
        """Feed one more token to each of W hypotheses (B W); return the logits of the next token (B W V)."""
        assert isinstance(state, DecoderOnlyCache), f"expected DecoderOnlyCache, got {type(state).__name__}"
        extended = state.extend()
        view = _AttentionView(token.shape[1], extended.positions, extended.mask)
        x = self.target_embedding(token) + self.position_vectors(view.positions[:, -view.query_length :])  # B W D
        x, layers, _ = self.run_layers(x, state.layers, view)
        return self.logits(self.norm(x)), replace(extended, layers=layers)

    def position_vectors(self, positions: Tensor) -> Tensor:
        """Return the vectors (… D) of positions (…)."""
        return cast(Tensor, self.positions(0, int(positions.max()) + 1)[positions])

    @property
    def key_value_widths(self) -> list[int]:
        """The widths of keys and values, layer by layer."""
        attentions = [cast(EncoderLayer, layer).attention for layer in self.layers]
        return [projection.out_features for attention in attentions for projection in (attention.key, attention.value)]

    def unpack_memory(self, memory: Memory) -> list[KeyValue]:
        """Return the keys and values (B H S K) of each layer, with zeros at padding."""
        states = memory.masked_states()
        heads = cast(EncoderLayer, self.layers[0]).attention.heads
        parts = [
            part.view(*part.shape[:2], heads, part.shape[2] // heads).transpose(1, 2)
            for part in torch.split(states, self.key_value_widths, dim=-1)
        ]
        return list(zip(parts[0::2], parts[1::2], strict=True))


def _pack_memory(layers: list[KeyValue]) -> Tensor:
    """Concatenate keys and values (B H S K) of all layers (B S L(HK + HK))."""
    return torch.cat([part.transpose(1, 2).flatten(2) for layer in layers for part in layer], dim=-1)


def _token_positions(mask: Tensor) -> Tensor:
    """Return the position of each token of padded rows (B N); padding is not counted."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def _attend_view(
    attention: MultiHeadAttention,
    query_source: Tensor,  # B T D
    key: Tensor,  # B H N K
    value: Tensor,  # B H N K
    view: _AttentionView,
    *,
    record: bool,
) -> tuple[Tensor, Tensor | None]:  # B T D, and the weights B H T N if recorded
    """Attend where the view and the attention's pattern, if any, allow it.

    A pattern computes whole sequences efficiently. A single step, or a recorded pass, uses full attention under a mask.
    """
    query, pattern = attention.project_queries(query_source, view.positions[:, -view.query_length :]), attention.pattern
    if pattern is not None and view.is_consecutive and not record:
        heads, weights = _attend_padded_pattern(pattern, query, key, value, view.mask[:, 0]), None
    else:
        allowed = view.attention_mask if pattern is None else view.attention_mask & _pattern_mask(pattern, view)
        heads, weights = attend(query, key, value, allowed, score_function=attention.score_function, record=record)
    return attention.output(heads.transpose(1, 2).flatten(2)), weights


def _attend_padded_pattern(
    pattern: AttentionPattern, query: Tensor, key: Tensor, value: Tensor, padding_mask: Tensor
) -> Tensor:  # B H T K
    """Attend by a pattern in padded rows of N positions, from the last T of them.

    Patterns count positions, so padding in the middle is moved to the end, and the result back again.
    """
    order = (~padding_mask).to(torch.uint8).argsort(dim=1, stable=True)  # B N, tokens first
    queries = query.shape[2]
    query = F.pad(query, (0, 0, key.shape[2] - queries, 0))
    query, key, value = (_reorder_positions(part, order) for part in (query, key, value))
    attended = pattern.attend(query, key, value, padding_mask.gather(1, order), causal=True)
    return _reorder_positions(attended, order.argsort(dim=1))[:, :, -queries:]


def _reorder_positions(part: Tensor, order: Tensor) -> Tensor:
    """Return positions (B H N K) in another order (B N)."""
    return part.gather(2, order[:, None, :, None].expand(-1, part.shape[1], -1, part.shape[3]))


def _pattern_mask(pattern: AttentionPattern, view: _AttentionView) -> Tensor:  # B 1 T N
    """Return which of N positions a pattern allows for each of the last T."""
    positions, row = torch.unique(view.positions[:, -view.query_length :], return_inverse=True)
    table = torch.zeros(len(positions), int(view.positions.max()) + 1, dtype=torch.bool, device=positions.device)
    for allowed, position in zip(table, positions.tolist(), strict=True):
        allowed[pattern.causal_positions(position).to(positions.device)] = True
    return table[row[:, :, None], view.positions[:, None]][:, None]
