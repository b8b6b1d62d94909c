"""The options of sampling and their defaults, which the command line, the server and Python share."""

import math
from dataclasses import dataclass

from dragoman.errors import UserError


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are drawn. Options out of range raise a `UserError`."""

    temperature: float = 1.0  # below 1 favours likely tokens; 0 always takes the likeliest
    top_k: int = 0  # draw from the k likeliest tokens; 0: from all
    top_p: float = 1.0  # draw from the fewest likeliest tokens whose probabilities add up to p
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"temperature must be 0 or more, got {self.temperature}.")
        if self.top_k < 0:
            raise UserError(f"top_k must be 1 or more, or 0 for all tokens, got {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p must be above 0 and at most 1, got {self.top_p}.")


OUTPUT_SAMPLING = SamplingOptions()  # of outputs for a source: the model's own distribution
TEXT_SAMPLING = SamplingOptions(temperature=0.8)  # of language models: text drawn at 1 loses coherence
