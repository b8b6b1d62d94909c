"""A vocabulary for each sentence: the pieces that may translate it, so that the last product is a small one.

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
    """What each source piece may become, and what may always be said."""

    candidates: Tensor  # V N, of source pieces: target pieces
    common: Tensor  # K target pieces
    vocabulary_size: int  # in the target's vocabulary

    def allowed_tokens(self, source: Source) -> Tensor:
        """Return which pieces (B V) may be said in translating each sentence of `source` (B S)."""
        allowed = torch.zeros(len(source), self.vocabulary_size, dtype=torch.bool, device=source.device)
        allowed[:, :RESERVED_TOKENS] = True
        allowed[:, self.common.to(source.device)] = True
        return allowed.scatter_(1, self.candidates.to(source.device)[source.values].flatten(1), True)


@dataclass(frozen=True)
class ShortlistMemory(Memory):
    """What an encoder leaves, and which pieces may be said of it."""

    allowed: Tensor  # B V

    def keep(self, sentences: Tensor) -> "ShortlistMemory":
        """Return the memory of the given sentences (a tensor of row numbers) alone."""
        plain = super().keep(sentences)
        return ShortlistMemory(plain.states, plain.mask, self.allowed[sentences], word_starts=plain.word_starts)


class ShortlistedTransducer:
    """A transducer that says nothing but what is on each sentence's list."""

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
        assert isinstance(memory, ShortlistMemory), f"this memory has no list: {type(memory)}"
        logits, state = self.model.step(token, memory, state)
        return logits.masked_fill(~memory.allowed[:, None], -torch.inf), state
