"""The engine: sentences of any length and number in, results in the same order out, batches in between.

Two ways to batch. The usual one fills a budget of tokens with sentences of like length. The exact one gives every
matrix product the same shape whatever the neighbours are, so that a sentence's scores are the same to the last bit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dragoman.crew import ONE, Crew
from dragoman.decoding.hypothesis import EMPTY, Hypothesis, produced_tokens
from dragoman.decoding.sampling import sample
from dragoman.decoding.scoring import score
from dragoman.decoding.search import Watch, beam_search
from dragoman.decoding.shortlist import Restricted, Shortlist
from dragoman.model.attention import explicit
from dragoman.model.compiled import compiled
from dragoman.model.transducer import Transducer
from dragoman.recipe import Decoding
from dragoman.tokens import END, PAD, START

Result = TypeVar("Result")
Tokens = Sequence[int]
Progress = Callable[[int], None]

EXACT_ROWS = 16  # with fewer than 12 rows a matrix product takes another path and rounds differently
EXACT_STEP = 8  # lengths are rounded up to a multiple of this
SCORED = 4  # a position that is scored counts as so many: the logits of all positions stand in memory at once
BATCHES_EACH = 4  # of the crew, at least, if there is enough work
SMALLEST = 512  # tokens in a batch that are worth a call
SHORTEST = 16  # shorter sentences count as this long, so that a batch of one-word lines does not have thousands of rows


class Engine:
    """Runs searches on a model that is on `device`."""

    def __init__(
        self,
        model: Transducer,
        how: Decoding,
        device: torch.device | str = "cpu",
        *,
        crew: Crew = ONE,
        shortlist: Shortlist | None = None,
        constrain: Callable[[Any], Any] | None = None,
    ) -> None:
        self.model = model
        self.how = how
        self.device = torch.device(device)
        self.crew = crew
        self.shortlist = shortlist
        self.constrain = constrain or (lambda model: model)

    @property
    def used(self) -> Any:
        """The model as it is searched with: compiled if it can be, restricted to a shortlist, and constrained."""
        model = compiled(self.model, self.how.precision)
        return self.constrain(model if self.shortlist is None else Restricted(model, self.shortlist))

    def search(
        self,
        sources: Sequence[Tokens],
        *,
        n_best: int = 1,
        exact: bool = False,
        progress: Progress | None = None,
        prefix: Tokens = (),
        watch: Watch | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the `n_best` best hypotheses for each source, the best first; all of them begin with `prefix`."""
        work = partial(
            beam_search, self.used, how=self.how, n_best=n_best, compact=not exact, prefix=prefix, watch=watch
        )
        return self.run(sources, work, empty=[EMPTY], width=self.how.beam, exact=exact, progress=progress)

    def sample(
        self,
        sources: Sequence[Tokens],
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        n: int = 1,
        exact: bool = False,
        progress: Progress | None = None,
    ) -> list[list[Hypothesis]]:
        """Draw `n` outputs for each source; `sample` explains the numbers."""
        work = partial(
            sample, self.used, how=self.how, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, n=n
        )
        return self.run(sources, work, empty=[EMPTY] * n, width=n, exact=exact, progress=progress)

    def score(
        self,
        sources: Sequence[Tokens],
        targets: Sequence[Tokens],
        *,
        exact: bool = False,
        progress: Progress | None = None,
    ) -> list[Hypothesis]:
        """Return the scores of given targets, each with its END."""
        work = partial(score, self.model, how=self.how)
        scores = self.run(sources, work, targets=targets, empty=EMPTY, width=SCORED, exact=exact, progress=progress)
        return [
            # An empty source has one translation, the empty one.
            Hypothesis(produced_tokens([START, *target]), -torch.inf, -torch.inf, truncated=END not in target)
            if is_empty(source) and not is_empty(target)
            else hypothesis
            for source, target, hypothesis in zip(sources, targets, scores, strict=True)
        ]

    def run(
        self,
        sources: Sequence[Tokens],
        work: Callable[..., list[Result]],
        *,
        empty: Result,
        targets: Sequence[Tokens] | None = None,
        width: int = 1,
        exact: bool = False,
        progress: Progress | None = None,
    ) -> list[Result]:
        """Return what work(source), or work(source, target), gives for each source, in order.

        `width` is how many hypotheses of a sentence are worked on at a time, `empty` the result for a source without
        tokens, which the model is never asked for. `progress` is told the number of sentences after each batch.
        """
        columns = [sources] if targets is None else [sources, targets]
        results = [empty] * len(sources)
        asked = [number for number, source in enumerate(sources) if not is_empty(source)]
        told = progress or (lambda _: None)
        told(len(sources) - len(asked))
        shapes = {number: tuple(len(column[number]) for column in columns) for number in asked}

        def done(batch: list[int]) -> list[Result]:
            with quietly(exact):
                return work(*(self.padded([column[n] for n in batch], exact) for column in columns))

        jobs = list(exact_batches(shapes) if exact else batches(shapes, self.budget(shapes, width)))
        with evaluating(self.model):
            for batch, found in zip(jobs, self.crew.each(done, jobs), strict=True):
                for number, result in zip(batch, found, strict=True):
                    results[number] = result
                told(len(set(batch)))
        return results

    def budget(self, shapes: dict[int, tuple[int, ...]], width: int) -> int:
        """Return how many tokens a batch may have: each of the crew gets some batches, so that none waits long."""
        share = sum(map(max, shapes.values())) // (BATCHES_EACH * self.crew.size)
        return min(self.how.batch_tokens // width, max(share, SMALLEST))

    def padded(self, rows: Sequence[Tokens], exact: bool) -> Tensor:
        """Return rows of tokens as one tensor, the shorter ones filled with PAD."""
        longest = rounded(max(map(len, rows))) if exact else max(map(len, rows))
        return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], device=self.device)


