"""The decoder-only Transformer: source and target are one sequence, read by one causal stack.

A layer is an encoder's (self-attention and feed-forward), but every place looks only at itself and at those before it,
in the source as in the target. Target place t of a sentence whose source has n tokens is place n + t of the sequence,
however far its row is padded. Without a source it is a language model. A restricted pattern (patterns.py) counts places
along the whole sequence, so the target's first words still have the source's last ones among their neighbours.

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
    """The decoder's state: all that was read of a sentence, by whichever hypothesis, and who descends from what.

    Hypotheses share what they have in common, the source above all, so a beam is reordered by renaming: only `mask`
    changes. What no hypothesis descends from any more stays, and is not looked at.
    """

    mask: Tensor  # B W N, True where hypothesis w of sentence b descends from what was read there
    positions: Tensor  # B N, where in its sequence that stands
    layers: list[KeyValue]  # a layer each: B H N K, the source first, then W places a step

    def reorder(self, parents: Tensor) -> "DecoderOnlyCache":
        """Let hypothesis w of sentence b continue hypothesis parents[b, w] (B W)."""
        return replace(self, mask=gather_parents(self.mask, parents))

    def keep(self, sentences: Tensor) -> "DecoderOnlyCache":
        """Forget all sentences but the given ones."""
        return DecoderOnlyCache(
            self.mask[sentences],
            self.positions[sentences],
            [(key[sentences], value[sentences]) for key, value in self.layers],
        )

    def extend(self) -> "DecoderOnlyCache":
        """Return the state with one more place for each hypothesis, at which only it looks; not yet read."""
        batch, beam, _ = self.mask.shape
        itself = torch.eye(beam, dtype=torch.bool, device=self.mask.device).expand(batch, -1, -1)
        place = self.mask[:, :1].sum(dim=2).expand(-1, beam)  # as many as each hypothesis descends from
        return DecoderOnlyCache(
            torch.cat([self.mask, itself], dim=2), torch.cat([self.positions, place], dim=1), self.layers
        )


@dataclass(frozen=True)
class _AttentionView:
    """Where T places that are read now may look, of all N read so far, themselves the last."""

    query_length: int  # T
    positions: Tensor  # B N, where in its sequence each stands
    mask: Tensor  # B 1 N, False at padding; or B T N, if those that are read now are rivals

    @classmethod
    def causal(cls, padding_mask: Tensor, query_length: int) -> "_AttentionView":
        """Let the last places of padded rows look back; `real` (B N) says what is no padding."""
        return cls(query_length, _token_positions(padding_mask), padding_mask[:, None])

    @property
    def is_consecutive(self) -> bool:
        """Say whether several places are read now, each after the other."""
        return self.mask.shape[1] < self.query_length

    @cached_property
    def attention_mask(self) -> Tensor:
        """Where each may look, as a mask (B 1 T N)."""
        total = self.mask.shape[2]
        causal = torch.ones(self.query_length, total, dtype=torch.bool, device=self.mask.device).tril(
            total - self.query_length
        )
        return (self.mask & causal if self.is_consecutive else self.mask)[:, None]


class DecoderOnly(VocabularyModel):
    """The decoder-only Transformer; a `Transducer`.

    Its memory holds the keys and values of the source in every layer, side by side along D: B S L(HK + HK).
    """

    def __init__(self, config: DecoderOnlyConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        self.positions = build_positions(config)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config, number, causal=True) for number in range(config.layers))
        # Only norm-first needs a last norm: after the paper's order every layer ends with one.
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        initialise_weights(self)

    def encode(self, source: Source) -> Memory:
        """Read `source` (B S, padded with PAD; S may be 0)."""
        return self.run_source(source)[0]

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden vectors (B T D) over `prefix`."""
        return self.target_states(prefix, memory)[0]

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:
        """Return the weights with which `source` and `prefix` are read.

        A target place looks at source and target at once, so a row of `cross` and the same row of `decoder` are two
        parts of one softmax, and only together add up to one.
        """
        memory, encoder = self.run_source(source, record=True)
        _, weights = self.target_states(prefix, memory, record=True)
        length = source.mask.shape[1]
        cross = [each[..., :length] for each in weights] if length else []  # a language model has nothing to look at
        return AttentionMaps(encoder, [each[..., length:] for each in weights], cross)

    def run_source(self, source: Source, *, record: bool = False) -> tuple[Memory, list[Tensor]]:
        """Run the stack over the source; the second part holds each layer's weights (B H S S) if recorded."""
        mask, length = source.mask, source.mask.shape[1]
        nothing = self.output_weight.new_zeros(len(source), 0, sum(self.key_value_widths))
        if not length:
            return Memory(nothing, mask), []
        x = self.dropout(self.source_embedding(source.values) + self.positions(0, length))  # B S D
        before = self.unpack_memory(Memory(nothing, mask[:, :0]))
        _, read, weights = self.run_layers(x, before, _AttentionView.causal(mask, length), record=record)
        return Memory(_pack_memory(read), mask), weights

    def target_states(self, prefix: Tensor, memory: Memory, *, record: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Run the stack over the target; the second part holds each layer's weights (B H T N) if recorded."""
        x, _, _, weights = self.run_target(prefix, memory, record=record)
        return x, weights

    def prefill(self, prefix: Tensor, memory: Memory) -> tuple[Tensor, DecoderOnlyCache]:
        """Read a whole prefix (B T, none padded) at once; return the logits after it (B 1 V) and the state by then."""
        x, read, view, _ = self.run_target(prefix, memory)
        return self.logits(x[:, -1:]), DecoderOnlyCache(view.mask, view.positions, read)

    def run_target(
        self, prefix: Tensor, memory: Memory, *, record: bool = False
    ) -> tuple[Tensor, list[KeyValue], _AttentionView, list[Tensor]]:
        """Run the stack over the target; return the hidden vectors (B T D), what was read, the view and the weights."""
        length = prefix.shape[1]
        view = _AttentionView.causal(torch.cat([memory.mask, token_mask(prefix)], dim=1), length)
        x = self.dropout(self.target_embedding(prefix) + self.position_vectors(view.positions[:, -length:]))  # B T D
        x, read, weights = self.run_layers(x, self.unpack_memory(memory), view, record=record)
        return self.norm(x), read, view, weights

    def run_layers(
        self, x: Tensor, cache: list[KeyValue], view: _AttentionView, *, record: bool = False
    ) -> tuple[Tensor, list[KeyValue], list[Tensor]]:
        """Run places (B T D) through all layers, after what each layer has read before (B H S K).

        Return them, what each layer has read with them (B H N K), and its weights (B H T N) if recorded.
        """
        read: list[KeyValue] = []
        recorded: list[Tensor] = []
        for layer, (keys, values) in zip(cast(Iterable[EncoderLayer], self.layers), cache, strict=True):
            reading = layer.attention_residual.pre(x)
            key, value = layer.attention.project_keys_values(reading, view.positions[:, -view.query_length :])
            read.append((torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)))
            seen, weights = _attend_view(layer.attention, reading, *read[-1], view, record=record)
            x = layer.attention_residual.post(x, seen)
            x = layer.feed_forward_residual.post(x, layer.feed_forward(layer.feed_forward_residual.pre(x)))
            recorded += [weights] if weights is not None else []
        return x, read, recorded

    def initial_state(self, memory: Memory) -> DecoderOnlyCache:
        """Return the state before the first token: one hypothesis a sentence, which has read the source."""
        return DecoderOnlyCache(memory.mask[:, None], _token_positions(memory.mask), self.unpack_memory(memory))

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, DecoderOnlyCache]:  # noqa: ARG002
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, DecoderOnlyCache), f"this is the state of another model: {type(state)}"
        line = state.extend()
        view = _AttentionView(token.shape[1], line.positions, line.mask)
        x = self.target_embedding(token) + self.position_vectors(view.positions[:, -view.query_length :])  # B W D
        x, read, _ = self.run_layers(x, state.layers, view)
        return self.logits(self.norm(x)), replace(line, layers=read)

    def position_vectors(self, positions: Tensor) -> Tensor:
        """Return the vectors (… D) of places (…)."""
        return cast(Tensor, self.positions(0, int(positions.max()) + 1)[positions])

    @property
    def key_value_widths(self) -> list[int]:
        """The widths of all keys and values, layer by layer."""
        attentions = [cast(EncoderLayer, layer).attention for layer in self.layers]
        return [each.out_features for attention in attentions for each in (attention.key, attention.value)]

    def unpack_memory(self, memory: Memory) -> list[KeyValue]:
        """Return the keys and values (B H S K) of each layer. What stands at padding is never looked at."""
        states = memory.masked_states()
        heads = cast(EncoderLayer, self.layers[0]).attention.heads
        parts = [
            part.view(*part.shape[:2], heads, part.shape[2] // heads).transpose(1, 2)
            for part in torch.split(states, self.key_value_widths, dim=-1)
        ]
        return list(zip(parts[0::2], parts[1::2], strict=True))


def _pack_memory(layers: list[KeyValue]) -> Tensor:
    """Lay keys and values (B H S K) of all layers side by side (B S L(HK + HK))."""
    return torch.cat([part.transpose(1, 2).flatten(2) for layer in layers for part in layer], dim=-1)


def _token_positions(mask: Tensor) -> Tensor:
    """Return where in its sequence each place of a padded row (B N) stands: padding takes no place."""
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
    """Let places look as far as the view and the attention's pattern, if it has one, allow.

    A whole sequence is regrouped by the pattern, so that it costs no more than the pattern sees. A single step, or what
    is recorded, is compared with everything there is, under a mask.
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
    """Attend by a pattern to padded rows, in which some of N places are real (B N) and the last T look.

    Patterns count places, so padding in the middle is moved to the end, and back again.
    """
    order = (~padding_mask).to(torch.uint8).argsort(dim=1, stable=True)  # B N, the real ones first
    looking = query.shape[2]
    query = F.pad(query, (0, 0, key.shape[2] - looking, 0))
    query, key, value = (_reorder_positions(part, order) for part in (query, key, value))
    seen = pattern.attend(query, key, value, padding_mask.gather(1, order), causal=True)
    return _reorder_positions(seen, order.argsort(dim=1))[:, :, -looking:]


def _reorder_positions(part: Tensor, order: Tensor) -> Tensor:
    """Return places (B H N K) in another order (B N)."""
    return part.gather(2, order[:, None, :, None].expand(-1, part.shape[1], -1, part.shape[3]))


def _pattern_mask(pattern: AttentionPattern, view: _AttentionView) -> Tensor:  # B 1 T N
    """Say which of N places a pattern lets each of the last T see."""
    places, row = torch.unique(view.positions[:, -view.query_length :], return_inverse=True)
    table = torch.zeros(len(places), int(view.positions.max()) + 1, dtype=torch.bool, device=places.device)
    for seen, place in zip(table, places.tolist(), strict=True):
        seen[pattern.causal_positions(place).to(places.device)] = True
    return table[row[:, :, None], view.positions[:, None]][:, None]
