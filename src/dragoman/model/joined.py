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

from dragoman.model.attention import MultiHeadAttention, Pattern, attend
from dragoman.model.layers import Dropout, initialise, vocabularies_of
from dragoman.model.positions import positions_of
from dragoman.model.transducer import Attention, Memory, State, inherited
from dragoman.model.transformer import EncoderLayer, KeyValue, picked
from dragoman.recipe import Model
from dragoman.tokens import PAD


@dataclass(frozen=True)
class Line:
    """The decoder's state: all that was read of a sentence, by whichever hypothesis, and who descends from what.

    Hypotheses share what they have in common, the source above all, so a beam is reordered by renaming: only `mask`
    changes. What no hypothesis descends from any more stays, and is not looked at.
    """

    mask: Tensor  # B W N, True where hypothesis w of sentence b descends from what was read there
    places: Tensor  # B N, where in its sequence that stands
    read: list[KeyValue]  # a layer each: B H N K, the source first, then W places a step

    def reorder(self, parents: Tensor) -> "Line":
        """Let hypothesis w of sentence b continue hypothesis parents[b, w] (B W)."""
        return replace(self, mask=inherited(self.mask, parents))

    def keep(self, sentences: Tensor) -> "Line":
        """Forget all sentences but the given ones."""
        return Line(self.mask[sentences], self.places[sentences], picked(self.read, sentences))

    def longer(self) -> "Line":
        """Return the state with one more place for each hypothesis, at which only it looks; not yet read."""
        batch, beam, _ = self.mask.shape
        itself = torch.eye(beam, dtype=torch.bool, device=self.mask.device).expand(batch, -1, -1)
        place = self.mask[:, :1].sum(dim=2).expand(-1, beam)  # as many as each hypothesis descends from
        return Line(torch.cat([self.mask, itself], dim=2), torch.cat([self.places, place], dim=1), self.read)


@dataclass(frozen=True)
class View:
    """Where T places that are read now may look, of all N read so far, themselves the last."""

    looking: int  # T
    places: Tensor  # B N, where in its sequence each stands
    mask: Tensor  # B 1 N, False at padding; or B T N, if those that are read now are rivals

    @classmethod
    def back(cls, real: Tensor, looking: int) -> "View":
        """Let the last places of padded rows look back; `real` (B N) says what is no padding."""
        return cls(looking, places_of(real), real[:, None])

    @property
    def in_a_row(self) -> bool:
        """Say whether several places are read now, each after the other."""
        return self.mask.shape[1] < self.looking

    @cached_property
    def allowed(self) -> Tensor:
        """Where each may look, as a mask (B 1 T N)."""
        total = self.mask.shape[2]
        causal = torch.ones(self.looking, total, dtype=torch.bool, device=self.mask.device).tril(total - self.looking)
        return (self.mask & causal if self.in_a_row else self.mask)[:, None]


