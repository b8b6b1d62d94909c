"""Attention (section 3.2): equation 1, multi-head attention and masks.

Shapes: B batch, S key positions, T query positions, D width, H heads, K width of one head.
A mask is True where attention is allowed.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman import native
from dragoman.models.positions import SinusoidalPositions, apply_rotary_embedding

_unfused: ContextVar[bool] = ContextVar("unfused", default=False)


@contextmanager
def unfused_attention() -> Iterator[None]:
    """Compute attention by plain matrix products in this block; fused kernels round differently in other batches."""
    token = _unfused.set(True)
    try:
        yield
    finally:
        _unfused.reset(token)


ScoreFunction = Callable[[Tensor, Tensor], Tensor]  # queries B H T K and keys B H S K to scores B H T S


def scaled_dot_product(query: Tensor, key: Tensor) -> Tensor:
    """Return the paper's scores: Q Kᵀ / √d_k."""
    return query @ key.mT / math.sqrt(query.shape[-1])


def dot_product(query: Tensor, key: Tensor) -> Tensor:
    """Return unscaled scores: Q Kᵀ (section 3.2.1 explains the scaling)."""
    return query @ key.mT


class AdditiveScore(nn.Module):
    """Additive scores (Bahdanau et al. 2015, arXiv 1409.0473): vᵀ tanh(W_q q + W_k k), with one v per head.

    W_q and W_k are the projections of the head, so queries and keys are summed here as they are.
    """

    def __init__(self, heads: int, key_width: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(heads, key_width))  # H K
        nn.init.normal_(self.direction, std=key_width**-0.5)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores; this needs memory for one vector per pair of positions (B H T S K)."""
        sums = (query[:, :, :, None] + key[:, :, None]).tanh_()  # B H T S K
        return (sums.flatten(2, 3) @ self.direction[:, :, None]).view(sums.shape[:-1])


SCORE_FUNCTIONS: dict[str, Callable[[int, int], ScoreFunction]] = {  # by number of heads and key width
    "scaled_dot": lambda _heads, _key_width: scaled_dot_product,
    "dot": lambda _heads, _key_width: dot_product,
    "additive": AdditiveScore,
}
_FUSED_SCALES: dict[ScoreFunction, float | None] = {
    scaled_dot_product: None,
    dot_product: 1.0,
}  # the `scale` of PyTorch's fused kernel


def attend(
    query: Tensor,  # B H T K
    key: Tensor,  # B H S K
    value: Tensor,  # B H S K
    mask: Tensor | None,  # broadcasts to B H T S
    *,
    score_function: ScoreFunction = scaled_dot_product,
    record: bool = False,
) -> tuple[Tensor, Tensor | None]:  # B H T K, and the weights B H T S if recorded
    """Equation 1: softmax(Q Kᵀ / √d_k) V, or with other scores. A row without an allowed position gives zeros."""
    if not record and score_function is scaled_dot_product and native.can_attend(query, key, value, mask):
        return native.attend(query, key, value, mask), None
    if not record and score_function in _FUSED_SCALES and not _unfused.get():
        return F.scaled_dot_product_attention(query, key, value, mask, scale=_FUSED_SCALES[score_function]), None
    scores = score_function(query, key)  # B H T S
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        # The lowest finite number instead of minus infinity: a row without a single True would become NaN.
        lowest = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights if record else None


class AttentionPattern(Protocol):
    """The allowed positions of restricted self-attention, and how to compute it efficiently: see local_attention.py."""

    def mask(self, length: int, causal: bool, device: torch.device | None = None) -> Tensor:
        """Return the mask (n n) of the allowed positions."""
        ...

    def causal_positions(self, position: int) -> Tensor:
        """Return the sorted positions that a decoder position attends to; the last is its own."""
        ...

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
        """Attend to B H n K where this pattern and the mask (B n), False at padding, allow it."""
        ...


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Return the mask (T T) of position t and those before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: h parallel attentions, each with its own projections.

    `pattern` and `rotary` are for self-attention: a pattern restricts it to some positions (causal ones if `causal`),
    and rotary embeddings rotate queries and keys by their positions (positions.py).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        key_width: int,
        value_width: int,
        score_function: ScoreFunction = scaled_dot_product,
        *,
        pattern: AttentionPattern | None = None,
        causal: bool = False,
        rotary: bool = False,
    ) -> None:
        super().__init__()
        assert pattern is None or score_function is scaled_dot_product, "a pattern needs the scaled dot product"
        self.heads = heads
        self.score_function = score_function
        self.pattern = pattern
        self.causal = causal
        self.query = nn.Linear(width, heads * key_width)
        self.key = nn.Linear(width, heads * key_width)
        self.value = nn.Linear(width, heads * value_width)
        self.output = nn.Linear(heads * value_width, width)
        self.rotary = SinusoidalPositions(key_width) if rotary else None
        self.joint_cache: tuple[list[tuple[int, int] | None], tuple[Tensor, Tensor]] | None = None

    def forward(
        self, query_source: Tensor, key_value_source: Tensor, mask: Tensor | None, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:  # B T D, and the weights B H T S if recorded
        """Attend from `query_source` (B T D) to `key_value_source` (B S D) where the mask allows it."""
        return self.attend_projected(query_source, *self.project_keys_values(key_value_source), mask, record=record)

    def project_keys_values(
        self, key_value_source: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:  # B H S K, twice
        """Return keys and values, which can be reused for several queries."""
        return self.apply_rotary(self.split_heads(self.key(key_value_source)), positions), self.split_heads(
            self.value(key_value_source)
        )

    def project_queries(self, query_source: Tensor, positions: Tensor | None = None) -> Tensor:  # B H T K
        """Return the queries."""
        return self.apply_rotary(self.split_heads(self.query(query_source)), positions)

    def apply_rotary(self, heads: Tensor, positions: Tensor | None) -> Tensor:
        """Rotate queries or keys (B H T K) by their positions (B T), by default 0, 1, 2 …, if it is rotary."""
        if self.rotary is None:
            return heads
        if positions is None:
            return apply_rotary_embedding(heads, self.rotary(0, heads.shape[2]))
        return apply_rotary_embedding(heads, self.rotary(0, int(positions.max()) + 1)[positions][:, None])

    def attend_projected(
        self, query_source: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to projected keys and values (B H S K)."""
        query = self.project_queries(query_source)
        if self.pattern is not None:
            heads, weights = self.attend_pattern(self.pattern, query, key, value, mask, record=record)
        else:
            heads, weights = attend(query, key, value, mask, score_function=self.score_function, record=record)
        return self.output(heads.transpose(1, 2).flatten(2)), weights  # B T D

    def attend_pattern(
        self,
        pattern: AttentionPattern,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        record: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # B H n K, and the weights B H n n if recorded
        """Attend where a pattern allows it; the mask (B 1 1 n) is False at padding."""
        if not record:
            return pattern.attend(query, key, value, None if mask is None else mask[:, 0, 0], causal=self.causal), None
        allowed = pattern.mask(query.shape[2], self.causal, query.device)[None, None]
        return attend(query, key, value, allowed if mask is None else allowed & mask, record=True)

    def step(self, x: Tensor, keys: Tensor, values: Tensor, ancestors: Tensor) -> Tensor:  # B W D
        """Attend from one more position of each of W hypotheses (B W D) to itself and those before it.

        The caches (B C L H K) have room for its key and value; `ancestors` (B W T) holds the row (of C) of the cache
        that stores each position of a hypothesis, the new one last.
        """
        joint = F.linear(x, *self.joint_projection())  # B W 3HK
        batch, beam, length = ancestors.shape
        if self.rotary is not None:
            query_key_width = self.query.out_features + self.key.out_features
            heads = joint[..., :query_key_width].view(batch, beam, 2 * self.heads, -1)  # B W 2H K
            joint[..., :query_key_width] = apply_rotary_embedding(heads, self.rotary(length - 1, 1)).flatten(2)
        is_plain = self.score_function is scaled_dot_product and self.pattern is None
        if is_plain and native.can_attend_cached(joint, keys, values):
            return cast(Tensor, self.output(native.attend_cached(joint, keys, values, ancestors)))
        widths = [layer.out_features for layer in (self.query, self.key, self.value)]
        query, key, value = torch.split(joint, widths, dim=-1)
        keys[:, :beam, length - 1] = key.view(batch, beam, self.heads, -1)
        values[:, :beam, length - 1] = value.view(batch, beam, self.heads, -1)
        position = torch.arange(length) if self.pattern is None else self.pattern.causal_positions(length - 1)
        position = position.to(x.device)
        index = (torch.arange(batch, device=x.device)[:, None, None], ancestors[..., position], position)
        prefix_keys, prefix_values = (cache[index].flatten(0, 1).transpose(1, 2) for cache in (keys, values))
        attended, _ = attend(
            self.split_heads(query.flatten(0, 1)[:, None]),
            prefix_keys,
            prefix_values,
            None,
            score_function=self.score_function,
        )
        return cast(Tensor, self.output(attended.flatten(1).view(batch, beam, -1)))

    def joint_projection(self) -> tuple[Tensor, Tensor]:
        """Return the concatenated weights and biases of queries, keys and values, cached until one of them changes."""
        layers = (self.query, self.key, self.value)
        versions = [parameter_version(parameter) for layer in layers for parameter in (layer.weight, layer.bias)]
        if self.joint_cache is None or None in versions or self.joint_cache[0] != versions:
            weight, bias = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
            self.joint_cache = versions, (weight.detach(), bias.detach())
        return self.joint_cache[1]

    def split_heads(self, vectors: Tensor) -> Tensor:
        """Reshape B T (H K) to B H T K."""
        return vectors.view(*vectors.shape[:-1], self.heads, -1).transpose(1, 2)


def parameter_version(parameter: Tensor) -> tuple[int, int] | None:
    """Return a value that changes with a parameter; None if PyTorch does not count versions."""
    return None if parameter.is_inference() else (parameter.data_ptr(), parameter._version)
