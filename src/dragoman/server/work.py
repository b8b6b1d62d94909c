"""What a request costs, in units of work: one unit is one token of one hypothesis. Imports no torch.

The worker counts the tokens and refuses a request that costs too much before anything is decoded. The front process has
no tokenizer: it knows the sentences and their bytes, which bound the number of tokens from below and from above.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dragoman.errors import UserError

_MIN_TOKENS = 16  # that a sentence counts for at least, as in the engine's batches
_DETAILS_UNITS = 4  # per token whose attention is recorded, measured relative to a token of the beam
_GENERATED_UNITS = 4  # per generated token: one at a time, not in batches
_POSITIONS_PER_SECOND = 25  # of sound; a position counts as a token
_MIN_BYTES_PER_SECOND = 4000  # of sound, as in an MP3 file of 32 kbit/s
_DEFAULT_LENGTH = 200  # tokens that a language model generates


def search_work(tokens: Iterable[int], beam: int, described: int = 0) -> int:
    """Return the work of searching sentences with so many tokens, with details of `described` hypotheses each."""
    return sum(max(_MIN_TOKENS, count) for count in tokens) * (beam + _DETAILS_UNITS * described)


def generation_work(options: Mapping[str, Any], texts: int, prompt_tokens: int = 0) -> int:
    """Return the work of continuing so many texts with a language model."""
    tokens = texts * generated_length(options) * _GENERATED_UNITS + prompt_tokens
    return int(tokens * options.get("n_best", 1))


def generated_length(options: Mapping[str, Any]) -> int:
    """Return the maximum number of tokens that are generated."""
    return int(options.get("length", _DEFAULT_LENGTH))


def described_hypotheses(options: Mapping[str, Any]) -> int:
    """Return how many hypotheses of each sentence get details."""
    if not options.get("details"):
        return 0
    return int(options.get("n_best", 1)) if options.get("details_of") == "all" else 1


def least_search_work(sentences: Sequence[str], beam: int, options: Mapping[str, Any]) -> int:
    """Return the work that sentences need at least, however few tokens they have."""
    return search_work((0 for _ in sentences), beam, described_hypotheses(options))


def most_search_work(texts: Sequence[str], beam: int, options: Mapping[str, Any]) -> int:
    """Return about the work that texts need at most: a token is a byte at least, and a line a sentence at least."""
    tokens = (max(len(text.encode("utf-8", "replace")), _MIN_TOKENS * (text.count("\n") + 1)) for text in texts)
    return search_work(tokens, beam, described_hypotheses(options))


def recording_work(seconds: float, beam: int, options: Mapping[str, Any]) -> int:
    """Return the work of transcribing so many seconds of sound."""
    return search_work([math.ceil(_POSITIONS_PER_SECOND * seconds)], beam, described_hypotheses(options))


def most_recording_work(size: int, beam: int, options: Mapping[str, Any]) -> int:
    """Return about the work that a file of this size needs at most."""
    return recording_work(size / _MIN_BYTES_PER_SECOND, beam, options)


class TooMuchWork(UserError):
    """A request costs more than the server accepts."""

    def __init__(self, work: int, limit: int) -> None:
        super().__init__(
            f"The request needs {work:,} units of work (tokens times beam width, and details); this server accepts "
            f"{limit:,}. Send fewer or shorter texts or a shorter recording, or ask for a smaller beam, fewer "
            "alternatives, no details or a smaller length."
        )


def check_work(work: int, limit: int) -> None:
    """Refuse a request that costs too much."""
    if work > limit:
        raise TooMuchWork(work, limit)
