"""Layers that the architectures share: embeddings, feed-forward, dropout, norms, residuals, initialisation."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman import native
from dragoman.model_config import ModelConfig
from dragoman.models.transducer import Memory
from dragoman.tokens import PAD

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class Embedding(nn.Module):
    """Section 3.4: one learned vector per token, multiplied by √d_model; zeros for padding."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))  # V D
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the vectors (… D) of token ids (…)."""
        vectors = F.embedding(tokens, self.weight) * math.sqrt(self.weight.shape[1])
        return vectors.masked_fill((tokens == PAD)[..., None], 0.0)


class VocabularyModel(nn.Module, ABC):
    """The embeddings and the output projection that all architectures have (section 3.4)."""

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        assert not config.share_embeddings or source_vocabulary == target_vocabulary, (
            f"{source_vocabulary} source and {target_vocabulary} target tokens cannot share one embedding"
        )
        self.source_embedding = Embedding(source_vocabulary, config.width)
        self.target_embedding = (
            self.source_embedding if config.share_embeddings else Embedding(target_vocabulary, config.width)
        )
        self.projection = None if config.share_output else nn.Linear(config.width, target_vocabulary, bias=False)

    @property
    def output_weight(self) -> Tensor:
        """The matrix (V D) that maps hidden states to logits; it may be the target embedding."""
        return self.target_embedding.weight if self.projection is None else self.projection.weight

    @property
    def output_bias(self) -> Tensor | None:
        """The bias (V) that is added to the logits; None if there is none."""
        return None if self.projection is None else self.projection.bias

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits (… V) of hidden states (… D)."""
        logits = hidden @ self.output_weight.T
        return logits if self.output_bias is None else logits + self.output_bias

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the logits (B T V) of the token after each position of `prefix` (B T)."""
        return self.logits(self.hidden_states(prefix, memory))

    @abstractmethod
    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden states (B T D) over `prefix` (B T)."""


_dropout_generator: ContextVar[torch.Generator | None] = ContextVar("dropout_generator", default=None)


@contextmanager
def dropout_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Make dropout in this block and thread depend on the seed only."""
    token = _dropout_generator.set(torch.Generator(device).manual_seed(seed))
    try:
        yield
    finally:
        _dropout_generator.reset(token)


class Dropout(nn.Module):
    """Dropout from random bytes, since drawing Bernoulli numbers would take a fifth of the training time.

    On the CPU the masks are the same with and without the native kernels, so a run may be resumed on either.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Zero elements at random in training and scale the others up; add `residual` if it is given."""
        dropped = round(self.probability * 256) if self.training else 0  # of the 256 values of a byte
        if dropped and native.is_convertible(x) and (residual is None or native.is_supported(residual)):
            output = native.dropout(x.float(), residual, dropped, _draw_seed())
            return output.to(x.dtype) if residual is None else output  # bfloat16 is added to a float32 residual
        if dropped:
            keep = _draw_mask(x.numel(), dropped, x.device).view_as(x)
            scaled = x * (keep * native.dropout_scale(dropped))  # in float32: bfloat16 would round the factor
            return scaled.to(x.dtype) if residual is None else (residual + scaled).to(torch.result_type(residual, x))
        return x if residual is None else residual + x


def _draw_mask(count: int, dropped: int, device: torch.device) -> Tensor:
    """Return which elements are kept: on the CPU the same as with the native kernels, from the same seed."""
    if device.type == "cpu":
        return native.dropout_mask(count, dropped, _draw_seed())
    return random_bytes(count, device) > dropped - 1  # 256 is not a byte


def _draw_seed() -> int:
    """Return 63 random bits."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=_dropout_generator.get()))


def random_bytes(count: int, device: torch.device) -> Tensor:
    """Return uniform random bytes, eight per number drawn."""
    words = torch.empty(-(-count // 8), dtype=torch.int64, device=device)
    return words.random_(-(2**63), None, generator=_dropout_generator.get()).view(torch.uint8)[:count]


class FeedForward(nn.Module):
    """Equation 2: two linear maps with a non-linearity between them, applied at every position."""

    def __init__(self, width: int, inner_width: int, activation: str) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner_width)
        self.outer = nn.Linear(inner_width, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Transform each vector (… D)."""
        transformed: Tensor = self.outer(self.activation(self.inner(x)))
        return transformed


_norm_mask: ContextVar[Tensor | None] = ContextVar("norm_mask", default=None)


@contextmanager
def norm_mask(mask: Tensor) -> Iterator[None]:
    """Let batch normalisation in this block and thread use only the positions where the mask (B T) is True."""
    token = _norm_mask.set(mask)
    try:
        yield
    finally:
        _norm_mask.reset(token)


class BatchNorm(nn.Module):
    """Batch normalisation over all positions but padding (Ioffe and Szegedy 2015, arXiv 1502.03167).

    The running statistics are saved with the weights.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_variance", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise vectors (B T D): by the batch in training, otherwise by the running statistics."""
        x = x.to(self.weight.dtype)
        if not self.training:
            return self.normalise_rows(x.flatten(0, -2)).view_as(x)
        mask = _norm_mask.get()
        assert mask is not None, "batch normalisation in training needs the padding mask: see `norm_mask`"
        normalised = torch.zeros_like(x)
        normalised[mask] = self.normalise_rows(x[mask])
        return normalised

    def normalise_rows(self, rows: Tensor) -> Tensor:
        """Normalise rows (N D); a single row has no variance and is normalised by the running statistics."""
        training = self.training and len(rows) > 1
        return F.batch_norm(rows, self.running_mean, self.running_variance, self.weight, self.bias, training)


def is_running_statistic(name: str) -> bool:
    """Return whether a weight of this name is a running statistic and not a parameter."""
    return name.endswith((".running_mean", ".running_variance"))


NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": nn.LayerNorm, "batch": BatchNorm}


class Residual(nn.Module):
    """A residual connection: the paper's post-norm, LayerNorm(x + f(x)), or pre-norm, x + f(LayerNorm(x))."""

    def __init__(
        self,
        width: int,
        dropout: float,
        order: Literal["post", "pre"],
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.norm = norm(width)
        self.dropout = Dropout(dropout)
        self.order = order

    def pre(self, x: Tensor) -> Tensor:
        """Return the input of the sub-layer."""
        return x if self.order == "post" else cast(Tensor, self.norm(x))

    def post(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        """Return the residual sum; section 5.4 applies dropout to the sub-layer's output first."""
        x = self.dropout(sublayer_output, x)
        return x if self.order == "pre" else cast(Tensor, self.norm(x))


def initialise_weights(model: nn.Module, initialiser: Callable[[Tensor], object] = nn.init.xavier_uniform_) -> None:
    """Draw all matrices, by default from Glorot's uniform distribution, and set all biases to zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            initialiser(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