class Joined(nn.Module):
    """The decoder-only Transformer; a `Transducer`.

    Its memory holds the keys and values of the source in every layer, side by side along D: B S L(HK + HK).
    """

    def __init__(self, how: Model, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding, self.projection = vocabularies_of(
            how, source_vocabulary, target_vocabulary
        )
        self.positions = positions_of(how)
        self.dropout = Dropout(how.dropout)
        self.layers = nn.ModuleList(EncoderLayer(how, number, causal=True) for number in range(how.layers))
        # Only norm-first needs a last norm: after the paper's order every layer ends with one.
        self.norm = nn.LayerNorm(how.width) if how.norm == "pre" else nn.Identity()
        initialise(self)

    @property
    def output(self) -> Tensor:
        """The matrix that turns hidden vectors into logits (V D)."""
        return self.target_embedding.weight if self.projection is None else self.projection.weight

    def encode(self, source: Tensor) -> Memory:
        """Read `source` (B S, padded with PAD; S may be 0)."""
        return self.read(source)[0]

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the logits (B T V) of the token after each position of `prefix` (B T)."""
        return self.hidden(prefix, memory) @ self.output.T

    def hidden(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden vectors (B T D) over `prefix`."""
        return self.write(prefix, memory)[0]

    def attention(self, source: Tensor, prefix: Tensor) -> Attention:
        """Return the weights with which `source` and `prefix` are read.

        A target place looks at source and target at once, so a row of `cross` and the same row of `decoder` are two
        parts of one softmax, and only together add up to one.
        """
        memory, encoder = self.read(source, record=True)
        _, weights = self.write(prefix, memory, record=True)
        length = source.shape[1]
        cross = [each[..., :length] for each in weights] if length else []  # a language model has nothing to look at
        return Attention(encoder, [each[..., length:] for each in weights], cross)

    def read(self, source: Tensor, *, record: bool = False) -> tuple[Memory, list[Tensor]]:
        """Run the stack over the source; the second part holds each layer's weights (B H S S) if recorded."""
        mask = source != PAD  # B S
        length = source.shape[1]
        nothing = self.output.new_zeros(len(source), 0, sum(self.widths))
        if not length:
            return Memory(nothing, mask), []
        x = self.dropout(self.source_embedding(source) + self.positions(0, length))  # B S D
        before = self.unpacked(Memory(nothing, mask[:, :0]))
        _, read, weights = self.run(x, before, View.back(mask, length), record=record)
        return Memory(packed(read), mask), weights

    def write(self, prefix: Tensor, memory: Memory, *, record: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Run the stack over the target; the second part holds each layer's weights (B H T N) if recorded."""
        x, _, _, weights = self.written(prefix, memory, record=record)
        return x, weights

    def after(self, prefix: Tensor, memory: Memory) -> tuple[Tensor, Line]:
        """Read a whole prefix (B T, none padded) at once; return the logits after it (B 1 V) and the state by then."""
        x, read, view, _ = self.written(prefix, memory)
        return x[:, -1:] @ self.output.T, Line(view.mask, view.places, read)

    def written(
        self, prefix: Tensor, memory: Memory, *, record: bool = False
    ) -> tuple[Tensor, list[KeyValue], View, list[Tensor]]:
        """Run the stack over the target; return the hidden vectors (B T D), what was read, the view and the weights."""
        length = prefix.shape[1]
        view = View.back(torch.cat([memory.mask, prefix != PAD], dim=1), length)
        x = self.dropout(self.target_embedding(prefix) + self.vectors(view.places[:, -length:]))  # B T D
        x, read, weights = self.run(x, self.unpacked(memory), view, record=record)
        return self.norm(x), read, view, weights

    def run(
        self, x: Tensor, before: list[KeyValue], view: View, *, record: bool = False
    ) -> tuple[Tensor, list[KeyValue], list[Tensor]]:
        """Run places (B T D) through all layers, after what each layer has read before (B H S K).

        Return them, what each layer has read with them (B H N K), and its weights (B H T N) if recorded.
        """
        read: list[KeyValue] = []
        recorded: list[Tensor] = []
        for layer, (keys, values) in zip(cast(Iterable[EncoderLayer], self.layers), before, strict=True):
            reading = layer.around_attention.enter(x)
            key, value = layer.attention.project(reading, view.places[:, -view.looking :])
            read.append((torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)))
            seen, weights = look(layer.attention, reading, *read[-1], view, record=record)
            x = layer.around_attention.leave(x, seen)
            x = layer.around_feed_forward.leave(x, layer.feed_forward(layer.around_feed_forward.enter(x)))
            recorded += [weights] if weights is not None else []
        return x, read, recorded

    def start(self, memory: Memory) -> Line:
        """Return the state before the first token: one hypothesis a sentence, which has read the source."""
        return Line(memory.mask[:, None], places_of(memory.mask), self.unpacked(memory))

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, Line]:  # noqa: ARG002
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, Line), f"this is the state of another model: {type(state)}"
        line = state.longer()
        view = View(token.shape[1], line.places, line.mask)
        x = self.target_embedding(token) + self.vectors(view.places[:, -view.looking :])  # B W D
        x, read, _ = self.run(x, state.read, view)
        return self.norm(x) @ self.output.T, replace(line, read=read)

    def vectors(self, places: Tensor) -> Tensor:
        """Return the vectors (… D) of places (…)."""
        return cast(Tensor, self.positions(0, int(places.max()) + 1)[places])

    @property
    def widths(self) -> list[int]:
        """The widths of all keys and values, layer by layer."""
        attentions = [cast(EncoderLayer, layer).attention for layer in self.layers]
        return [each.out_features for attention in attentions for each in (attention.key, attention.value)]

    def unpacked(self, memory: Memory) -> list[KeyValue]:
        """Return the keys and values (B H S K) of each layer. What stands at padding is never looked at."""
        states = memory.states.masked_fill(~memory.mask[..., None], 0.0)  # a zero weight would not stop a NaN
        heads = cast(EncoderLayer, self.layers[0]).attention.heads
        parts = [
            part.view(*part.shape[:2], heads, part.shape[2] // heads).transpose(1, 2)
            for part in torch.split(states, self.widths, dim=-1)
        ]
        return list(zip(parts[0::2], parts[1::2], strict=True))


def packed(read: list[KeyValue]) -> Tensor:
    """Lay keys and values (B H S K) of all layers side by side (B S L(HK + HK))."""
    return torch.cat([part.transpose(1, 2).flatten(2) for layer in read for part in layer], dim=-1)


def places_of(mask: Tensor) -> Tensor:
    """Return where in its sequence each place of a padded row (B N) stands: padding takes no place."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def look(
    attention: MultiHeadAttention,
    reading: Tensor,  # B T D
    key: Tensor,  # B H N K
    value: Tensor,  # B H N K
    view: View,
    *,
    record: bool,
) -> tuple[Tensor, Tensor | None]:  # B T D, and the weights B H T N if recorded
    """Let places look as far as the view and the attention's pattern, if it has one, allow.

    A whole sequence is regrouped by the pattern, so that it costs no more than the pattern sees. A single step, or what
    is recorded, is compared with everything there is, under a mask.
    """
    query, pattern = attention.asked(reading, view.places[:, -view.looking :]), attention.pattern
    if pattern is not None and view.in_a_row and not record:
        heads, weights = regrouped(pattern, query, key, value, view.mask[:, 0]), None
    else:
        allowed = view.allowed if pattern is None else view.allowed & sight(pattern, view)
        heads, weights = attend(query, key, value, allowed, compare=attention.compare, record=record)
    return attention.output(heads.transpose(1, 2).flatten(2)), weights


def regrouped(pattern: Pattern, query: Tensor, key: Tensor, value: Tensor, real: Tensor) -> Tensor:  # B H T K
    """Attend by a pattern to padded rows, in which some of N places are real (B N) and the last T look.

    Patterns count places, so padding in the middle is moved to the end, and back again.
    """
    order = (~real).to(torch.uint8).argsort(dim=1, stable=True)  # B N, the real ones first
    looking = query.shape[2]
    query = F.pad(query, (0, 0, key.shape[2] - looking, 0))
    query, key, value = (moved(part, order) for part in (query, key, value))
    seen = pattern.attend(query, key, value, real.gather(1, order), causal=True)
    return moved(seen, order.argsort(dim=1))[:, :, -looking:]


def moved(part: Tensor, order: Tensor) -> Tensor:
    """Return places (B H N K) in another order (B N)."""
    return part.gather(2, order[:, None, :, None].expand(-1, part.shape[1], -1, part.shape[3]))


def sight(pattern: Pattern, view: View) -> Tensor:  # B 1 T N
    """Say which of N places a pattern lets each of the last T see."""
    places, row = torch.unique(view.places[:, -view.looking :], return_inverse=True)
    table = torch.zeros(len(places), int(view.places.max()) + 1, dtype=torch.bool, device=places.device)
    for seen, place in zip(table, places.tolist(), strict=True):
        seen[pattern.back(place).to(places.device)] = True
    return table[row[:, :, None], view.places[:, None]][:, None]
