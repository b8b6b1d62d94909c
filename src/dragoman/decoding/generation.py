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

from dragoman.decoding.hypothesis import log_probabilities, sum_type
from dragoman.decoding.sampling import check, drawn
from dragoman.model.transducer import Memory, State, Transducer
from dragoman.tokens import END, START, UNKNOWN


class LanguageModel(Transducer, Protocol):
    """A transducer that can read a whole beginning at once and go on from there."""

    def after(self, prefix: Tensor, memory: Memory) -> tuple[Tensor, State]:
        """Read `prefix` (B T); return the logits after its last token (B 1 V), and the state to go on from."""


@dataclass(frozen=True)
class Draw:
    """How tokens are drawn: at a temperature (0: always the likeliest), from the likeliest few, by chance of a seed."""

    temperature: float = 0.8
    top_k: int = 0  # of so many tokens; 0: of all
    top_p: float = 1.0  # of the fewest that make up this share
    seed: int = 0

    def check(self) -> None:
        """Refuse numbers that cannot be drawn with."""
        check(self.temperature or 1.0, self.top_k, self.top_p, 1)


def going_on(
    model: LanguageModel,
    prompt: Sequence[int],
    how: Draw,
    *,
    length: int,
    window: int,
    device: torch.device,
    sample: int = 0,
    opening: Tensor | None = None,
    slid: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, float]]:
    """Yield up to `length` tokens that follow `prompt`, each with its log-probability; the last may be END.

    Different numbers of `sample` draw differently. `opening` (V) says which tokens may come first, if not all may.
    `slid` is called each time that the window slides.
    """
    how.check()
    tokens, page = list(prompt), Page(model, window, device)
    chances = chance(how.seed, sample, prompt)
    for number in range(length):
        if page.slides(tokens):
            slid()
        values = log_probabilities(page.turned_to(tokens), first=number == 0)
        values[..., UNKNOWN] = -torch.inf
        if opening is not None and number == 0:
            values = values.masked_fill(~opening, -torch.inf)
        token = chosen(values, next(chances), how)
        yield token, values[0, 0, token].item()
        if token == END:
            return
        tokens.append(token)


class Page:
    """The part of a text that a model has before its eyes."""

    def __init__(self, model: LanguageModel, window: int, device: torch.device) -> None:
        self.model, self.window, self.device = model, window, device
        self.memory = model.encode(torch.empty(1, 0, dtype=torch.long, device=device))  # there is no source
        self.state: State | None = None
        self.seen = 0  # tokens read, START included

    def slides(self, tokens: Sequence[int]) -> bool:
        """Say whether there is no room for what is to be read next."""
        return (len(tokens) + 1 if self.state is None else self.seen + 1) > self.window

    @torch.inference_mode()
    def turned_to(self, tokens: Sequence[int]) -> Tensor:
        """Read what is new of a text, at least its last token; return the logits (1 1 V) of what comes next."""
        if self.state is not None and not self.slides(tokens):
            self.seen += 1
            logits, self.state = self.model.step(self.row(tokens[-1:]), self.memory, self.state)
            return logits
        kept = tokens[-(self.window // 2) :] if self.slides(tokens) else tokens
        self.seen = len(kept) + 1
        logits, self.state = self.model.after(self.row([START, *kept]), self.memory)
        return logits

    def row(self, tokens: Sequence[int]) -> Tensor:
        """Return tokens as a batch of one."""
        return torch.tensor([list(tokens)], device=self.device)


def chosen(values: Tensor, number: float, how: Draw) -> int:
    """Choose a token by log-probabilities (1 1 V) and a number between 0 and 1."""
    if not how.temperature:
        return int(values.argmax())
    by = torch.tensor([[number]], dtype=sum_type(values.device), device=values.device)
    return int(drawn(values, by, how.temperature, how.top_k, how.top_p))


def chance(seed: int, sample: int, prompt: Sequence[int]) -> Iterator[float]:
    """Yield numbers in [0, 1): the same for the same seed, sample and prompt."""
    name = repr((seed, sample, list(prompt)))
    stream = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
    generator = torch.Generator().manual_seed(stream)
    while True:
        yield torch.rand((), generator=generator, dtype=torch.float64).item()
