"""Attention (section 3.2): equation 1, the heads around it, and the masks that say where looking is allowed.

Shapes: B batch, S positions looked at, T positions looking, D width, H heads, K width of one head.
A mask is True where looking is allowed.
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

_unfused: ContextVar[bool] = ContextVar("explicit", default=False)


@contextmanager
def unfused_attention() -> Iterator[None]:
    """Attend by plain matrix products inside this block: the fused kernel rounds differently in other company."""
    token = _unfused.set(True)
    try:
        yield
    finally:
        _unfused.reset(token)


ScoreFunction = Callable[[Tensor, Tensor], Tensor]  # queries B H T K and keys B H S K to scores B H T S


def scaled_dot_product(query: Tensor, key: Tensor) -> Tensor:
    """Compare as the paper does: Q Kᵀ / √d_k."""
    return query @ key.mT / math.sqrt(query.shape[-1])


def dot_product(query: Tensor, key: Tensor) -> Tensor:
    """Compare without the scaling, whose reason section 3.2.1 gives: Q Kᵀ."""
    return query @ key.mT


class AdditiveScore(nn.Module):
    """Compare by a small network (Bahdanau et al. 2015, arXiv 1409.0473): vᵀ tanh(W_q q + W_k k), a v a head.

    W_q and W_k are the head's own projections, so the queries and keys that come here are summed as they are.
    """

    def __init__(self, heads: int, key_width: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(heads, key_width))  # H K
        nn.init.normal_(self.direction, std=key_width**-0.5)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores; every pair of places has a vector of its own in memory (B H T S K)."""
        bent = (query[:, :, :, None] + key[:, :, None]).tanh_()  # B H T S K
        return (bent.flatten(2, 3) @ self.direction[:, :, None]).view(bent.shape[:-1])


SCORE_FUNCTIONS: dict[str, Callable[[int, int], ScoreFunction]] = {  # of so many heads with keys so wide
    "scaled_dot": lambda _heads, _key_width: scaled_dot_product,
    "dot": lambda _heads, _key_width: dot_product,
    "additive": AdditiveScore,
}
_FUSED_SCALES: dict[ScoreFunction, float | None] = {
    scaled_dot_product: None,
    dot_product: 1.0,
}  # torch's kernel knows these, by its `scale`


