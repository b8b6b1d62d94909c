"""How well a language model predicts a text: by token, word, character and byte.

The model says how improbable it found each token; the sum, in nats, is the same whatever one divides it by. So models
with different vocabularies compare by word, character or byte, and never by token.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.errors import UserError

_HUGE = 1e7  # beyond it nobody wants all the digits
_MAX_NATS = 700.0  # beyond, an exponential is more than a float can hold


@dataclass(frozen=True)
class TextLoss:
    """How a text was predicted: all its surprise, and in windows of which kind."""

    nats: float  # the sum of minus the logarithm of every token's probability
    tokens: int
    unknown: int  # of them, those that stand for what the vocabulary cannot spell
    window: int  # tokens that the model sees at once
    stride: int  # tokens that are predicted in each window; the others are context


@dataclass(frozen=True)
class PerplexityMetric:
    """A number and what it is."""

    name: str
    value: float
    signature: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.number}" + (f"  {self.signature}" if self.signature else "")

    @property
    def number(self) -> str:
        """Return the value with as many decimals as people compare."""
        if self.value >= _HUGE:
            return f"{self.value:.2g}"
        return f"{self.value:.4f}" if self.value < 10 else f"{self.value:.2f}"


@dataclass(frozen=True)
class Perplexity:
    """What a model's prediction of a text comes to; lower is better."""

    loss: TextLoss
    characters: int
    words: int  # between blanks
    bytes: int  # of UTF-8

    @classmethod
    def from_loss(cls, loss: TextLoss, text: str) -> "Perplexity":
        """Count what the surprise is divided by."""
        if not loss.tokens or not text.strip():
            raise UserError("There is nothing to predict: the text is empty.")
        return cls(loss, len(text), len(text.split()), len(text.encode("utf-8", "replace")))

    def __iter__(self) -> Iterator[PerplexityMetric]:
        yield PerplexityMetric("bits per character", self.bits_per_character, self.signature)
        yield PerplexityMetric("nats per character", self.nats_per_character)
        yield PerplexityMetric("bits per byte", self.loss.nats / math.log(2) / self.bytes)
        yield PerplexityMetric("perplexity per token", self.per_token)
        yield PerplexityMetric("nats per token", self.nats_per_token)
        yield PerplexityMetric("perplexity per word", self.per_word)

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    @property
    def nats_per_character(self) -> float:
        """The surprise of a character, in natural units."""
        return self.loss.nats / self.characters

    @property
    def bits_per_character(self) -> float:
        """The surprise of a character: how many bits it would take to store it with the model at hand."""
        return self.nats_per_character / math.log(2)

    @property
    def nats_per_token(self) -> float:
        """The surprise of a token: the loss of training."""
        return self.loss.nats / self.loss.tokens

    @property
    def per_token(self) -> float:
        """Among how many tokens the model is, so to speak, undecided."""
        return math.exp(min(self.nats_per_token, _MAX_NATS))

    @property
    def per_word(self) -> float:
        """The same for words; what is between them counts, too."""
        return math.exp(min(self.loss.nats / self.words, _MAX_NATS))

    @property
    def signature(self) -> str:
        """What makes the numbers repeatable."""
        read = self.loss
        unknown = f"|unknown:{read.unknown}" if read.unknown else ""
        return (
            f"tokens:{read.tokens}|characters:{self.characters}|words:{self.words}|bytes:{self.bytes}"
            f"|window:{read.window}|stride:{read.stride}{unknown}"
        )


def to_json(found: Perplexity) -> dict[str, Any]:
    """Return all numbers as a plain dictionary."""
    measures = {measure.name.replace(" ", "_"): measure.value for measure in found}
    counts = {"characters": found.characters, "words": found.words, "bytes": found.bytes}
    return {**measures, **asdict(found.loss), **counts, "signature": found.signature}


def perplexity_table(found: Perplexity) -> str:
    """Write one number a line, and below what makes them repeatable."""
    width = max(len(measure.name) for measure in found)
    lines = [f"{measure.name:<{width}}  {measure.number:>9}" for measure in found]
    return "\n".join([*lines, "", found.signature])
