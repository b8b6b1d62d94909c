"""The decoder-only Transformer: source and target are one sequence, read by one causal stack.

A layer is an encoder's (self-attention and feed-forward), but every place looks only at itself and at those before it,
in the source as in the target. Target place t of a sentence whose source has n tokens is place n + t of the sequence,
however far its row is padded. Without a source it is a language model.

Shapes: B batch, S source positions, T target positions, N = S + T, D width, H heads, K width of one head, L layers,
V vocabulary, W beam.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from dragoman.model.attention import causal_mask
from dragoman.model.layers import Dropout, Embedding
from dragoman.model.transducer import Attention, Memory, State
from dragoman.model.transformer import EncoderLayer, KeyValue, initialise, picked, positions_of
from dragoman.recipe import Model
from dragoman.tokens import PAD


@dataclass(frozen=True)
class Line:
    """The decoder's state: all that was read of a sentence, by whichever hypothesis, and who descends from what.

    Hypotheses share what they have in common, the source above all, so a beam is reordered by renaming: only `mask`
    changes. What no hypothesis descends from any more stays, and is not looked at.
    """

    mask: Tensor  # B W N, True where hypothesis w of sentence b descends from what was read there
    read: list[KeyValue]  # a layer each: B H N K, the source first, then W places a step
    places: Tensor  # B, where in its sequence a sentence's next token stands

    def reorder(self, parents: Tensor) -> "Line":
        """Let hypothesis w of sentence b continue hypothesis parents[b, w] (B W)."""
        return replace(self, mask=self.mask.gather(1, parents[..., None].expand(-1, -1, self.mask.shape[2])))

    def keep(self, sentences: Tensor) -> "Line":
        """Forget all sentences but the given ones."""
        return Line(self.mask[sentences], picked(self.read, sentences), self.places[sentences])


class Joined(nn.Module):
    """The decoder-only Transformer; a `Transducer`.

    Its memory holds the keys and values of the source in every layer, side by side along D: B S L(HK + HK).
    """

    def __init__(self, how: Model, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        assert not how.share_embeddings or source_vocabulary == target_vocabulary, (
            f"{source_vocabulary} source and {target_vocabulary} target pieces cannot share one embedding"
        )
        self.source_embedding = Embedding(source_vocabulary, how.width)
        self.target_embedding = (
            self.source_embedding if how.share_embeddings else Embedding(target_vocabulary, how.width)
        )
        self.projection = None if how.share_output else nn.Linear(how.width, target_vocabulary, bias=False)
        self.positions = positions_of(how)
        self.dropout = Dropout(how.dropout)
        self.layers = nn.ModuleList(EncoderLayer(how) for _ in range(how.layers))
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
        return Attention(encoder, [each[..., length:] for each in weights], [each[..., :length] for each in weights])

    def read(self, source: Tensor, *, record: bool = False) -> tuple[Memory, list[Tensor]]:
        """Run the stack over the source; the second part holds each layer's weights (B H S S) if recorded."""
        mask = source != PAD  # B S
        length = source.shape[1]
        nothing = self.output.new_zeros(len(source), 0, sum(self.widths))
        if not length:
            return Memory(nothing, mask), []
        x = self.dropout(self.source_embedding(source) + self.positions(0, length))  # B S D
        allowed = causal_mask(length, source.device) & mask[:, None, None]  # B 1 S S
        _, read, weights = self.run(x, self.unpacked(Memory(nothing, mask[:, :0])), allowed, record=record)
        return Memory(packed(read), mask), weights

    def write(self, prefix: Tensor, memory: Memory, *, record: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Run the stack over the target; the second part holds each layer's weights (B H T N) if recorded."""
        batch, length = prefix.shape
        x = self.dropout(self.target_embedding(prefix) + self.positions_after(memory, length))  # B T D
        own = causal_mask(length, prefix.device)[None, None].expand(batch, -1, -1, -1)
        allowed = torch.cat([memory.mask[:, None, None].expand(-1, -1, length, -1), own], dim=-1)  # B 1 T N
        x, _, weights = self.run(x, self.unpacked(memory), allowed, record=record)
        return self.norm(x), weights

    def run(
        self, x: Tensor, before: Iterable[KeyValue], allowed: Tensor, *, record: bool = False
    ) -> tuple[Tensor, list[KeyValue], list[Tensor]]:
        """Run places (B T D) through all layers, after what each layer has read before (B H S K).

        Return them, what each layer has read with them (B H N K), and its weights (B H T N) if recorded.
        """
        read: list[KeyValue] = []
        recorded: list[Tensor] = []
        for layer, (keys, values) in zip(cast(Iterable[EncoderLayer], self.layers), before, strict=True):
            reading = layer.around_attention.enter(x)
            key, value = layer.attention.project(reading)
            read.append((torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)))
            seen, weights = layer.attention.look(reading, *read[-1], allowed, record=record)
            x = layer.around_attention.leave(x, seen)
            x = layer.around_feed_forward.leave(x, layer.feed_forward(layer.around_feed_forward.enter(x)))
            recorded += [weights] if weights is not None else []
        return x, read, recorded

    def start(self, memory: Memory) -> Line:
        """Return the state before the first token: one hypothesis a sentence, which has read the source."""
        return Line(memory.mask[:, None], self.unpacked(memory), memory.mask.sum(dim=1))

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, Line]:  # noqa: ARG002
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, Line), f"this is the state of another model: {type(state)}"
        batch, beam = token.shape
        itself = torch.eye(beam, dtype=torch.bool, device=token.device).expand(batch, -1, -1)
        mask = torch.cat([state.mask, itself], dim=2)  # B W N
        x = self.target_embedding(token) + self.table(state.places)[:, None]  # B W D
        x, read, _ = self.run(x, state.read, mask[:, None])
        return self.norm(x) @ self.output.T, Line(mask, read, state.places + 1)

    def positions_after(self, memory: Memory, length: int) -> Tensor:
        """Return the vectors (B T D) of the places that follow each sentence's source."""
        first = memory.mask.sum(dim=1)[:, None]  # B 1
        return self.table(first + torch.arange(length, device=first.device))

    def table(self, places: Tensor) -> Tensor:
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
        parts = [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in states.split(self.widths, dim=-1)]
        return list(zip(parts[0::2], parts[1::2], strict=True))


def packed(read: list[KeyValue]) -> Tensor:
    """Lay keys and values (B H S K) of all layers side by side (B S L(HK + HK))."""
    return torch.cat([part.transpose(1, 2).flatten(2) for layer in read for part in layer], dim=-1)
