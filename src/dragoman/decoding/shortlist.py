"""Shortlists: a small output vocabulary per sentence, which makes the output projection cheap.

What a piece of the source may become is a table (`ibm1.py` makes it). A sentence's list depends on its own
pieces alone, so neighbours in a batch change nothing.

Shapes: B batch, S source positions, N likely pieces, V vocabulary, W beam.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.models.transducer import IncrementalDecoder, Memory, Source, State
from dragoman.tokens import RESERVED_TOKENS


@dataclass(frozen=True)
class Shortlist:
    """Target pieces that may translate each source piece, and those that are always allowed."""

    candidates: Tensor  # V N, target pieces for each source piece
    common: Tensor  # K target pieces
    vocabulary_size: int  # of the target

    def allowed_tokens(self, source: Source) -> Tensor:
        """Return a mask (B V) of the target pieces allowed for each sentence of `source` (B S)."""
        allowed = torch.zeros(len(source), self.vocabulary_size, dtype=torch.bool, device=source.device)
        allowed[:, :RESERVED_TOKENS] = True
        allowed[:, self.common.to(source.device)] = True
        return allowed.scatter_(1, self.candidates.to(source.device)[source.values].flatten(1), True)


@dataclass(frozen=True)
class ShortlistMemory(Memory):
    """The encoder's output with the mask of allowed target pieces."""

    allowed: Tensor  # B V

    def keep(self, sentences: Tensor) -> "ShortlistMemory":
        """Return the memory of the given sentences (a tensor of row indices)."""
        plain = super().keep(sentences)
        return ShortlistMemory(plain.states, plain.mask, self.allowed[sentences], word_starts=plain.word_starts)


class ShortlistedTransducer:
    """A transducer restricted to the shortlist of each sentence."""

    def __init__(self, model: IncrementalDecoder, shortlist: Shortlist) -> None:
        self.model, self.shortlist = model, shortlist

    def encode(self, source: Source) -> ShortlistMemory:
        """Read `source` (B S, padded with PAD)."""
        memory = self.model.encode(source)
        return ShortlistMemory(
            memory.states, memory.mask, self.shortlist.allowed_tokens(source), word_starts=memory.word_starts
        )

    def initial_state(self, memory: Memory) -> State:
        """Return the state before the first token."""
        return self.model.initial_state(memory)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(memory, ShortlistMemory), f"{type(memory)} has no shortlist"
        logits, state = self.model.step(token, memory, state)
        return logits.masked_fill(~memory.allowed[:, None], -torch.inf), state
