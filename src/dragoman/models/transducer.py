"""The protocol of all models: training, search, viewer and laboratory are written against it.

Shapes: B batch, S source positions, T target positions, D width, H heads, V vocabulary, W beam.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from dragoman.tokens import token_mask

FRAMES_PER_POSITION = 4  # frames of a signal that a front end turns into one position of the encoder


@dataclass(frozen=True)
class Source:
    """A padded batch of what an encoder reads: token ids, or the frames of a signal."""

    values: Tensor  # B S, ids; or B S F, frames, zero at padding
    mask: Tensor  # B S, False at padding

    @classmethod
    def from_ids(cls, ids: Tensor) -> "Source":
        """Return the source of token ids (B S) padded with PAD."""
        return cls(ids, token_mask(ids))

    @classmethod
    def from_frames(cls, frames: Tensor, lengths: Tensor) -> "Source":
        """Return the source of frames (B S F) of which the first `lengths` (B) of each row are not padding."""
        return cls(frames, torch.arange(frames.shape[1], device=frames.device) < lengths[:, None])

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, rows: slice | Tensor) -> "Source":
        """Return some sequences of the batch."""
        return Source(self.values[rows], self.mask[rows])

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.mask.device

    @property
    def lengths(self) -> Tensor:
        """The number of tokens or frames (B) that are not padding."""
        return self.mask.sum(dim=1)

    @property
    def positions(self) -> Tensor:
        """The number of positions (B) that an encoder makes of them."""
        return self.lengths if self.values.dim() == 2 else -(-self.lengths // FRAMES_PER_POSITION)

    def to(self, device: torch.device) -> "Source":
        """Return the source on a device."""
        return Source(self.values.to(device), self.mask.to(device))


@dataclass(frozen=True)
class Memory:
    """The output of an encoder."""

    states: Tensor  # B S D
    mask: Tensor  # B S, False at padding
    word_starts: Tensor | None = field(default=None, kw_only=True)  # B S, the first position of each word, if needed

    def keep(self, sentences: Tensor) -> "Memory":
        """Return the memory of the given sentences (row indices)."""
        word_starts = None if self.word_starts is None else self.word_starts[sentences]
        return Memory(self.states[sentences], self.mask[sentences], word_starts=word_starts)

    def masked_states(self) -> Tensor:
        """Return the states with zeros at padding: an attention weight of zero would not stop a NaN."""
        return self.states.masked_fill(~self.mask[..., None], 0.0)


@dataclass(frozen=True)
class AttentionMaps:
    """The attention weights of a forward pass, one tensor per layer."""

    encoder: list[Tensor]  # B H S S
    decoder: list[Tensor]  # B H T T
    cross: list[Tensor]  # B H T S


class State(Protocol):
    """The state of a decoder: of W hypotheses for each of B sentences."""

    def reorder(self, parents: Tensor) -> Self:
        """Return the state in which hypothesis w of sentence b continues hypothesis parents[b, w]."""
        ...

    def keep(self, sentences: Tensor) -> Self:
        """Return the state of the given sentences (row indices)."""
        ...


def gather_parents(values: Tensor, parents: Tensor) -> Tensor:
    """Return the values (B W …) of the hypotheses that are continued: row parents[b, w] (B W) for hypothesis w."""
    sentence = torch.arange(len(parents), device=parents.device)[:, None]
    return values[sentence, parents]


class IncrementalDecoder(Protocol):
    """What search and sampling need: encode a source, then decode one token per step."""

    def encode(self, source: Source) -> Memory:
        """Encode a batch of sources."""
        ...

    def initial_state(self, memory: Memory) -> State:
        """Return the state before the first token."""
        ...

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """Feed one more token to each of W hypotheses (B W); return the logits of the next token (B W V)."""
        ...


class Transducer(IncrementalDecoder, Protocol):
    """An encoder-decoder model: an `nn.Module` that maps one sequence to another."""

    training: bool

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V D) that maps hidden states to logits."""
        ...

    @property
    def output_bias(self) -> Tensor | None:
        """The bias (V) that is added to the logits; None if there is none."""
        ...

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden states (B T D) over `prefix` (B T)."""
        ...

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the logits (B T V) of the token after each position of `prefix` (B T)."""
        ...

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:
        """Return the attention weights of every layer over `source` and `prefix`."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters with their names."""
        ...

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the buffers with their names."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """Return the tensors to save."""
        ...

    def train(self) -> Self:
        """Switch to training mode (dropout on)."""
        ...

    def eval(self) -> Self:
        """Switch to evaluation mode (dropout off)."""
        ...

    def to(self, device: torch.device) -> Self:
        """Move the model to a device."""
        ...
