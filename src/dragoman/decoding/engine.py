"""The engine: sentences of any length and number in, results in the same order out, batches in between.

Two ways to batch. The usual one fills a budget of tokens with sentences of like length. The exact one gives every
matrix product the same shape whatever the neighbours are, so that a sentence's scores are the same to the last bit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor, nn

from dragoman.decoding.hypothesis import EMPTY_HYPOTHESIS, Hypothesis, output_tokens
from dragoman.decoding.sampling import DEFAULT_SAMPLING, SamplingOptions, sample
from dragoman.decoding.scoring import score_targets
from dragoman.decoding.search import OnStep, beam_search
from dragoman.decoding.shortlist import Shortlist, ShortlistedTransducer
from dragoman.models.attention import unfused_attention
from dragoman.models.transducer import IncrementalDecoder, Source, Transducer
from dragoman.native.model import compile_model
from dragoman.parallel import SINGLE_THREAD, ThreadPool
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START

_Result = TypeVar("_Result")
_TokenIds = Sequence[int]
_OnSentencesDone = Callable[[int], None]

_EXACT_ROWS = 16  # with fewer than 12 rows a matrix product takes another path and rounds differently
_EXACT_LENGTH_MULTIPLE = 8  # lengths are rounded up to a multiple of this
_SCORING_WIDTH = 4  # a position that is scored counts as so many: the logits of all positions stand in memory at once
_BATCHES_PER_THREAD = 4  # of the crew, at least, if there is enough work
_MIN_BATCH_TOKENS = 512  # tokens in a batch that are worth a call
_MIN_COUNTED_LENGTH = (
    16  # shorter sentences count as this long, so that a batch of one-word lines does not have thousands of rows
)


class Engine:
    """Runs searches on a model that is on `device`."""

    def __init__(
        self,
        model: Transducer,
        config: DecodingConfig,
        device: torch.device | str = "cpu",
        *,
        pool: ThreadPool = SINGLE_THREAD,
        shortlist: Shortlist | None = None,
        constrain: Callable[[IncrementalDecoder], IncrementalDecoder] | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.device = torch.device(device)
        self.pool = pool
        self.shortlist = shortlist
        self.constrain = constrain or (lambda model: model)

    @property
    def search_model(self) -> IncrementalDecoder:
        """The model as it is searched with: compiled if it can be, restricted to a shortlist, and constrained."""
        model = compile_model(self.model, self.config.precision)
        return self.constrain(model if self.shortlist is None else ShortlistedTransducer(model, self.shortlist))

    def search(
        self,
        sources: Sequence[_TokenIds],
        *,
        n_best: int = 1,
        exact: bool = False,
        progress: _OnSentencesDone | None = None,
        prefix: _TokenIds = (),
        on_step: OnStep | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the `n_best` best hypotheses for each source, the best first; all of them begin with `prefix`."""
        work = partial(
            beam_search,
            self.search_model,
            config=self.config,
            n_best=n_best,
            compact=not exact,
            prefix=prefix,
            on_step=on_step,
        )
        return self.run_batches(
            sources, work, empty=[EMPTY_HYPOTHESIS], width=self.config.beam, exact=exact, progress=progress
        )

    def sample(
        self,
        sources: Sequence[_TokenIds],
        options: SamplingOptions = DEFAULT_SAMPLING,
        *,
        n: int = 1,
        exact: bool = False,
        progress: _OnSentencesDone | None = None,
    ) -> list[list[Hypothesis]]:
        """Draw `n` outputs for each source."""
        work = partial(sample, self.search_model, config=self.config, options=options, n=n)
        return self.run_batches(sources, work, empty=[EMPTY_HYPOTHESIS] * n, width=n, exact=exact, progress=progress)

    def score(
        self,
        sources: Sequence[_TokenIds],
        targets: Sequence[_TokenIds],
        *,
        exact: bool = False,
        progress: _OnSentencesDone | None = None,
    ) -> list[Hypothesis]:
        """Return the scores of given targets, each with its END."""
        work = partial(score_targets, self.model, config=self.config)
        scores = self.run_batches(
            sources, work, targets=targets, empty=EMPTY_HYPOTHESIS, width=_SCORING_WIDTH, exact=exact, progress=progress
        )
        return [
            # An empty source has one translation, the empty one.
            Hypothesis(output_tokens([START, *target]), -torch.inf, -torch.inf, truncated=END not in target)
            if _is_empty(source) and not _is_empty(target)
            else hypothesis
            for source, target, hypothesis in zip(sources, targets, scores, strict=True)
        ]

    def run_batches(
        self,
        sources: Sequence[_TokenIds],
        work: Callable[..., list[_Result]],
        *,
        empty: _Result,
        targets: Sequence[_TokenIds] | None = None,
        width: int = 1,
        exact: bool = False,
        progress: _OnSentencesDone | None = None,
    ) -> list[_Result]:
        """Return what work(source), or work(source, target), gives for each source, in order.

        `width` is how many hypotheses of a sentence are worked on at a time, `empty` the result for a source without
        tokens, which the model is never asked for. `progress` is told the number of sentences after each batch.
        """
        columns = [sources] if targets is None else [sources, targets]
        results = [empty] * len(sources)
        asked = [number for number, source in enumerate(sources) if not _is_empty(source)]
        told = progress or (lambda _: None)
        told(len(sources) - len(asked))
        shapes = {number: tuple(len(column[number]) for column in columns) for number in asked}

        def done(batch: list[int]) -> list[_Result]:
            with _inference_context(exact):
                source, *rest = (self._pad_batch([column[n] for n in batch], exact) for column in columns)
                return work(Source.from_ids(source), *rest)

        jobs = list(exact_batches(shapes) if exact else batches_by_length(shapes, self._batch_budget(shapes, width)))
        with _eval_mode(self.model):
            for batch, found in zip(jobs, self.pool.map(done, jobs), strict=True):
                for number, result in zip(batch, found, strict=True):
                    results[number] = result
                told(len(set(batch)))
        return results

    def _batch_budget(self, shapes: dict[int, tuple[int, ...]], width: int) -> int:
        """Return how many tokens a batch may have: each of the crew gets some batches, so that none waits long."""
        share = sum(map(max, shapes.values())) // (_BATCHES_PER_THREAD * self.pool.size)
        return min(self.config.batch_tokens // width, max(share, _MIN_BATCH_TOKENS))

    def _pad_batch(self, rows: Sequence[_TokenIds], exact: bool) -> Tensor:
        """Return rows of tokens as one tensor, the shorter ones filled with PAD."""
        longest = _round_up_length(max(map(len, rows))) if exact else max(map(len, rows))
        return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], device=self.device)


