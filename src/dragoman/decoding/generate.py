"""Text generation with a language model: draw a token, read it, draw the next.

A language model reads at most as many tokens as the sequences of its training had. When prompt and output exceed this
window, the window slides: its last half is read again from START, which leaves room for another half.

Shapes: B batch (here 1), T tokens, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from dragoman.decoding.hypothesis import output_log_probabilities, sum_dtype
from dragoman.decoding.sampling import draw_tokens, seeded_generator
from dragoman.decoding.sampling_options import SamplingOptions
from dragoman.models.transducer import Memory, Source, State, Transducer
from dragoman.tokens import END, START, UNKNOWN


class CausalTransducer(Transducer, Protocol):
    """A transducer that can read a whole prefix at once and continue from there."""

    def prefill(self, prefix: Tensor, memory: Memory) -> tuple[Tensor, State]:
        """Read `prefix` (B T); return the logits after its last token (B 1 V) and the state to continue from."""


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

    Each number of `sample` has its own random stream. `first_token_mask` (V) is True for tokens that may come first.
    `on_slide` is called each time the window slides.
    """
    tokens, context = list(prompt), ContextWindow(model, window, device)
    generator = seeded_generator(options.seed, sample, list(prompt))
    for number in range(length):
        if context.is_full(tokens):
            on_slide()
        values = output_log_probabilities(context.next_logits(tokens), first=number == 0)
        values[..., UNKNOWN] = -torch.inf
        if first_token_mask is not None and number == 0:
            values = values.masked_fill(~first_token_mask, -torch.inf)
        uniform = torch.rand(1, 1, generator=generator, dtype=torch.float64)
        token = int(draw_tokens(values, uniform.to(values.device, sum_dtype(values.device)), options))
        yield token, values[0, 0, token].item()
        if token == END:
            return
        tokens.append(token)


class ContextWindow:
    """The last part of a text, as far as the model can read back, with the decoder's state over it."""

    def __init__(self, model: CausalTransducer, size: int, device: torch.device) -> None:
        self.model, self.size, self.device = model, size, device
        no_source = torch.empty(1, 0, dtype=torch.long, device=device)
        self.memory = model.encode(Source.from_ids(no_source))
        self.state: State | None = None
        self.tokens_read = 0  # START included

    def is_full(self, tokens: Sequence[int]) -> bool:
        """Return whether the next token does not fit into the window."""
        return (len(tokens) + 1 if self.state is None else self.tokens_read + 1) > self.size

    @torch.inference_mode()
    def next_logits(self, tokens: Sequence[int]) -> Tensor:
        """Read the new tokens of a text, at least its last one; return the logits (1 1 V) of the next token."""
        if self.state is not None and not self.is_full(tokens):
            self.tokens_read += 1
            logits, self.state = self.model.step(self._batch_of_one(tokens[-1:]), self.memory, self.state)
            return logits
        context = tokens[-(self.size // 2) :] if self.is_full(tokens) else tokens
        self.tokens_read = len(context) + 1
        logits, self.state = self.model.prefill(self._batch_of_one([START, *context]), self.memory)
        return logits

    def _batch_of_one(self, tokens: Sequence[int]) -> Tensor:
        return torch.tensor([list(tokens)], device=self.device)
