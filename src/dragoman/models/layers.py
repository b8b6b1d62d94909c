"""What the architectures share: embeddings, the feed-forward layer, dropout, norms, residuals, the first weights."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.model_config import ModelConfig
from dragoman.native import functions as kernels
from dragoman.tokens import PAD

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class Embedding(nn.Module):
    """Section 3.4: a learned vector a token, multiplied by √d_model. Padding is all zeros, whatever its row holds."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))  # V D
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the vectors (… D) of tokens of any shape (…)."""
        vectors = F.embedding(tokens, self.weight) * math.sqrt(self.weight.shape[1])
        return vectors.masked_fill((tokens == PAD)[..., None], 0.0)


def build_embeddings(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int
) -> tuple[Embedding, Embedding, nn.Linear | None]:
    """Build the embeddings of source and target, and the matrix of the logits unless the target's serves as it too."""
    assert not config.share_embeddings or source_vocabulary == target_vocabulary, (
        f"{source_vocabulary} source and {target_vocabulary} target pieces cannot share one embedding"
    )
    source = Embedding(source_vocabulary, config.width)
    target = source if config.share_embeddings else Embedding(target_vocabulary, config.width)
    return source, target, None if config.share_output else nn.Linear(config.width, target_vocabulary, bias=False)


_dropout_generator: ContextVar[torch.Generator | None] = ContextVar("generator", default=None)


@contextmanager
def dropout_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Let the dropout inside this block, in this thread, depend on the seed alone."""
    token = _dropout_generator.set(torch.Generator(device).manual_seed(seed))
    try:
        yield
    finally:
        _dropout_generator.reset(token)


class Dropout(nn.Module):
    """Dropout decided by bytes: Bernoulli numbers would take a fifth of a training."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Zero a share of the elements while training and scale up the rest, so that the mean stays.

        What goes `around` is added.
        """
        dropped = round(self.probability * 256) if self.training else 0  # of 256 values of a byte
        if dropped and kernels.is_convertible(x) and (residual is None or kernels.is_supported(residual)):
            kept = kernels.dropout(x.float(), residual, dropped, _draw_seed())
            return kept.to(x.dtype) if residual is None else kept  # a change in bfloat16 joins a sum in float32
        if dropped:
            keep = random_bytes(x.numel(), x.device).view_as(x) > dropped - 1  # 256 is no byte
            x = (x * (keep * kernels.dropout_scale(dropped))).to(x.dtype)  # in bfloat16 the factor itself would be off
        return x if residual is None else residual + x


def _draw_seed() -> int:
    """Return 63 random bits."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=_dropout_generator.get()))


def random_bytes(count: int, device: torch.device) -> Tensor:
    """Return uniform bytes, eight from each number drawn."""
    words = torch.empty(-(-count // 8), dtype=torch.int64, device=device)
    return words.random_(-(2**63), None, generator=_dropout_generator.get()).view(torch.uint8)[:count]


class FeedForward(nn.Module):
    """Equation 2: two matrices with a bend between them, the same at every position."""

    def __init__(self, width: int, inner_width: int, activation: str) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner_width)
        self.outer = nn.Linear(inner_width, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Transform each vector (… D) on its own."""
        transformed: Tensor = self.outer(self.activation(self.inner(x)))
        return transformed


_norm_mask: ContextVar[Tensor | None] = ContextVar("counted", default=None)


@contextmanager
def norm_mask(mask: Tensor) -> Iterator[None]:
    """Let batch normalisation inside this block, in this thread, see only the positions that the mask (B T) allows."""
    token = _norm_mask.set(mask)
    try:
        yield
    finally:
        _norm_mask.reset(token)


class BatchNorm(nn.Module):
    """Normalise each feature over all positions of a batch but padding (Ioffe and Szegedy 2015, arXiv 1502.03167).

    The running statistics, by which a trained model normalises, are part of its weights.
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
        """Normalise vectors (B T D): in training by this batch, else by the running statistics, each by itself."""
        x = x.to(self.weight.dtype)
        if not self.training:
            return self.normalise_rows(x.flatten(0, -2)).view_as(x)
        mask = _norm_mask.get()
        assert mask is not None, "batch normalisation in training must be told what is padding: see `counted`"
        normalised = torch.zeros_like(x)
        normalised[mask] = self.normalise_rows(x[mask])
        return normalised

    def normalise_rows(self, rows: Tensor) -> Tensor:
        """Normalise rows (N D); a single one has no variance, so that it is normalised as if training were over."""
        training = self.training and len(rows) > 1
        return F.batch_norm(rows, self.running_mean, self.running_variance, self.weight, self.bias, training)


def is_running_statistic(name: str) -> bool:
    """Say of a weight, by its name, whether it is a running statistic rather than a parameter."""
    return name.endswith((".running_mean", ".running_variance"))


NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": nn.LayerNorm, "batch": BatchNorm}


class Residual(nn.Module):
    """The way around a sub-layer: the paper's LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x))."""

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
        """Return what the sub-layer reads."""
        return x if self.order == "post" else cast(Tensor, self.norm(x))

    def post(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        """Join the sub-layer's output, which section 5.4 drops out first, to what went around it."""
        x = self.dropout(sublayer_output, x)
        return x if self.order == "pre" else cast(Tensor, self.norm(x))


def initialise_weights(model: nn.Module, initialiser: Callable[[Tensor], object] = nn.init.xavier_uniform_) -> None:
    """Draw every matrix, from Glorot's uniform distribution unless told otherwise, and start every bias at zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            initialiser(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
