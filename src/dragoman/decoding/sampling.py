"""Drawing outputs at random, each with the probability that the model gives it.

Every sentence has a random stream of its own, made from the seed and its tokens: the same sentence and seed give the
same outputs, whatever stands beside it.

Shapes: B batch, S source positions, T target positions, V vocabulary, W outputs of a sentence.
"""

import hashlib
import math

import torch
from torch import Tensor

from dragoman.decoding.hypothesis import (
    Hypothesis,
    max_output_lengths,
    output_log_probabilities,
    output_tokens,
    sum_dtype,
)
from dragoman.decoding.penalties import length_penalty
from dragoman.errors import UserError
from dragoman.models.transducer import IncrementalDecoder, Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START, token_mask


def sample(
    model: IncrementalDecoder,
    source: Source,
    config: DecodingConfig,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    n: int = 1,
) -> list[list[Hypothesis]]:
    """Draw `n` outputs for each sentence of `source` (B S), in the order drawn; scores are the model's own.

    Below 1 a `temperature` favours likely tokens. Only the `top_k` likeliest tokens (0: all) and of them the fewest
    that make up the share `top_p` are drawn from.
    """
    check_sampling_options(temperature, top_k, top_p, n)
    memory = model.encode(source)
    state = model.initial_state(memory).reorder(torch.zeros(len(source), n, dtype=torch.long, device=source.device))
    longest = max_output_lengths(source, config)
    chances = _random_numbers(source, n, int(longest.max()), seed)  # B W T
    tokens = torch.full((len(source), n, 1), START, device=source.device)
    sums = torch.zeros(len(source), n, dtype=sum_dtype(source.device), device=source.device)
    going = torch.ones_like(sums, dtype=torch.bool)
    for step in range(chances.shape[-1]):
        logits, state = model.step(tokens[..., -1], memory, state)
        values = output_log_probabilities(logits, first=step == 0)
        token = draw_tokens(values, chances[..., step], temperature, top_k, top_p)
        sums = sums + values.gather(-1, token[..., None]).squeeze(-1).masked_fill(~going, 0.0)
        tokens = torch.cat([tokens, token.masked_fill(~going, PAD)[..., None]], dim=-1)
        going = going & (token != END) & (longest > step + 1)[:, None]
        if not going.any():
            break
    return _to_hypotheses(tokens, sums, config.length_penalty)


def check_sampling_options(temperature: float, top_k: int, top_p: float, n: int) -> None:
    """Refuse numbers that cannot be drawn with."""
    if not 0 < temperature < math.inf:
        raise UserError(
            f"temperature {temperature} cannot be drawn at; it must be above 0 (near 0: the likeliest token)."
        )
    if top_k < 0:
        raise UserError(f"top_k {top_k} tokens cannot be drawn from; it must be 1 or more, or 0 for all.")
    if not 0 < top_p <= 1:
        raise UserError(f"top_p {top_p} is not a share; it must be above 0 and at most 1 (all tokens).")
    if n < 1:
        raise UserError(f"n {n} outputs cannot be drawn; ask for 1 or more.")


def draw_tokens(values: Tensor, uniform: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Draw a token (B W) from log-probabilities (B W V) by a number between 0 and 1 (B W)."""
    places = None
    if top_k or top_p < 1:
        values, places = values.topk(min(top_k or values.shape[-1], values.shape[-1]))
    below = (values - values.amax(dim=-1, keepdim=True)).to(uniform.dtype)  # the likeliest is 0
    likely = (below / temperature).exp()
    heap = likely.cumsum(dim=-1)
    if top_p < 1:
        likely = likely.masked_fill(heap - likely >= top_p * heap[..., -1:], 0.0)
        heap = likely.cumsum(dim=-1)
    total = heap[..., -1:].contiguous()
    found = torch.searchsorted(heap, uniform[..., None] * total, right=True)  # the first to reach above the number
    found = found.minimum(torch.searchsorted(heap, total))  # which rounding can put above the whole heap
    found = found.clamp(max=heap.shape[-1] - 1)  # and NaN beyond its end
    return (found if places is None else places.gather(-1, found)).squeeze(-1)


def _random_numbers(source: Source, n: int, count: int, seed: int) -> Tensor:
    """Return `count` numbers in [0, 1) for each of `n` outputs of each sentence (B W T)."""
    rows = []
    for values, mask in zip(source.values, source.mask, strict=True):
        name = repr((seed, values[mask].tolist()))
        stream = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
        generator = torch.Generator().manual_seed(stream)
        # Step after step, so that a longer neighbour only makes the stream longer.
        rows.append(torch.rand(count, n, generator=generator, dtype=torch.float64).T)
    return torch.stack(rows).to(source.device, sum_dtype(source.device))


def _to_hypotheses(tokens: Tensor, sums: Tensor, alpha: float) -> list[list[Hypothesis]]:
    """Turn rows of tokens (B W T, from START) and their log-probabilities (B W) into hypotheses."""
    produced = token_mask(tokens[..., 1:]).sum(dim=-1)
    scores = sums / length_penalty(produced.to(sums.dtype), alpha)
    truncated = ~(tokens == END).any(dim=-1)
    columns = (tokens.tolist(), scores.tolist(), sums.tolist(), truncated.tolist())
    return [
        [Hypothesis(output_tokens(row), *numbers) for row, *numbers in zip(*sentence, strict=True)]
        for sentence in zip(*columns, strict=True)
    ]
