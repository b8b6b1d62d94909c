"""Perplexity of a language model on a text, per token, word, character and byte.

The loss of the text in nats is divided by different counts. Models with different vocabularies can be compared per
word, character or byte, but not per token.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.errors import UserError
from dragoman.evaluation.score import Score

_MAX_NATS = 700.0  # exp of more overflows a float


@dataclass(frozen=True)
class TextLoss:
    """The loss of a text, and the windows it was computed in."""

    nats: float  # sum of minus the log-probabilities of all tokens
    tokens: int
    unknown: int  # of these, tokens that are not in the vocabulary
    window: int  # tokens in the context window
    stride: int  # tokens predicted per window; the others are context


@dataclass(frozen=True)
class Perplexity:
    """The scores of a language model on a text; lower is better."""

    loss: TextLoss
    characters: int
    words: int  # separated by whitespace
    bytes: int  # of UTF-8

    @classmethod
    def from_loss(cls, loss: TextLoss, text: str) -> "Perplexity":
        """Count the characters, words and bytes of the text."""
        if not loss.tokens or not text.strip():
            raise UserError("The text is empty; give a text to score.")
        return cls(loss, len(text), len(text.split()), len(text.encode("utf-8", "replace")))

    def __iter__(self) -> Iterator[Score]:
        values = {
            "bits per character": self.bits_per_character,
            "nats per character": self.nats_per_character,
            "bits per byte": self.loss.nats / math.log(2) / self.bytes,
            "perplexity per token": self.per_token,
            "nats per token": self.nats_per_token,
            "perplexity per word": self.per_word,
        }
        for number, (name, value) in enumerate(values.items()):
            signature = "" if number else self.signature  # it is the same for all
            yield Score(name, value, signature=signature, decimals=4 if value < 10 else 2)

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    @property
    def nats_per_character(self) -> float:
        """The loss per character in nats."""
        return self.loss.nats / self.characters

    @property
    def bits_per_character(self) -> float:
        """The loss per character in bits: the size of the text if compressed with the model."""
        return self.nats_per_character / math.log(2)

    @property
    def nats_per_token(self) -> float:
        """The loss per token in nats, as in training."""
        return self.loss.nats / self.loss.tokens

    @property
    def per_token(self) -> float:
        """The perplexity per token."""
        return math.exp(min(self.nats_per_token, _MAX_NATS))

    @property
    def per_word(self) -> float:
        """The perplexity per word; the loss of spaces and line ends is included."""
        return math.exp(min(self.loss.nats / self.words, _MAX_NATS))

    @property
    def signature(self) -> str:
        """Everything that the scores depend on besides the model."""
        loss = self.loss
        unknown = f"|unknown:{loss.unknown}" if loss.unknown else ""
        return (
            f"tokens:{loss.tokens}|characters:{self.characters}|words:{self.words}|bytes:{self.bytes}"
            f"|window:{loss.window}|stride:{loss.stride}{unknown}"
        )


def to_json(perplexity: Perplexity) -> dict[str, Any]:
    """Return all scores as a JSON object."""
    values = {score.name.replace(" ", "_"): score.value for score in perplexity}
    counts = {"characters": perplexity.characters, "words": perplexity.words, "bytes": perplexity.bytes}
    return {**values, **asdict(perplexity.loss), **counts, "signature": perplexity.signature}


def perplexity_table(perplexity: Perplexity) -> str:
    """Return a table of one score per line, followed by the signature."""
    width = max(len(score.name) for score in perplexity)
    lines = [f"{score.name:<{width}}  {score.number:>9}" for score in perplexity]
    return "\n".join([*lines, "", perplexity.signature])
