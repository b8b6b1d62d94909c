"""Small Transformers in which no two parameters are alike, and batches of random tokens to read with them."""

import torch
from torch import Tensor
from torch.nn import functional as F

from dragoman.model_config import build_model_config
from dragoman.models.transformer import Transformer
from dragoman.tokens import PAD, RESERVED_TOKENS

VOCABULARY = 13
SMALL = {"layers": 2, "width": 16, "inner_width": 24, "heads": 4, "dropout": 0.0, "share_output": False}


def small_model(dtype: torch.dtype = torch.float64, *, seed: int = 1, **how: object) -> Transformer:
    """Return a model whose norms and biases are random too: at ones and zeros they could be swapped unseen."""
    torch.manual_seed(seed)
    model = Transformer(build_model_config({**SMALL, **how}), VOCABULARY, VOCABULARY).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
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


def gradients(value: Tensor, model: Transformer) -> list[Tensor]:
    """Return the gradient of a value with respect to each parameter of the model."""
    return list(torch.autograd.grad(value, list(model.parameters())))
