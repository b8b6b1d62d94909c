"""Beam search (section 6.1): W hypotheses of each of B sentences, side by side in tensors.

Each step keeps the W best extensions of a sentence's live hypotheses; those that end in END are finished and leave
the beam. So a beam of one is greedy search, and a beam that is wide enough leaves nothing out. A beam can lose the
greedy hypothesis half-way and end with something worse; then it goes on beside the beam, so that no search is worse
than the greedy one. `kernels/search.c` is the same search for a compiled model.

Shapes: B batch, S source positions, T target positions, V vocabulary, W beam, N finished hypotheses that are kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from dragoman.decoding.compiled_search import compiled_search
from dragoman.decoding.hypothesis import (
    FAILED,
    NOTHING,
    Hypothesis,
    likeliest,
    log_probabilities,
    longest_outputs,
    produced_tokens,
    sum_type,
)
from dragoman.decoding.penalties import length_penalty
from dragoman.decoding.shortlist import Restricted
from dragoman.errors import UserError
from dragoman.model.compiled import CompiledTransformer
from dragoman.model.transducer import Memory, State, Transducer
from dragoman.recipe import Decoding
from dragoman.tokens import END, PAD, START


@dataclass(frozen=True)
class Finished:
    """The best finished hypotheses of each sentence, the best first."""

    tokens: Tensor  # B N T, from START; padded with PAD
    scores: Tensor  # B N
    log_probabilities: Tensor  # B N
    truncated: Tensor  # B N

    def keep(self, sentences: Tensor) -> "Finished":
        """Return those of the given sentences (a tensor of row numbers) alone."""
        return Finished(*(part[sentences] for part in vars(self).values()))

    def joined_by(self, others: "Finished") -> "Finished":
        """Return the N best of these and the others; of equal ones these, and the first of the others."""
        longer = F.pad(self.tokens, (0, others.tokens.shape[-1] - self.tokens.shape[-1]), value=PAD)
        both = Finished(
            torch.cat([longer, others.tokens], dim=1),
            torch.cat([self.scores, others.scores], dim=1),
            torch.cat([self.log_probabilities, others.log_probabilities], dim=1),
            torch.cat([self.truncated, others.truncated], dim=1),
        )
        best = both.scores.argsort(dim=1, descending=True, stable=True)[:, : self.scores.shape[1]]
        return Finished(
            picked(both.tokens, best),
            *(part.gather(1, best) for name, part in vars(both).items() if name != "tokens"),
        )


@dataclass(frozen=True)
class Beam:
    """The search so far: the live hypotheses of each sentence and its best finished ones."""

    sentences: Tensor  # B       which rows of the source these are
    longest: Tensor  # B         tokens a sentence may produce
    highest_penalty: Tensor  # B the length penalty of so many
    tokens: Tensor  # B W T      from START
    log_probabilities: Tensor  # B W
    greedy: Tensor  # B          the place of the hypothesis that took the likeliest token each time; -1: it has ended
    finished: Finished
    memory: Memory
    state: State

    def keep(self, sentences: Tensor) -> "Beam":
        """Return the search for the given sentences (a tensor of row numbers) alone."""
        return Beam(
            self.sentences[sentences],
            self.longest[sentences],
            self.highest_penalty[sentences],
            self.tokens[sentences],
            self.log_probabilities[sentences],
            self.greedy[sentences],
            self.finished.keep(sentences),
            self.memory.keep(sentences),
            self.state.keep(sentences),
        )

    def live(self) -> Tensor:
        """Return which sentences (B) still have a live hypothesis."""
        return (self.log_probabilities > NOTHING).any(dim=1)


Watch = Callable[[Beam], None]


def beam_search(
    model: Transducer,
    source: Tensor,
    how: Decoding,
    *,
    n_best: int = 1,
    compact: bool = True,
    prefix: Sequence[int] = (),
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """Return for each sentence of `source` (B S) its `n_best` best hypotheses, the best first.

    With `compact`, sentences that are done leave the batch; without, every step has the same shape. All hypotheses
    begin with `prefix`. `watch` is shown the beam after each step, before what has ended leaves it.
    """
    if n_best < 1:
        raise UserError(f"n_best {n_best} asks for nothing; ask for 1 or more.")
    if n_best > how.beam:
        raise UserError(
            f"n_best {n_best} is more than the beam of {how.beam} can hold; widen the beam or ask for fewer."
        )
    plain, allowed = (model.model, model.shortlist.allowed(source)) if isinstance(model, Restricted) else (model, None)
    if isinstance(plain, CompiledTransformer) and not prefix and watch is None:
        room = plain.room(longest_outputs(source, how), how.beam)
        if room:
            return compiled_search(plain, source, how, n_best, room, allowed)
    shown = watch or (lambda _: None)
    beam = first_beam(model, source, how, n_best, given=len(prefix))
    for token in prefix:
        shown(beam := forced(beam, model, token))
    results: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    while True:
        shown(beam := extended(beam, model, how.beam, steady=not compact))
        beam = settled(beam, how.length_penalty)
        live = beam.live()
        count = int(live.sum())
        if count == 0:
            collect(beam, results)
            return results
        if compact and 4 * count <= 3 * len(live):  # a smaller batch must pay for copying the state
            collect(beam.keep((~live).nonzero().squeeze(1)), results)
            beam = beam.keep(live.nonzero().squeeze(1))


def first_beam(model: Transducer, source: Tensor, how: Decoding, n_best: int, *, given: int = 0) -> Beam:
    """Return the beam before the first step: one empty hypothesis a sentence, with room for what is given."""
    memory = model.encode(source)
    batch = len(source)
    sums = torch.zeros(batch, n_best, dtype=sum_type(source.device), device=source.device)
    tokens = torch.full((batch, n_best, 1), START, device=source.device)
    nothing = torch.full_like(sums, NOTHING)
    longest = longest_outputs(source, how).clamp(min=given + how.extra_length)
    return Beam(
        sentences=torch.arange(batch, device=source.device),
        longest=longest,
        highest_penalty=length_penalty(longest.to(sums.dtype), how.length_penalty),
        tokens=tokens[:, :1],
        log_probabilities=sums[:, :1],
        greedy=torch.zeros_like(tokens[:, 0, 0]),
        finished=Finished(tokens, nothing, nothing, torch.zeros_like(nothing, dtype=torch.bool)),
        memory=memory,
        state=model.start(memory),
    )


def forced(beam: Beam, model: Transducer, token: int) -> Beam:
    """Let every hypothesis go on with a given token, and count what the model thinks of it."""
    logits, state = model.step(beam.tokens[..., -1], beam.memory, beam.state)
    return replace(
        beam,
        tokens=torch.cat([beam.tokens, torch.full_like(beam.tokens[..., :1], token)], dim=-1),
        log_probabilities=beam.log_probabilities + log_probabilities(logits, first=False)[..., token],
        state=state,
    )


def extended(beam: Beam, model: Transducer, width: int, *, steady: bool = False) -> Beam:
    """Read the last tokens and keep the `width` best ways to go on; fewer while there are fewer.

    The greedy one has a place beside them when it is not among them, and if `steady` always.
    """
    logits, state = model.step(beam.tokens[..., -1], beam.memory, beam.state)
    # B W X: no hypothesis can place more than `width`.
    values, tokens = likeliest(logits, width, first=beam.tokens.shape[-1] == 1)
    if width == 1:  # there is nothing to choose between
        return replace(
            beam,
            tokens=torch.cat([beam.tokens, tokens], dim=-1),
            log_probabilities=beam.log_probabilities + values[..., 0],
            state=state,
        )
    choices = values.shape[-1]
    sums = (beam.log_probabilities[..., None] + values).flatten(1)  # B WX
    within = sums[:, : width * choices]  # what stands beside the beam competes with nobody
    best, chosen = within.topk(min(width, within.shape[1]))  # B W
    first_choice = torch.where(beam.greedy < 0, -1, beam.greedy * choices)
    missing = (first_choice >= 0) & (chosen != first_choice[:, None]).all(dim=1)
    if steady or missing.any():
        chosen = torch.cat([chosen, first_choice.clamp(min=0)[:, None]], dim=1)  # B W+1
        best = sums.gather(1, chosen)
        best[:, -1].masked_fill_(~missing, NOTHING)
    parents = chosen // choices
    token = tokens.flatten(1).gather(1, chosen)
    return replace(
        beam,
        tokens=torch.cat([picked(beam.tokens, parents), token[..., None]], dim=-1),
        log_probabilities=best,
        greedy=place_of(first_choice, chosen, token),
        state=state.reorder(parents),
    )


def place_of(wanted: Tensor, chosen: Tensor, token: Tensor) -> Tensor:
    """Return where in `chosen` (B W) the wanted choice (B) stands; -1 if its token is END."""
    found = (chosen == wanted[:, None]) & (token != END)
    return torch.where(found.any(dim=1), found.int().argmax(dim=1), -1)


def settled(beam: Beam, alpha: float) -> Beam:
    """Move what has ended to the finished hypotheses, and end the sentences that nothing live can improve."""
    produced = beam.tokens.shape[-1] - 1
    sums = beam.log_probabilities
    ended = beam.tokens[..., -1] == END
    closing = (sums > NOTHING) & (ended | (beam.longest <= produced)[:, None])
    finished = beam.finished
    if closing.any():
        scores = (sums / length_penalty(float(produced), alpha)).masked_fill(~closing, NOTHING)
        finished = finished.joined_by(Finished(beam.tokens, scores, sums, ~ended))
    sums = sums.masked_fill(closing, NOTHING)
    # Log-probabilities only fall, so a live hypothesis can at best keep its present one up to the longest length.
    bound = sums.amax(dim=1) / beam.highest_penalty
    hopeless = bound <= finished.scores[:, -1]
    return replace(beam, log_probabilities=sums.masked_fill(hopeless[:, None], NOTHING), finished=finished)


def collect(beam: Beam, results: list[list[Hypothesis]]) -> None:
    """Write the finished hypotheses to their sentences' places in the results."""
    finished = beam.finished
    rows = (finished.tokens, finished.scores, finished.log_probabilities, finished.truncated)
    for sentence, *parts in zip(beam.sentences.tolist(), *(part.tolist() for part in rows), strict=True):
        results[sentence] = [
            Hypothesis(produced_tokens(tokens), score, log_probability, truncated)
            for tokens, score, log_probability, truncated in zip(*parts, strict=True)
            if score > NOTHING
        ] or [FAILED]


def picked(rows: Tensor, places: Tensor) -> Tensor:
    """Return rows (B W T) by place: row w of sentence b becomes row places[b, w]."""
    return rows.gather(1, places[..., None].expand(-1, -1, rows.shape[-1]))
