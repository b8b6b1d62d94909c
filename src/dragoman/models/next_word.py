"""The next source word as an input of the decoder, for outputs with one token per source word, as a parser's.

The feature counts the source words that the output has completed and adds the encoder's output of the next one to every
decoder position. Without it, a decoder must learn to count before it can learn about words late in a sentence. It is
not part of the paper's model, which needs more data and time.

Shapes: B batch, S source positions, T target positions, D width, V vocabulary, W beam.
"""

import torch
from torch import Tensor, nn

from dragoman.model_config import TransformerConfig
from dragoman.models.transducer import Memory, Source


class NoNextWordFeature(nn.Module):
    """The feature switched off, with the methods of `NextWordFeature`: adds nothing."""

    def word_starts(self, source: Source) -> None:
        """Return None."""
        del source

    def count_words(self, token: Tensor) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(token)

    def next_word_vectors(self, memory: Memory, counts: Tensor) -> float:
        """Return 0."""
        del memory, counts
        return 0.0


class NextWordFeature(nn.Module):
    """The projected encoder output of the next word; `set_word_tokens` tells which tokens start or complete words."""

    starts_word: Tensor  # V of the source
    completes_word: Tensor  # V of the target

    def __init__(self, width: int, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width, bias=False)
        self.register_buffer("starts_word", torch.zeros(source_vocabulary, dtype=torch.long), persistent=False)
        self.register_buffer("completes_word", torch.zeros(target_vocabulary, dtype=torch.long), persistent=False)

    def set_word_tokens(self, starts_word: Tensor, completes_word: Tensor) -> None:
        """Set how many words each source token starts and each target token completes (V)."""
        self.starts_word.copy_(starts_word)
        self.completes_word.copy_(completes_word)

    def word_starts(self, source: Source) -> Tensor:
        """Return the first position of each word (B S), and the last position for words beyond the last."""
        starts = self.starts_word[source.values]
        last = (source.lengths[:, None] - 1).clamp(min=0)  # B 1
        length = source.mask.shape[1]
        # Tokens that start no word are written to an extra column, which is cut off.
        number = torch.where(starts > 0, starts.cumsum(dim=1) - 1, length).clamp(max=length)
        positions = torch.arange(length, device=source.device).expand_as(starts)
        first = last.repeat(1, length + 1).scatter(1, number, positions)
        return first[:, :-1]

    def count_words(self, token: Tensor) -> Tensor:
        """Return the number of words that each output token (B T) completes."""
        return self.completes_word[token]

    def next_word_vectors(self, memory: Memory, counts: Tensor) -> Tensor:
        """Return the projected encoder output of the next word (B T D) after so many completed words (B T)."""
        assert memory.word_starts is not None, "the memory has no word starts"
        position = memory.word_starts.gather(1, counts.clamp(0, memory.word_starts.shape[1] - 1))  # B T
        states = memory.states.gather(1, position[..., None].expand(-1, -1, memory.states.shape[2]))
        vectors: Tensor = self.projection(states)
        return vectors


def build_next_word_feature(
    config: TransformerConfig, source_vocabulary: int, target_vocabulary: int
) -> NextWordFeature | NoNextWordFeature:
    """Return the feature that a config selects."""
    return (
        NextWordFeature(config.width, source_vocabulary, target_vocabulary) if config.next_word else NoNextWordFeature()
    )