@contextmanager
def quietly(exact: bool) -> Iterator[None]:
    """Compute without gradients, and if exact by plain products, in this thread."""
    with torch.inference_mode(), explicit() if exact else nullcontext():
        yield


@contextmanager
def evaluating(model: Transducer) -> Iterator[None]:
    """Run the model without dropout; leave it as it was found."""
    if not (isinstance(model, nn.Module) and model.training):
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()


def is_empty(tokens: Tokens) -> bool:
    """Say whether nothing stands before END."""
    return all(token in (PAD, END) for token in tokens)


def rounded(length: int) -> int:
    """Return the length that a sentence is padded to in an exact batch: a function of that sentence alone."""
    return -(-length // EXACT_STEP) * EXACT_STEP


def batches(shapes: dict[int, tuple[int, ...]], budget: int) -> Iterator[list[int]]:
    """Yield batches of numbered shapes, the longest first, so that memory runs out at once or not at all."""
    batch: list[int] = []
    longest = 0
    for number in sorted(shapes, key=lambda n: shapes[n], reverse=True):
        length = max(SHORTEST, *shapes[number])
        if batch and max(length, longest) * (len(batch) + 1) > budget:
            yield batch
            batch, longest = [], 0
        batch.append(number)
        longest = max(length, longest)
    if batch:
        yield batch


def exact_batches(shapes: dict[int, tuple[int, ...]]) -> Iterator[list[int]]:
    """Yield batches of one padded shape and EXACT_ROWS rows each; the last ones repeat a sentence to fill up."""

    def padded_shape(number: int) -> tuple[int, ...]:
        return tuple(map(rounded, shapes[number]))

    for _, group in groupby(sorted(shapes, key=padded_shape, reverse=True), key=padded_shape):
        numbers = list(group)
        for first in range(0, len(numbers), EXACT_ROWS):
            batch = numbers[first : first + EXACT_ROWS]
            yield batch + batch[-1:] * (EXACT_ROWS - len(batch))
