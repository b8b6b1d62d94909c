"""The one protocol that training, search, the viewer and the laboratory are written against.

Shapes: B batch, S source positions, T target positions, D width, H heads, V vocabulary, W beam.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Memory:
    """What an encoder leaves for the decoder to read."""

    states: Tensor  # B S D
    mask: Tensor  # B S, True where a source token stands
    word_starts: Tensor | None = field(
        default=None, kw_only=True
    )  # B S, where each word begins, if a guide asks for it

    def keep(self, sentences: Tensor) -> "Memory":
        """Return the memory of the given sentences (a tensor of row numbers) alone."""
        firsts = None if self.word_starts is None else self.word_starts[sentences]
        return Memory(self.states[sentences], self.mask[sentences], word_starts=firsts)


@dataclass(frozen=True)
class AttentionMaps:
    """Every weight of one reading, a tensor a layer: what the viewer shows."""

    encoder: list[Tensor]  # B H S S
    decoder: list[Tensor]  # B H T T
    cross: list[Tensor]  # B H T S


class State(Protocol):
    """What a decoder remembers of the prefixes it has read: W of them for each of B sentences."""

    def reorder(self, parents: Tensor) -> Self:
        """Return the state in which hypothesis w of sentence b continues hypothesis parents[b, w]."""
        ...

    def keep(self, sentences: Tensor) -> Self:
        """Return the state of the given sentences (a tensor of row numbers) alone."""
        ...


def gather_parents(values: Tensor, parents: Tensor) -> Tensor:
    """Return what hypotheses (B W …) leave to those that continue them: parents[b, w] (B W) to hypothesis w."""
    sentence = torch.arange(len(parents), device=parents.device)[:, None]
    return values[sentence, parents]


class Transducer(Protocol):
    """A model that reads one sequence of tokens and writes another."""

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V D) whose product with a hidden vector gives the logits."""
        ...

    def encode(self, source: Tensor) -> Memory:
        """Read `source` (B S, padded with PAD)."""
        ...

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden vectors (B T D) over `prefix` (B T)."""
        ...

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the logits (B T V) of the token after each position of `prefix` (B T)."""
        ...

    def initial_state(self, memory: Memory) -> State:
        """Return the state before the first token."""
        ...

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        ...

    def attention_maps(self, source: Tensor, prefix: Tensor) -> AttentionMaps:
        """Return the weights with which `source` and `prefix` are read."""
        ...


class Network(Transducer, Protocol):
    """A transducer with weights: an `nn.Module`, of which no more is asked than this."""

    training: bool

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield what is learned."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield what is learned, by name."""
        ...

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what is not learned, by name."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """Return what is to be saved."""
        ...

    def train(self) -> Self:
        """Switch dropout on."""
        ...

    def eval(self) -> Self:
        """Switch dropout off."""
        ...

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        ...
