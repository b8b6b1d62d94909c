"""Sampling: outputs drawn at random, each with the probability that the model assigns to it.

Every sentence has its own random stream, derived from the seed and its tokens, so the same sentence and seed give the
same outputs whatever else is in the batch.

Shapes: B batch, S source positions, T target positions, V vocabulary, W outputs per sentence.
"""

import hashlib

import torch
from torch import Tensor

from dragoman.decoding.hypothesis import (
    Hypothesis,
    max_output_lengths,
    output_log_probabilities,
    output_tokens,
    sum_dtype,
)
from dragoman.decoding.sampling_options import OUTPUT_SAMPLING, SamplingOptions
from dragoman.decoding.scoring import length_penalty
from dragoman.errors import UserError
from dragoman.models.transducer import IncrementalDecoder, Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START, token_mask


def sample(
    model: IncrementalDecoder,
    source: Source,
    config: DecodingConfig,
    options: SamplingOptions = OUTPUT_SAMPLING,
    *,
    n: int = 1,
) -> list[list[Hypothesis]]:
    """Draw `n` outputs for each sentence of `source` (B S), in the order drawn, with the model's own scores."""
    if n < 1:
        raise UserError(f"The number of samples must be at least 1, got {n}.")
    memory = model.encode(source)
    state = model.initial_state(memory).reorder(torch.zeros(len(source), n, dtype=torch.long, device=source.device))
    max_lengths = max_output_lengths(source, config)
    uniform = _uniform_numbers(source, n, int(max_lengths.max()), options.seed)  # B W T
    tokens = torch.full((len(source), n, 1), START, device=source.device)
    sums = torch.zeros(len(source), n, dtype=sum_dtype(source.device), device=source.device)
    live = torch.ones_like(sums, dtype=torch.bool)
    for step in range(uniform.shape[-1]):
        logits, state = model.step(tokens[..., -1], memory, state)
        values = output_log_probabilities(logits, first=step == 0)
        token = draw_tokens(values, uniform[..., step], options)
        sums = sums + values.gather(-1, token[..., None]).squeeze(-1).masked_fill(~live, 0.0)
        tokens = torch.cat([tokens, token.masked_fill(~live, PAD)[..., None]], dim=-1)
        live = live & (token != END) & (max_lengths > step + 1)[:, None]
        if not live.any():
            break
    return _to_hypotheses(tokens, sums, config.length_penalty)


def draw_tokens(values: Tensor, uniform: Tensor, options: SamplingOptions) -> Tensor:
    """Draw a token (B W) from log-probabilities (B W V) with a uniform number in [0, 1) (B W)."""
    if options.temperature == 0:
        return values.argmax(dim=-1)
    indices = None
    if options.top_k or options.top_p < 1:
        values, indices = values.topk(min(options.top_k or values.shape[-1], values.shape[-1]))
    relative = (values - values.amax(dim=-1, keepdim=True)).to(uniform.dtype)  # 0 for the likeliest
    weights = (relative / options.temperature).exp()
    cumulative = weights.cumsum(dim=-1)
    if options.top_p < 1:
        weights = weights.masked_fill(cumulative - weights >= options.top_p * cumulative[..., -1:], 0.0)
        cumulative = weights.cumsum(dim=-1)
    total = cumulative[..., -1:].contiguous()
    index = torch.searchsorted(cumulative, uniform[..., None] * total, right=True)
    index = index.minimum(torch.searchsorted(cumulative, total))  # rounding can exceed the total
    index = index.clamp(max=cumulative.shape[-1] - 1)  # NaN sorts beyond the end
    return (index if indices is None else indices.gather(-1, index)).squeeze(-1)


def seeded_generator(*key: object) -> torch.Generator:
    """Return a random generator that is the same for the same key: a seed and what the numbers are drawn for."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, signed=True))


def _uniform_numbers(source: Source, n: int, count: int, seed: int) -> Tensor:
    """Return `count` numbers in [0, 1) for each of `n` outputs of each sentence (B W T)."""
    rows = []
    for values, mask in zip(source.values, source.mask, strict=True):
        generator = seeded_generator(seed, values[mask].tolist())
        # Drawn step by step, so that a longer neighbour in the batch only makes the stream longer.
        rows.append(torch.rand(count, n, generator=generator, dtype=torch.float64).T)
    return torch.stack(rows).to(source.device, sum_dtype(source.device))


def _to_hypotheses(tokens: Tensor, sums: Tensor, alpha: float) -> list[list[Hypothesis]]:
    """Convert rows of tokens (B W T, from START) and their log-probabilities (B W) to hypotheses."""
    produced = token_mask(tokens[..., 1:]).sum(dim=-1)
    scores = sums / length_penalty(produced.to(sums.dtype), alpha)
    truncated = ~(tokens == END).any(dim=-1)
    columns = (tokens.tolist(), scores.tolist(), sums.tolist(), truncated.tolist())
    return [
        [Hypothesis(output_tokens(row), *numbers) for row, *numbers in zip(*sentence, strict=True)]
        for sentence in zip(*columns, strict=True)
    ]
