"""A guide that holds the place in the source for a decoder whose output has a token for each word, as a parser's has.

It counts the words that the output has dealt with, and adds to every place of the decoder what the encoder made of the
next one. Without it, a decoder has to learn to count before it can learn anything about words that stand far on in a
sentence. The paper's model has no guide, and needs none with enough data and time.

Shapes: B batch, S source positions, T target positions, D width, V vocabulary, W beam.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from dragoman.model.transducer import Memory
from dragoman.recipe import Model
from dragoman.tokens import PAD


class Guide(Protocol):
    """What a Transformer asks at every place of its decoder."""

    def firsts(self, source: Tensor) -> Tensor | None:
        """Return where each word of `source` (B S) begins (B S), END for words beyond the last; None if unneeded."""

    def counted(self, token: Tensor) -> Tensor:
        """Return how many words tokens of the output (B T) deal with, each."""

    def ahead(self, memory: Memory, counts: Tensor) -> Tensor | float:
        """Return what to add (B T D) where so many words have been dealt with (B T)."""


class NoGuide(nn.Module):
    """Adds nothing."""

    def firsts(self, source: Tensor) -> None:
        """Remember nothing."""
        del source

    def counted(self, token: Tensor) -> Tensor:
        """Count nothing."""
        return torch.zeros_like(token)

    def ahead(self, memory: Memory, counts: Tensor) -> float:
        """Add nothing."""
        del memory, counts
        return 0.0


class WordGuide(nn.Module):
    """Shows the decoder the next word. Which tokens begin words, and which deal with one, is said once by `mark`."""

    begins: Tensor  # V of the source
    deals: Tensor  # V of the target

    def __init__(self, width: int, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width, bias=False)
        self.register_buffer("begins", torch.zeros(source_vocabulary, dtype=torch.long), persistent=False)
        self.register_buffer("deals", torch.zeros(target_vocabulary, dtype=torch.long), persistent=False)

    def mark(self, begins: Tensor, deals: Tensor) -> None:
        """Say how many words each token of the source begins, and each of the target deals with (V)."""
        self.begins.copy_(begins)
        self.deals.copy_(deals)

    def firsts(self, source: Tensor) -> Tensor:
        """Return where each word of `source` (B S) begins (B S), and the last token for words beyond the last."""
        begun = self.begins[source]
        last = (source != PAD).sum(dim=1, keepdim=True) - 1  # B 1
        # What begins no word is written to a column of its own, which nobody reads.
        number = torch.where(begun > 0, begun.cumsum(dim=1) - 1, source.shape[1]).clamp(max=source.shape[1])
        places = torch.arange(source.shape[1], device=source.device).expand_as(source)
        found = last.repeat(1, source.shape[1] + 1).scatter(1, number, places)
        return found[:, :-1]

    def counted(self, token: Tensor) -> Tensor:
        """Return how many words tokens of the output (B T) deal with, each."""
        return self.deals[token]

    def ahead(self, memory: Memory, counts: Tensor) -> Tensor:
        """Return what the encoder made of the next word (B T D), where so many have been dealt with (B T)."""
        assert memory.firsts is not None, "the encoder of a guided model remembers where words begin"
        place = memory.firsts.gather(1, counts.clamp(0, memory.firsts.shape[1] - 1))  # B T
        states = memory.states.gather(1, place[..., None].expand(-1, -1, memory.states.shape[2]))
        found: Tensor = self.projection(states)
        return found


def guide_of(how: Model, source_vocabulary: int, target_vocabulary: int) -> WordGuide | NoGuide:
    """Build the guide that a recipe asks for."""
    return WordGuide(how.width, source_vocabulary, target_vocabulary) if how.guide == "words" else NoGuide()
