"""Small models with random weights: a recurrence whose every output can be listed, and a real Transformer."""

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.model_config import build_model_config
from dragoman.models.transducer import Memory, Source
from dragoman.models.transformer import Transformer
from dragoman.tokens import END, PAD, RESERVED_TOKENS

WIDTH = 5


@dataclass(frozen=True)
class Hidden:
    vectors: Tensor  # B W D

    def reorder(self, parents: Tensor) -> "Hidden":
        return Hidden(self.vectors.gather(1, parents[..., None].expand(-1, -1, WIDTH)))

    def keep(self, sentences: Tensor) -> "Hidden":
        return Hidden(self.vectors[sentences])


class Toy:
    """Logits that depend on the source and on every token of the prefix."""

    def __init__(self, seed: int, vocabulary: int = 6, *, sharpness: float = 2.0, end_bias: float = 0.0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def matrix(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.source, self.target = matrix(vocabulary, WIDTH), matrix(vocabulary, WIDTH)
        self.turn, self.output = matrix(WIDTH, WIDTH), sharpness * matrix(WIDTH, vocabulary)
        self.bias = torch.zeros(vocabulary, dtype=torch.float64)
        self.bias[END] = end_bias

    def encode(self, source: Source) -> Memory:
        mask = source.mask
        places = torch.arange(1, mask.shape[1] + 1, dtype=torch.float64)[:, None]
        return Memory(self.source[source.values] * places.cos() * mask[..., None], mask)

    def initial_state(self, memory: Memory) -> Hidden:
        # One position after the other: a vectorised sum may round differently when padding is added.
        total = torch.zeros(len(memory.mask), WIDTH, dtype=torch.float64)
        for place in range(memory.mask.shape[1]):
            total = total + memory.states[:, place]
        return Hidden(total[:, None])

    def step(self, token: Tensor, memory: Memory, state: Hidden) -> tuple[Tensor, Hidden]:
        moved = (state.vectors[..., :, None] * self.turn).sum(dim=-2)
        after = Hidden((moved + self.target[token]).tanh())
        return (after.vectors[..., :, None] * self.output).sum(dim=-2) + self.bias, after

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        state, logits = self.initial_state(memory), []
        for place in range(prefix.shape[1]):
            here, state = self.step(prefix[:, place : place + 1], memory, state)
            logits.append(here)
        return torch.cat(logits, dim=1)


def padded(rows: list[list[int]], longest: int = 0) -> Tensor:
    longest = max(longest, *(len(row) for row in rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def small_transformer(vocabulary: int = 200, *, sharpness: float = 4.0, **changes: object) -> Transformer:
    """Return a Transformer with random parameters that is sure of its choices and ends now and then."""
    torch.manual_seed(1)
    settings = {
        "layers": 2,
        "width": 32,
        "inner_width": 64,
        "heads": 4,
        "norm": "pre",
        "share_output": False,
        **changes,
    }
    model = Transformer(build_model_config(settings), vocabulary, vocabulary).eval()
    last = model.decoder_norm if settings["norm"] == "pre" else model.decoder[-1].feed_forward_residual.norm
    with torch.no_grad():
        last.weight.mul_(sharpness)
        last.bias.copy_(
            model.output_weight[END] / model.output_weight[END].square().sum()
        )  # raises the logit of END by one
    return model


def sentences(count: int, *, vocabulary: int = 200, longest: int = 18, seed: int = 1) -> list[list[int]]:
    generator = random.Random(seed)
    lengths = (generator.randint(1, longest) for _ in range(count))
    return [[*(generator.randrange(RESERVED_TOKENS, vocabulary) for _ in range(length)), END] for length in lengths]
