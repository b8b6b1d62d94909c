"""Going on with a text: a token is drawn, read in turn, and the next one drawn.

A language model sees as many tokens as it was trained on at once. Where prompt and output are more, the window slides:
the last half of it is read again, from START, as the stretches in training begin, and there is room for another half.

Shapes: B batch (here 1), T tokens, V vocabulary.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dragoman.decoding.hypothesis import output_log_probabilities, sum_dtype
from dragoman.decoding.sampling import check_sampling_options, draw_tokens
from dragoman.models.transducer import Memory, Source, State, Transducer
from dragoman.tokens import END, START, UNKNOWN


class CausalTransducer(Transducer, Protocol):
    """A transducer that can read a whole beginning at once and go on from there."""

    def prefill(self, prefix: Tensor, memory: Memory) -> tuple[Tensor, State]:
        """Read `prefix` (B T); return the logits after its last token (B 1 V), and the state to go on from."""


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are drawn: at a temperature (0: always the likeliest), from the likeliest few, by chance of a seed."""

    temperature: float = 0.8
    top_k: int = 0  # of so many tokens; 0: of all
    top_p: float = 1.0  # of the fewest that make up this share
    seed: int = 0

    def check(self) -> None:
        """Refuse numbers that cannot be drawn with."""
        check_sampling_options(self.temperature or 1.0, self.top_k, self.top_p, 1)


def generate_tokens(
    model: CausalTransducer,
    prompt: Sequence[int],
    options: SamplingOptions,
    *,
    length: int,
    window: int,
    device: torch.device,
    sample: int = 0,
    first_token_mask: Tensor | None = None,
    on_slide: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, float]]:
    """Yield up to `length` tokens that follow `prompt`, each with its log-probability; the last may be END.

    Different numbers of `sample` draw differently. `opening` (V) says which tokens may come first, if not all may.
    `slid` is called each time that the window slides.
    """
    options.check()
    tokens, page = list(prompt), ContextWindow(model, window, device)
    chances = _random_stream(options.seed, sample, prompt)
    for number in range(length):
        if page.is_full(tokens):
            on_slide()
        values = output_log_probabilities(page.next_logits(tokens), first=number == 0)
        values[..., UNKNOWN] = -torch.inf
        if first_token_mask is not None and number == 0:
            values = values.masked_fill(~first_token_mask, -torch.inf)
        token = choose_token(values, next(chances), options)
        yield token, values[0, 0, token].item()
        if token == END:
            return
        tokens.append(token)


class ContextWindow:
    """The part of a text that a model has before its eyes."""

    def __init__(self, model: CausalTransducer, size: int, device: torch.device) -> None:
        self.model, self.size, self.device = model, size, device
        self.memory = model.encode(
            Source.from_ids(torch.empty(1, 0, dtype=torch.long, device=device))
        )  # there is no source
        self.state: State | None = None
        self.tokens_read = 0  # tokens read, START included

    def is_full(self, tokens: Sequence[int]) -> bool:
        """Say whether there is no room for what is to be read next."""
        return (len(tokens) + 1 if self.state is None else self.tokens_read + 1) > self.size

    @torch.inference_mode()
    def next_logits(self, tokens: Sequence[int]) -> Tensor:
        """Read what is new of a text, at least its last token; return the logits (1 1 V) of what comes next."""
        if self.state is not None and not self.is_full(tokens):
            self.tokens_read += 1
            logits, self.state = self.model.step(self._batch_of_one(tokens[-1:]), self.memory, self.state)
            return logits
        kept = tokens[-(self.size // 2) :] if self.is_full(tokens) else tokens
        self.tokens_read = len(kept) + 1
        logits, self.state = self.model.prefill(self._batch_of_one([START, *kept]), self.memory)
        return logits

    def _batch_of_one(self, tokens: Sequence[int]) -> Tensor:
        """Return tokens as a batch of one."""
        return torch.tensor([list(tokens)], device=self.device)


def choose_token(values: Tensor, uniform: float, options: SamplingOptions) -> int:
    """Choose a token by log-probabilities (1 1 V) and a number between 0 and 1."""
    if not options.temperature:
        return int(values.argmax())
    by = torch.tensor([[uniform]], dtype=sum_dtype(values.device), device=values.device)
    return int(draw_tokens(values, by, options.temperature, options.top_k, options.top_p))


def _random_stream(seed: int, sample: int, prompt: Sequence[int]) -> Iterator[float]:
    """Yield numbers in [0, 1): the same for the same seed, sample and prompt."""
    name = repr((seed, sample, list(prompt)))
    stream = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
    generator = torch.Generator().manual_seed(stream)
    while True:
        yield torch.rand((), generator=generator, dtype=torch.float64).item()