@contextmanager
def _inference_context(exact: bool) -> Iterator[None]:
    """Compute without gradients, and if exact by plain products, in this thread."""
    with torch.inference_mode(), unfused_attention() if exact else nullcontext():
        yield


@contextmanager
def _eval_mode(model: Transducer) -> Iterator[None]:
    """Run the model without dropout; leave it as it was found."""
    if not (isinstance(model, nn.Module) and model.training):
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()


def _is_empty(tokens: _TokenIds) -> bool:
    """Say whether nothing stands before END."""
    return all(token in (PAD, END) for token in tokens)


def _round_up_length(length: int) -> int:
    """Return the length that a sentence is padded to in an exact batch: a function of that sentence alone."""
    return -(-length // _EXACT_LENGTH_MULTIPLE) * _EXACT_LENGTH_MULTIPLE


def batches_by_length(shapes: dict[int, tuple[int, ...]], budget: int) -> Iterator[list[int]]:
    """Yield batches of numbered shapes, the longest first, so that memory runs out at once or not at all."""
    batch: list[int] = []
    longest = 0
    for number in sorted(shapes, key=lambda n: shapes[n], reverse=True):
        length = max(_MIN_COUNTED_LENGTH, *shapes[number])
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
        return tuple(map(_round_up_length, shapes[number]))

    for _, group in groupby(sorted(shapes, key=padded_shape, reverse=True), key=padded_shape):
        numbers = list(group)
        for first in range(0, len(numbers), _EXACT_ROWS):
            batch = numbers[first : first + _EXACT_ROWS]
            yield batch + batch[-1:] * (_EXACT_ROWS - len(batch))
