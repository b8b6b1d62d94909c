"""Beam search (section 6.1): W hypotheses of each of B sentences, side by side in tensors.

Each step keeps the W best extensions of a sentence's live hypotheses; those that end in END are finished and leave the
beam. A beam of one is greedy search; a beam that is wide enough is exhaustive. A beam can drop the greedy hypothesis
and end with a worse one, so the greedy hypothesis is kept beside the beam: no search is worse than greedy search.
`native/search.c` is the same search for a compiled model.

Shapes: B batch, S source positions, T target positions, V vocabulary, W beam, N finished hypotheses that are kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from dragoman.decoding.hypothesis import (
    FAILED_HYPOTHESIS,
    NO_HYPOTHESIS,
    Hypothesis,
    max_output_lengths,
    output_log_probabilities,
    output_tokens,
    sum_dtype,
    top_tokens,
)
from dragoman.decoding.scoring import length_penalty
from dragoman.decoding.shortlist import ShortlistedTransducer
from dragoman.errors import UserError
from dragoman.models.transducer import IncrementalDecoder, Memory, Source, State
from dragoman.native.search import native_beam_search
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START


@dataclass(frozen=True)
class FinishedHypotheses:
    """The best finished hypotheses of each sentence, the best first."""

    tokens: Tensor  # B N T, from START; padded with PAD
    scores: Tensor  # B N
    log_probabilities: Tensor  # B N
    truncated: Tensor  # B N

    def keep(self, sentences: Tensor) -> "FinishedHypotheses":
        """Return the hypotheses of the given sentences (a tensor of row indices)."""
        return FinishedHypotheses(*(part[sentences] for part in vars(self).values()))

    def merge(self, others: "FinishedHypotheses") -> "FinishedHypotheses":
        """Return the N best of both; ties go to these, then to the first of the others."""
        longer = F.pad(self.tokens, (0, others.tokens.shape[-1] - self.tokens.shape[-1]), value=PAD)
        both = FinishedHypotheses(
            torch.cat([longer, others.tokens], dim=1),
            torch.cat([self.scores, others.scores], dim=1),
            torch.cat([self.log_probabilities, others.log_probabilities], dim=1),
            torch.cat([self.truncated, others.truncated], dim=1),
        )
        best = both.scores.argsort(dim=1, descending=True, stable=True)[:, : self.scores.shape[1]]
        return FinishedHypotheses(
            _gather_rows(both.tokens, best),
            *(part.gather(1, best) for name, part in vars(both).items() if name != "tokens"),
        )


@dataclass(frozen=True)
class Beam:
    """The state of a search: the live hypotheses of each sentence and its best finished ones."""

    sentences: Tensor  # B       row indices in the source
    max_lengths: Tensor  # B         maximum output tokens
    highest_penalty: Tensor  # B length penalty at that length
    tokens: Tensor  # B W T      from START
    log_probabilities: Tensor  # B W
    greedy: Tensor  # B          index of the greedy hypothesis; -1: it has ended
    finished: FinishedHypotheses
    memory: Memory
    state: State

    def keep(self, sentences: Tensor) -> "Beam":
        """Return the search for the given sentences (a tensor of row indices)."""
        return Beam(
            self.sentences[sentences],
            self.max_lengths[sentences],
            self.highest_penalty[sentences],
            self.tokens[sentences],
            self.log_probabilities[sentences],
            self.greedy[sentences],
            self.finished.keep(sentences),
            self.memory.keep(sentences),
            self.state.keep(sentences),
        )

    def live_sentences(self) -> Tensor:
        """Return a mask (B) of the sentences that have a live hypothesis."""
        return (self.log_probabilities > NO_HYPOTHESIS).any(dim=1)


OnStep = Callable[[Beam], None]


def beam_search(
    model: IncrementalDecoder,
    source: Source,
    config: DecodingConfig,
    *,
    n_best: int = 1,
    compact: bool = True,
    prefix: Sequence[int] = (),
    on_step: OnStep | None = None,
    pause: Callable[[], None] | None = None,
) -> list[list[Hypothesis]]:
    """Return for each sentence of `source` (B S) its `n_best` best hypotheses, the best first.

    With `compact`, finished sentences leave the batch; otherwise every step has the same shape. All hypotheses begin
    with `prefix`. `on_step` is called with the beam after each step, before finished hypotheses leave it. `pause` is
    called after each step or every few steps; what it raises ends the search.
    """
    if n_best < 1:
        raise UserError(f"n_best must be at least 1, got {n_best}.")
    if n_best > config.beam:
        raise UserError(f"n_best must be at most the beam width, {config.beam}, got {n_best}; use a wider beam.")
    plain, allowed = (
        (model.model, model.shortlist.allowed_tokens(source))
        if isinstance(model, ShortlistedTransducer)
        else (model, None)
    )
    if not prefix and on_step is None:
        native_results = native_beam_search(plain, source, config, n_best, allowed=allowed, pause=pause)
        if native_results is not None:
            return native_results

    def notify(beam: Beam) -> None:
        if pause:
            pause()
        if on_step:
            on_step(beam)

    beam = _initial_beam(model, source, config, n_best, prefix_length=len(prefix))
    for token in prefix:
        notify(beam := _force_token(beam, model, token))
    results: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    while True:
        notify(beam := _extend_beam(beam, model, config.beam, fixed_shape=not compact))
        beam = _finish_hypotheses(beam, config.length_penalty)
        live = beam.live_sentences()
        count = int(live.sum())
        if count == 0:
            _collect_results(beam, results)
            return results
        if compact and 4 * count <= 3 * len(live):  # a smaller batch must be worth copying the state
            _collect_results(beam.keep((~live).nonzero().squeeze(1)), results)
            beam = beam.keep(live.nonzero().squeeze(1))


def _initial_beam(
    model: IncrementalDecoder, source: Source, config: DecodingConfig, n_best: int, *, prefix_length: int = 0
) -> Beam:
    """Return the beam before the first step: one empty hypothesis per sentence."""
    memory = model.encode(source)
    batch = len(source)
    sums = torch.zeros(batch, n_best, dtype=sum_dtype(source.device), device=source.device)
    tokens = torch.full((batch, n_best, 1), START, device=source.device)
    nothing = torch.full_like(sums, NO_HYPOTHESIS)
    longest = max_output_lengths(source, config).clamp(min=prefix_length + config.extra_length)
    return Beam(
        sentences=torch.arange(batch, device=source.device),
        max_lengths=longest,
        highest_penalty=length_penalty(longest.to(sums.dtype), config.length_penalty),
        tokens=tokens[:, :1],
        log_probabilities=sums[:, :1],
        greedy=torch.zeros_like(tokens[:, 0, 0]),
        finished=FinishedHypotheses(tokens, nothing, nothing, torch.zeros_like(nothing, dtype=torch.bool)),
        memory=memory,
        state=model.initial_state(memory),
    )


def _force_token(beam: Beam, model: IncrementalDecoder, token: int) -> Beam:
    """Extend every hypothesis by a given token, and add its log-probability."""
    logits, state = model.step(beam.tokens[..., -1], beam.memory, beam.state)
    return replace(
        beam,
        tokens=torch.cat([beam.tokens, torch.full_like(beam.tokens[..., :1], token)], dim=-1),
        log_probabilities=beam.log_probabilities + output_log_probabilities(logits, first=False)[..., token],
        state=state,
    )


def _extend_beam(beam: Beam, model: IncrementalDecoder, width: int, *, fixed_shape: bool = False) -> Beam:
    """Read the last tokens and keep the `width` best extensions, or all of them if there are fewer.

    The greedy hypothesis is kept beside them if it is not among them; with `fixed_shape` its slot is always there.
    """
    logits, state = model.step(beam.tokens[..., -1], beam.memory, beam.state)
    # B W X: at most `width` extensions of a hypothesis can be kept.
    values, tokens = top_tokens(logits, width, first=beam.tokens.shape[-1] == 1)
    if width == 1:  # nothing to compare
        return replace(
            beam,
            tokens=torch.cat([beam.tokens, tokens], dim=-1),
            log_probabilities=beam.log_probabilities + values[..., 0],
            state=state,
        )
    choices = values.shape[-1]
    sums = (beam.log_probabilities[..., None] + values).flatten(1)  # B WX
    within = sums[:, : width * choices]  # the greedy hypothesis beside the beam does not compete
    best, indices = within.topk(min(width, within.shape[1]))  # B W
    first_choice = torch.where(beam.greedy < 0, -1, beam.greedy * choices)
    missing = (first_choice >= 0) & (indices != first_choice[:, None]).all(dim=1)
    if fixed_shape or missing.any():
        indices = torch.cat([indices, first_choice.clamp(min=0)[:, None]], dim=1)  # B W+1
        best = sums.gather(1, indices)
        best[:, -1].masked_fill_(~missing, NO_HYPOTHESIS)
    parents = indices // choices
    token = tokens.flatten(1).gather(1, indices)
    return replace(
        beam,
        tokens=torch.cat([_gather_rows(beam.tokens, parents), token[..., None]], dim=-1),
        log_probabilities=best,
        greedy=_greedy_index(first_choice, indices, token),
        state=state.reorder(parents),
    )


def _greedy_index(wanted: Tensor, chosen: Tensor, token: Tensor) -> Tensor:
    """Return the index of the wanted choice (B) in `chosen` (B W); -1 if its token is END."""
    is_greedy = (chosen == wanted[:, None]) & (token != END)
    return torch.where(is_greedy.any(dim=1), is_greedy.int().argmax(dim=1), -1)


def _finish_hypotheses(beam: Beam, alpha: float) -> Beam:
    """Move ended hypotheses to the finished ones, and end sentences that no live hypothesis can improve."""
    produced = beam.tokens.shape[-1] - 1
    sums = beam.log_probabilities
    ended = beam.tokens[..., -1] == END
    closing = (sums > NO_HYPOTHESIS) & (ended | (beam.max_lengths <= produced)[:, None])
    finished = beam.finished
    if closing.any():
        scores = (sums / length_penalty(float(produced), alpha)).masked_fill(~closing, NO_HYPOTHESIS)
        finished = finished.merge(FinishedHypotheses(beam.tokens, scores, sums, ~ended))
    sums = sums.masked_fill(closing, NO_HYPOTHESIS)
    # Log-probabilities only decrease, so the bound is the present one with the penalty of the maximum length.
    bound = sums.amax(dim=1) / beam.highest_penalty
    hopeless = bound <= finished.scores[:, -1]
    return replace(beam, log_probabilities=sums.masked_fill(hopeless[:, None], NO_HYPOTHESIS), finished=finished)


def _collect_results(beam: Beam, results: list[list[Hypothesis]]) -> None:
    """Store the finished hypotheses of each sentence in the results."""
    finished = beam.finished
    rows = (finished.tokens, finished.scores, finished.log_probabilities, finished.truncated)
    for sentence, *parts in zip(beam.sentences.tolist(), *(part.tolist() for part in rows), strict=True):
        results[sentence] = [
            Hypothesis(output_tokens(tokens), score, log_probability, truncated)
            for tokens, score, log_probability, truncated in zip(*parts, strict=True)
            if score > NO_HYPOTHESIS
        ] or [FAILED_HYPOTHESIS]


def _gather_rows(rows: Tensor, indices: Tensor) -> Tensor:
    """Return rows (B W T) in another order: row w of sentence b becomes row indices[b, w]."""
    return rows.gather(1, indices[..., None].expand(-1, -1, rows.shape[-1]))
