"""A guide that holds the place in the source for a decoder whose output has a token for each word, as a parser's has.

It counts the words that the output has dealt with, and adds to every place of the decoder what the encoder made of the
next one. Without it, a decoder has to learn to count before it can learn anything about words that stand far on in a
sentence. The paper's model has no guide, and needs none with enough data and time.

Shapes: B batch, S source positions, T target positions, D width, V vocabulary, W beam.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from dragoman.model_config import TransformerConfig
from dragoman.models.transducer import Memory, Source


class NextWord(Protocol):
    """What a Transformer asks at every place of its decoder."""

    def word_starts(self, source: Source) -> Tensor | None:
        """Return where each word of `source` (B S) begins (B S), END for words beyond the last; None if unneeded."""

    def count_words(self, token: Tensor) -> Tensor:
        """Return how many words tokens of the output (B T) deal with, each."""

    def next_word_vectors(self, memory: Memory, counts: Tensor) -> Tensor | float:
        """Return what to add (B T D) where so many words have been dealt with (B T)."""


class NoNextWordFeature(nn.Module):
    """Adds nothing."""

    def word_starts(self, source: Source) -> None:
        """Remember nothing."""
        del source

    def count_words(self, token: Tensor) -> Tensor:
        """Count nothing."""
        return torch.zeros_like(token)

    def next_word_vectors(self, memory: Memory, counts: Tensor) -> float:
        """Add nothing."""
        del memory, counts
        return 0.0


class NextWordFeature(nn.Module):
    """Shows the decoder the next word. Which tokens begin words, and which deal with one, is said once by `mark`."""

    starts_word: Tensor  # V of the source
    completes_word: Tensor  # V of the target

    def __init__(self, width: int, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width, bias=False)
        self.register_buffer("starts_word", torch.zeros(source_vocabulary, dtype=torch.long), persistent=False)
        self.register_buffer("completes_word", torch.zeros(target_vocabulary, dtype=torch.long), persistent=False)

    def set_word_tokens(self, starts_word: Tensor, completes_word: Tensor) -> None:
        """Say how many words each token of the source begins, and each of the target deals with (V)."""
        self.starts_word.copy_(starts_word)
        self.completes_word.copy_(completes_word)

    def word_starts(self, source: Source) -> Tensor:
        """Return where each word of `source` (B S) begins (B S), and the last token for words beyond the last."""
        begun = self.starts_word[source.values]
        last = source.lengths[:, None] - 1  # B 1
        length = source.mask.shape[1]
        # What begins no word is written to a column of its own, which nobody reads.
        number = torch.where(begun > 0, begun.cumsum(dim=1) - 1, length).clamp(max=length)
        places = torch.arange(length, device=source.device).expand_as(begun)
        found = last.repeat(1, length + 1).scatter(1, number, places)
        return found[:, :-1]

    def count_words(self, token: Tensor) -> Tensor:
        """Return how many words tokens of the output (B T) deal with, each."""
        return self.completes_word[token]

    def next_word_vectors(self, memory: Memory, counts: Tensor) -> Tensor:
        """Return what the encoder made of the next word (B T D), where so many have been dealt with (B T)."""
        assert memory.word_starts is not None, "the encoder of a guided model remembers where words begin"
        place = memory.word_starts.gather(1, counts.clamp(0, memory.word_starts.shape[1] - 1))  # B T
        states = memory.states.gather(1, place[..., None].expand(-1, -1, memory.states.shape[2]))
        found: Tensor = self.projection(states)
        return found


def build_next_word_feature(
    config: TransformerConfig, source_vocabulary: int, target_vocabulary: int
) -> NextWordFeature | NoNextWordFeature:
    """Build the guide that a recipe asks for."""
    return (
        NextWordFeature(config.width, source_vocabulary, target_vocabulary) if config.next_word else NoNextWordFeature()
    )
