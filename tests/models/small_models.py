"""Small models in which no two parameters are alike, and batches of random tokens to read with them."""

import torch
from torch import Tensor
from torch.nn import functional as F

from dragoman.model_config import applicable_settings, build_model_config
from dragoman.models.architectures import build_model
from dragoman.models.layers import BatchNorm
from dragoman.models.next_word import NextWordFeature
from dragoman.models.transducer import Transducer
from dragoman.tokens import PAD, RESERVED_TOKENS

VOCABULARY = 13
SMALL = {"layers": 2, "width": 16, "inner_width": 24, "heads": 4, "dropout": 0.0, "share_output": False}


def small_model(dtype: torch.dtype = torch.float64, *, architecture: str = "transformer", **settings: object):
    """Return a model whose norms, biases and statistics are random too: ones and zeros could be swapped unseen."""
    torch.default_generator.manual_seed(1)
    settings = {**applicable_settings(SMALL, architecture), **settings, "architecture": architecture}
    model = build_model(build_model_config(settings), VOCABULARY, VOCABULARY).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    for part in model.modules():
        if isinstance(part, BatchNorm):
            part.running_mean.uniform_(-0.5, 0.5)
            part.running_variance.uniform_(0.5, 2.0)
        if isinstance(part, NextWordFeature):
            tokens = torch.arange(VOCABULARY)
            part.set_word_tokens(((tokens >= 5) & (tokens < 9)).long(), (tokens >= 9).long())
    return model


def random_rows(lengths: list[int], *, longest: int = 0, seed: int = 1) -> Tensor:
    """Return rows of random words of these lengths (B S), filled with PAD."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(RESERVED_TOKENS, VOCABULARY, (len(lengths), max(longest, *lengths)), generator=generator)
    beyond = torch.arange(words.shape[1]) >= torch.tensor(lengths)[:, None]
    return words.masked_fill(beyond, PAD)


def padded_by(rows: Tensor, more: int) -> Tensor:
    """Return rows with so many more columns of PAD."""
    return F.pad(rows, (0, more), value=PAD)


def gradients(value: Tensor, model: Transducer) -> list[Tensor]:
    """Return the gradient of a value with respect to each parameter of the model."""
    return list(torch.autograd.grad(value, list(model.parameters()), materialize_grads=True))
