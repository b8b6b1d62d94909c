"""The engine: decodes any number of sentences in batches and returns the results in the order of the inputs.

There are two ways to batch. The default fills a budget of tokens with sentences of similar length. Exact batches give
every matrix product a shape that does not depend on the other sentences, so that scores are bit-identical.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import groupby
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dragoman.decoding.hypothesis import EMPTY_HYPOTHESIS, Hypothesis, output_tokens
from dragoman.decoding.sampling import sample
from dragoman.decoding.sampling_options import OUTPUT_SAMPLING, SamplingOptions
from dragoman.decoding.scoring import score_targets
from dragoman.decoding.search import OnStep, beam_search
from dragoman.decoding.shortlist import Shortlist, ShortlistedTransducer
from dragoman.decoding.source import to_source
from dragoman.models.attention import unfused_attention
from dragoman.models.transducer import FRAMES_PER_POSITION, IncrementalDecoder, Source, Transducer
from dragoman.native.model import compile_model
from dragoman.parallel import SINGLE_THREAD, ThreadPool
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START

_Result = TypeVar("_Result")
_TokenIds = Sequence[int]
SourceItem = _TokenIds | npt.NDArray[np.float32]  # the tokens of a text, or the frames (L F) of a signal
_OnSentencesDone = Callable[[int], None]

_EXACT_ROWS = 16  # a matrix product of fewer than 12 rows uses another kernel and rounds differently
_EXACT_LENGTH_MULTIPLE = 8  # lengths are rounded up to a multiple of this
_SCORING_WIDTH = 4  # weight of a scored position in the budget: the logits of all positions are in memory at once
_BATCHES_PER_THREAD = 4  # at least, if there are enough sentences
_MIN_BATCH_TOKENS = 512  # smaller batches are not worth a call
_MIN_COUNTED_LENGTH = (
    16  # shorter sentences count as this long, so that batches of one-word lines stay below thousands of rows
)


class Engine:
    """Searches, samples and scores with a model on `device`."""

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
        """The model that is searched: compiled if possible, restricted to a shortlist, and constrained."""
        model = compile_model(self.model, self.config.precision)
        return self.constrain(model if self.shortlist is None else ShortlistedTransducer(model, self.shortlist))

    def search(
        self,
        sources: Sequence[SourceItem],
        *,
        n_best: int = 1,
        exact: bool = False,
        progress: _OnSentencesDone | None = None,
        prefix: _TokenIds = (),
        on_step: OnStep | None = None,
        pause: Callable[[], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the `n_best` best hypotheses for each source, the best first; each begins with `prefix`.

        `on_step` is called with the beam after each step. `pause` is called from time to time; what it raises ends the
        search.
        """
        work = partial(
            beam_search,
            self.search_model,
            config=self.config,
            n_best=n_best,
            compact=not exact,
            prefix=prefix,
            on_step=on_step,
            pause=pause,
        )
        return self.run_batches(
            sources, work, empty=[EMPTY_HYPOTHESIS], width=self.config.beam, exact=exact, progress=progress
        )

    def sample(
        self,
        sources: Sequence[SourceItem],
        options: SamplingOptions = OUTPUT_SAMPLING,
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
        sources: Sequence[SourceItem],
        targets: Sequence[_TokenIds],
        *,
        exact: bool = False,
        progress: _OnSentencesDone | None = None,
    ) -> list[Hypothesis]:
        """Return the given targets, each ending with END, with their scores."""
        work = partial(score_targets, self.model, config=self.config)
        scores = self.run_batches(
            sources, work, targets=targets, empty=EMPTY_HYPOTHESIS, width=_SCORING_WIDTH, exact=exact, progress=progress
        )
        return [
            # The only output for an empty source is the empty one.
            Hypothesis(output_tokens([START, *target]), -torch.inf, -torch.inf, truncated=END not in target)
            if _is_empty(source) and not _is_empty(target)
            else hypothesis
            for source, target, hypothesis in zip(sources, targets, scores, strict=True)
        ]

    def run_batches(
        self,
        sources: Sequence[SourceItem],
        work: Callable[..., list[_Result]],
        *,
        empty: _Result,
        targets: Sequence[_TokenIds] | None = None,
        width: int = 1,
        exact: bool = False,
        progress: _OnSentencesDone | None = None,
    ) -> list[_Result]:
        """Return the result of work(source), or work(source, target), for each source, in order.

        `width` is the number of hypotheses per sentence, `empty` the result for a source without tokens, which is not
        decoded. `progress` is called after each batch with its number of sentences.
        """
        columns: list[Sequence[SourceItem]] = [sources] if targets is None else [sources, targets]
        results = [empty] * len(sources)
        decoded = [index for index, source in enumerate(sources) if not _is_empty(source)]
        notify = progress or (lambda _: None)
        notify(len(sources) - len(decoded))
        shapes = {index: tuple(_positions(column[index]) for column in columns) for index in decoded}

        def decode(batch: list[int]) -> list[_Result]:
            with _inference_context(exact):
                source, *rest = (self._pad_batch([column[n] for n in batch], exact) for column in columns)
                return work(source, *(target.values for target in rest))

        jobs = list(exact_batches(shapes) if exact else batches_by_length(shapes, self._batch_budget(shapes, width)))
        with _eval_mode(self.model):
            for batch, batch_results in zip(jobs, self.pool.map(decode, jobs), strict=True):
                for index, result in zip(batch, batch_results, strict=True):
                    results[index] = result
                notify(len(set(batch)))
        return results

    def _batch_budget(self, shapes: dict[int, tuple[int, ...]], width: int) -> int:
        """Return the tokens per batch, such that each thread gets several batches and none waits long."""
        share = sum(map(max, shapes.values())) // (_BATCHES_PER_THREAD * self.pool.size)
        return min(self.config.batch_tokens // width, max(share, _MIN_BATCH_TOKENS))

    def _pad_batch(self, rows: Sequence[SourceItem], exact: bool) -> Source:
        """Return rows of tokens, padded with PAD, or of frames, padded with zeros."""
        longest = _round_up_length(max(map(len, rows))) if exact else max(map(len, rows))
        lengths = np.array([len(row) for row in rows])
        first = np.asarray(rows[0])
        values = np.full((len(rows), longest, *first.shape[1:]), PAD, dtype=first.dtype)
        for padded, row in zip(values, rows, strict=True):
            padded[: len(row)] = row
        return to_source(values, lengths, self.device)


@contextmanager
def _inference_context(exact: bool) -> Iterator[None]:
    """Disable gradients in this thread and, if `exact`, fused attention."""
    with torch.inference_mode(), unfused_attention() if exact else nullcontext():
        yield


@contextmanager
def _eval_mode(model: Transducer) -> Iterator[None]:
    """Put the model into evaluation mode, and back into training mode afterwards if it was."""
    if not (isinstance(model, nn.Module) and model.training):
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()


def _is_empty(source: SourceItem) -> bool:
    """Return whether there is no frame, or no token before END."""
    return len(source) == 0 if isinstance(source, np.ndarray) else all(token in (PAD, END) for token in source)


def _positions(source: SourceItem) -> int:
    """Return the number of positions that an encoder makes of a source."""
    return -(-len(source) // FRAMES_PER_POSITION) if isinstance(source, np.ndarray) else len(source)


def _round_up_length(length: int) -> int:
    """Return the padded length in an exact batch, which depends on the sentence alone."""
    return -(-length // _EXACT_LENGTH_MULTIPLE) * _EXACT_LENGTH_MULTIPLE


def batches_by_length(shapes: dict[int, tuple[int, ...]], budget: int) -> Iterator[list[int]]:
    """Yield batches of indices of `shapes`, the longest first, so that memory runs out at once or not at all."""
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
    """Yield batches of one padded shape and _EXACT_ROWS rows each; incomplete ones repeat their last sentence."""

    def padded_shape(number: int) -> tuple[int, ...]:
        return tuple(map(_round_up_length, shapes[number]))

    for _, group in groupby(sorted(shapes, key=padded_shape, reverse=True), key=padded_shape):
        numbers = list(group)
        for first in range(0, len(numbers), _EXACT_ROWS):
            batch = numbers[first : first + _EXACT_ROWS]
            yield batch + batch[-1:] * (_EXACT_ROWS - len(batch))