def attend(
    query: Tensor,  # B H T K
    key: Tensor,  # B H S K
    value: Tensor,  # B H S K
    mask: Tensor | None,  # broadcasts to B H T S
    *,
    score_function: ScoreFunction = scaled_dot_product,
    record: bool = False,
) -> tuple[Tensor, Tensor | None]:  # B H T K, and the weights B H T S if recorded
    """Equation 1: softmax(Q Kᵀ / √d_k) V, or of other scores. A row that may look nowhere gets zeros."""
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
    """Where self-attention may look, if not everywhere, and how to attend there at no greater cost: see patterns.py."""

    def mask(self, length: int, causal: bool, device: torch.device | None = None) -> Tensor:
        """Return n n: where each place may look."""
        ...

    def causal_positions(self, position: int) -> Tensor:
        """Return the places, in their order, that a place of a decoder looks at; the last is its own."""
        ...

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
        """Attend to B H n K as far as this pattern and the mask (B n) of what is no padding allow."""
        ...


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Return T T: position t may look at itself and at what came before."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: h attentions side by side, each in its own projection of the vectors.

    With a pattern they look at their own sequence alone, and where it allows; if causal, only back. If rotary, which
    is for a sequence that looks at itself, too, queries and keys are turned by their places (positions.py).
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
        assert pattern is None or score_function is scaled_dot_product, (
            "a pattern compares by the scaled dot product alone"
        )
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
        """Let each position of `looking` (B T D) look at all of `looked_at` (B S D) that the mask allows."""
        return self.attend_projected(query_source, *self.project_keys_values(key_value_source), mask, record=record)

    def project_keys_values(
        self, key_value_source: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:  # B H S K, twice
        """Return the keys and the values of what will be looked at, to be kept for several looks."""
        return self.apply_rotary(self.split_heads(self.key(key_value_source)), positions), self.split_heads(
            self.value(key_value_source)
        )

    def project_queries(self, query_source: Tensor, positions: Tensor | None = None) -> Tensor:  # B H T K
        """Return the queries of what looks."""
        return self.apply_rotary(self.split_heads(self.query(query_source)), positions)

    def apply_rotary(self, heads: Tensor, positions: Tensor | None) -> Tensor:
        """Turn queries or keys (B H T K) that stand at places (B T), or at the first ones, if this is rotary."""
        if self.rotary is None:
            return heads
        if positions is None:
            return apply_rotary_embedding(heads, self.rotary(0, heads.shape[2]))
        return apply_rotary_embedding(heads, self.rotary(0, int(positions.max()) + 1)[positions][:, None])

    def attend_projected(
        self, query_source: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Look at projected keys and values (B H S K)."""
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
        """Look where a pattern allows; the mask (B 1 1 n) only says where padding stands."""
        if not record:
            return pattern.attend(query, key, value, None if mask is None else mask[:, 0, 0], causal=self.causal), None
        allowed = pattern.mask(query.shape[2], self.causal, query.device)[None, None]
        return attend(query, key, value, allowed if mask is None else allowed & mask, record=True)

    def step(self, x: Tensor, keys: Tensor, values: Tensor, ancestors: Tensor) -> Tensor:  # B W D
        """Let one more position of each of W hypotheses (B W D) look at itself and at those before it.

        The caches (B C L H K) have room for its key and value; `ancestors` (B W T) says at which of the C places of
        its sentence a hypothesis finds each position, itself the last.
        """
        joint = F.linear(x, *self.joint_projection())  # B W 3HK
        batch, beam, length = ancestors.shape
        if self.rotary is not None:
            both = self.query.out_features + self.key.out_features
            heads = joint[..., :both].view(batch, beam, 2 * self.heads, -1)  # B W 2H K
            joint[..., :both] = apply_rotary_embedding(heads, self.rotary(length - 1, 1)).flatten(2)
        plain = self.score_function is scaled_dot_product and self.pattern is None
        if plain and native.can_attend_cached(joint, keys, values):
            return cast(Tensor, self.output(native.attend_cached(joint, keys, values, ancestors)))
        widths = [layer.out_features for layer in (self.query, self.key, self.value)]
        query, key, value = torch.split(joint, widths, dim=-1)
        keys[:, :beam, length - 1] = key.view(batch, beam, self.heads, -1)
        values[:, :beam, length - 1] = value.view(batch, beam, self.heads, -1)
        place = torch.arange(length) if self.pattern is None else self.pattern.causal_positions(length - 1)
        place = place.to(x.device)
        where = (torch.arange(batch, device=x.device)[:, None, None], ancestors[..., place], place)
        own_keys, own_values = (cache[where].flatten(0, 1).transpose(1, 2) for cache in (keys, values))  # BW H T K
        seen, _ = attend(
            self.split_heads(query.flatten(0, 1)[:, None]),
            own_keys,
            own_values,
            None,
            score_function=self.score_function,
        )
        return cast(Tensor, self.output(seen.flatten(1).view(batch, beam, -1)))

    def joint_projection(self) -> tuple[Tensor, Tensor]:
        """Return weight and bias of queries, keys and values in one, made anew when one of them has changed."""
        layers = (self.query, self.key, self.value)
        versions = [parameter_version(parameter) for layer in layers for parameter in (layer.weight, layer.bias)]
        if self.joint_cache is None or None in versions or self.joint_cache[0] != versions:
            weight, bias = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
            self.joint_cache = versions, (weight.detach(), bias.detach())
        return self.joint_cache[1]

    def split_heads(self, vectors: Tensor) -> Tensor:
        """Turn B T (H K) into B H T K."""
        return vectors.view(*vectors.shape[:-1], self.heads, -1).transpose(1, 2)


def parameter_version(parameter: Tensor) -> tuple[int, int] | None:
    """Return what changes whenever a parameter does, or nothing if torch does not keep count."""
    return None if parameter.is_inference() else (parameter.data_ptr(), parameter._version)
