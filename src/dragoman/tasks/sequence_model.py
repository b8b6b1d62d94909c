"""A trained model with its tokenizers: text in, text out.

`SequenceModel` searches, scores and inspects for every task. Its subclasses, next to their tasks (`tasks/translate.py`,
`tasks/parse.py`, …), add the verb of the task. `load` returns the class that fits the run.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, Unpack, overload

import torch
from torch import Tensor

from dragoman.checkpoints import WEIGHTS_FILE, find_damage, intact_checkpoints, newest_checkpoint, read_progress
from dragoman.decoding.engine import Engine
from dragoman.decoding.hypothesis import Hypothesis
from dragoman.decoding.sampling_options import SamplingOptions
from dragoman.decoding.shortlist import Shortlist
from dragoman.errors import UserError
from dragoman.model_config import AttentionKind, HeadIndex
from dragoman.model_files import HeaderCheck, copy_weights, read_tensors, read_tokenizers
from dragoman.models.architectures import build_model as build_architecture
from dragoman.models.transducer import IncrementalDecoder, Transducer
from dragoman.models.weights import named_weights, weights_without_values
from dragoman.parallel import thread_pool
from dragoman.recipe import MAX_LONGEST, DecodingConfig, DecodingPrecision, Recipe
from dragoman.run import Run
from dragoman.tasks.attention import build_record
from dragoman.tasks.inspection import AblatedModels, InspectedSource, InspectionRequest, inspect_model, inspected_text
from dragoman.tasks.registry import build_model, model_class_for, task_for
from dragoman.tasks.shortlist import read_shortlist
from dragoman.tensor_header import StoredTensor, check_tensors_match, share, whole_number
from dragoman.text.sentences import SegmentedText, split_sentences
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END
from dragoman.viewer.record import AttentionRecord, AttentionWeights, DecodingStep

_LINES_PER_CHUNK = 1024  # enough to sort by length, few enough to see progress
# A model reads several sentences at once if at least this share of the lines that it was trained on had several.
_MIN_PARAGRAPH_SHARE = 0.2


@dataclass(frozen=True)
class Prediction:
    """One output for one text, with its score."""

    text: str
    score: float  # log-probability divided by the length penalty; outputs are ranked by it
    log_probability: float
    tokens: tuple[str, ...]  # the pieces of the output
    truncated: bool  # whether the output was cut at the maximum length
    parts: int = 1  # in how many segments the text was read: sentences, and parts of very long ones
    long_sentences: int = 0  # sentences that were read in several parts, because they are longer than any in training


class SearchOptions(TypedDict, total=False):
    """Options of a search; missing ones, or None, are taken from the recipe.

    `exact` makes scores independent of the batch to the last bit. `progress` is called with the number of texts done.
    """

    beam: int | None
    length_penalty: float | None
    precision: DecodingPrecision | None
    shortlist: bool | None
    sampling: SamplingOptions | None  # draw outputs at random instead of searching
    exact: bool
    progress: Callable[[int], None] | None
    prefix: str  # how each output must begin
    split: bool  # False: read all sentences of a line at once


class SequenceModel:
    """A trained model with its tokenizers, ready to use; `dragoman.load` returns the subclass that fits the task."""

    def __init__(
        self,
        recipe: Recipe,
        model: Transducer,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        device: torch.device,
        *,
        run: Run | None = None,
        max_length: int = 0,
        paragraph_share: float = 0.0,
    ) -> None:
        self.recipe = recipe
        self.task = task_for(recipe)
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.device = device
        self.run = run
        self.name = run.folder.resolve().name if run else ""
        # Quality drops on texts longer than those of the training; they are translated in segments.
        self.max_length = min(recipe.data.longest, max_length or recipe.data.longest)
        # A model that was trained on single sentences translates the first of several and omits the others.
        self.reads_sentences = not self.task.never_split and paragraph_share < _MIN_PARAGRAPH_SHARE
        self.ablated_models = AblatedModels()

    @classmethod
    def load(cls, run: str | os.PathLike[str], *, device: str = "auto", checkpoint: int | None = None) -> Self:
        """Load the model in a run directory; refuse a run of a task that this class is not for."""
        directory = Run(run)
        recipe = directory.read_recipe()
        fitting, noun = model_class_for(recipe), task_for(recipe).noun
        if not issubclass(fitting, cls):
            raise UserError(f"{run} is a {noun}; load it with dragoman.load or {fitting.__name__}.load.")
        source, target = read_tokenizers(directory, recipe.tokenizer.joint)
        expected = weights_without_values(lambda: build_architecture(recipe.model, len(source), len(target)))

        def check(path: Path, found: Mapping[str, StoredTensor], metadata: Mapping[str, str]) -> None:
            # A recipe of somebody else may ask for any size: nothing is allocated before the file has these weights.
            _check_vocabulary(directory, metadata, source, target)
            check_tensors_match(found, expected, path)

        weights, path, metadata = (
            _read_weights(directory, check)
            if checkpoint is None
            else _read_checkpoint_weights(directory, checkpoint, check)
        )
        model = build_model(recipe, source, target)
        copy_weights(weights, named_weights(model), path)
        torch_device = select_device(device)
        return fitting(
            recipe, model.to(torch_device).eval(), source, target, torch_device,
            run=directory, max_length=whole_number(metadata, "longest_source", 2, MAX_LONGEST, path),
            paragraph_share=share(metadata, "paragraph_share", path),
        )  # fmt: skip

    @overload
    def predict(  # type: ignore[overload-overlap]  # a string is a sequence of strings, too
        self, text: str, *, n_best: Literal[1] = 1, details: Literal[False] = False, **options: Unpack[SearchOptions]
    ) -> str: ...
    @overload
    def predict(
        self,
        text: Sequence[str],
        *,
        n_best: Literal[1] = 1,
        details: Literal[False] = False,
        **options: Unpack[SearchOptions],
    ) -> list[str]: ...
    @overload
    def predict(  # type: ignore[overload-overlap]  # a string is a sequence of strings, too
        self, text: str, *, n_best: Literal[1] = 1, details: Literal[True], **options: Unpack[SearchOptions]
    ) -> Prediction: ...
    @overload
    def predict(
        self, text: Sequence[str], *, n_best: Literal[1] = 1, details: Literal[True], **options: Unpack[SearchOptions]
    ) -> list[Prediction]: ...
    @overload
    def predict(
        self, text: str | Sequence[str], *, n_best: int, details: bool = False, **options: Unpack[SearchOptions]
    ) -> Any: ...
    def predict(
        self, text: str | Sequence[str], *, n_best: int = 1, details: bool = False, **options: Unpack[SearchOptions]
    ) -> Any:
        """Return the output for a text, or a list of outputs for a list of texts.

        With `n_best` above 1 there is a list of outputs, the best first, for each text. With `details` each output is a
        `Prediction` with its score and tokens instead of a string. The other options are those of `search`.
        """
        if isinstance(text, str):
            return self.predict([text], details=details, n_best=n_best, **options)[0]
        ranked = self.search(text, n_best=n_best, **options)
        results = [row if details else [prediction.text for prediction in row] for row in ranked]
        return results if n_best > 1 else [row[0] for row in results]

    def predict_lines(
        self,
        lines: Iterable[str],
        *,
        chunk_size: int | None = None,
        n_best: int = 1,
        details: bool = False,
        **options: Unpack[SearchOptions],
    ) -> Iterator[Any]:
        """Yield the output for each line of a stream, in order; lines are read and decoded `chunk_size` at a time.

        If reading a line fails, the outputs for all lines before it are yielded first.
        """
        stream, size = iter(lines), chunk_size or _LINES_PER_CHUNK
        error: UserError | None = None
        chunk = [""] * size
        while len(chunk) == size and not error:
            chunk = []
            try:
                for line in islice(stream, size):
                    chunk.append(line)  # keep the lines before one that cannot be read
            except UserError as caught:
                error = caught
            yield from self.predict(chunk, n_best=n_best, details=details, **options)
        if error:
            raise error

    def search(
        self,
        texts: Sequence[str],
        *,
        n_best: int = 1,
        beam: int | None = None,
        length_penalty: float | None = None,
        precision: DecodingPrecision | None = None,
        shortlist: bool | None = None,
        sampling: SamplingOptions | None = None,
        exact: bool = False,
        progress: Callable[[int], None] | None = None,
        prefix: str = "",
        split: bool = True,
    ) -> list[list[Prediction]]:
        """Return the `n_best` outputs for each text, the best first; an empty text has one, the empty output.

        A text of several sentences is translated sentence by sentence, unless `split` is False or the model was trained
        on such texts. Its n-th best output consists of the n-th best of every sentence; its log-probability is the sum
        and its score the mean of theirs.

        Options that are None are taken from the recipe. With a `prefix`, the output for each text (for its first
        segment, if it is read in several) begins with it. With `sampling`, outputs are drawn at random instead.
        """
        engine = self.build_engine(self.decoding_config(beam, length_penalty, n_best, precision, shortlist))
        inputs = [self.task.to_model_input(text) for text in texts]
        segmented = [self.split_text(text, split=split) for text in inputs]
        sources = [self.source_tokens(segment) for text in segmented for segment in text.sentences]
        if progress is not None:
            progress = _scaled_progress(progress, len(sources), len(texts))
        if sampling is not None:
            hypotheses = engine.sample(sources, sampling, n=n_best, exact=exact, progress=progress)
        elif prefix:
            counts = [len(text.sentences) for text in segmented]
            hypotheses = self._search_with_prefix(
                engine, counts, sources, prefix, n_best=n_best, exact=exact, progress=progress
            )
        else:
            hypotheses = engine.search(sources, n_best=n_best, exact=exact, progress=progress)
        remaining = iter(hypotheses)
        rows = [self.merge_segments(text, list(islice(remaining, len(text.sentences))), n_best) for text in segmented]
        return [
            [self.format_output(text, hypothesis) for hypothesis in row] for text, row in zip(inputs, rows, strict=True)
        ]

    def score(self, sources: Sequence[str], targets: Sequence[str], *, split: bool = True) -> list[Prediction]:
        """Return the given targets with the scores that the model assigns to them.

        If a source has several sentences, and its target as many, they are scored in pairs, as `search` would translate
        them; otherwise, or if `split` is False, both are scored as a whole.
        """
        if len(sources) != len(targets):
            raise UserError(
                f"There are {len(sources)} sources but {len(targets)} targets; target n must belong to source n."
            )
        inputs = [self.task.to_model_input(text) for text in sources]
        model_targets = [self.task.to_model_target(text, target) for text, target in zip(inputs, targets, strict=True)]
        pairs = [self._sentence_pairs(*pair, split=split) for pair in zip(inputs, model_targets, strict=True)]
        scored = self.build_engine(self.recipe.decoding).score(
            [self.source_tokens(source) for source_text, _ in pairs for source in source_text.sentences],
            [[*self.target_tokenizer.encode(target), END] for _, text in pairs for target in text.sentences],
        )
        remaining = iter(scored)
        return [
            self.format_output(
                text, self.merge_segments(target, [[next(remaining)] for _ in target.sentences], n_best=1)[0]
            )
            for text, (_, target) in zip(inputs, pairs, strict=True)
        ]

    def _sentence_pairs(self, source: str, target: str, *, split: bool) -> tuple[SegmentedText, SegmentedText]:
        """Split a source and its target into sentences if both have equally many; otherwise return both whole."""
        sources = self.split_text(source, split=split)
        targets = split_sentences(target, lines_only=not (split and self.reads_sentences))
        if self.task.never_split or len(sources.sentences) != len(targets.sentences):
            return SegmentedText((source,), ("", "")), SegmentedText((target,), ("", ""))
        return sources, targets

    def inspect(
        self,
        text: str,
        *,
        target: str | None = None,
        prefix: str = "",
        ablate_heads: Iterable[HeadIndex] = (),
        beam: int | None = None,
        trace: bool = False,
        on_step: Callable[[], None] | None = None,
    ) -> AttentionRecord:
        """Record every attention weight while the model reads `text` and writes its output.

        The text is read as a whole, also if it has several sentences. With `target` this text is read instead of an
        output of the model's own; with `prefix` the output begins with it. The heads in `ablate_heads`, each (kind,
        layer, head), are ablated. With `trace` the record has every hypothesis that the search considered. `on_step` is
        called between the steps of the search; an exception in it ends the inspection.
        """
        return inspect_model(self, InspectionRequest(text, target, prefix, tuple(ablate_heads), beam, trace, on_step))

    def inspected_source(self, text: Any, other: str) -> InspectedSource:
        """Return what the model reads when `text` is inspected together with `other`, a target or its beginning."""
        return inspected_text(self, text, other)

    def inspection_record(
        self,
        source: InspectedSource,
        target: tuple[int, ...],
        weights: Mapping[AttentionKind, AttentionWeights],
        steps: tuple[DecodingStep, ...],
    ) -> AttentionRecord:
        """Return the record of one source and its target, from the weights (L H T S) of each kind of attention."""
        return build_record(self, source.text, [int(token) for token in source.item], target, weights, steps)

    def build_engine(self, config: DecodingConfig, model: Transducer | None = None) -> Engine:
        """Return an engine that searches with this config on all cores; in `model` instead of the own one if given."""
        pool = thread_pool(torch.get_num_threads() if self.device.type == "cpu" else 1)
        tokenizers = self.source_tokenizer, self.target_tokenizer

        def constrain(unconstrained: IncrementalDecoder) -> IncrementalDecoder:
            return self.task.constrain(unconstrained, tokenizers, config)

        return Engine(
            model or self.model, config, self.device,
            pool=pool, shortlist=self.shortlist_for(config), constrain=constrain,
        )  # fmt: skip

    def decoding_config(
        self,
        beam: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        precision: DecodingPrecision | None = None,
        shortlist: bool | None = None,
    ) -> DecodingConfig:
        """Return the recipe's decoding config with the given changes; the default beam is at least `n_best` wide."""
        defaults = self.recipe.decoding
        changes = {
            "beam": max(defaults.beam, n_best) if beam is None else beam,
            "length_penalty": defaults.length_penalty if length_penalty is None else length_penalty,
            "precision": precision or defaults.precision,
            "shortlist": defaults.shortlist if shortlist is None else shortlist,
        }
        return Recipe.from_table({"decoding": {**defaults.model_dump(), **changes}}, origin="options").decoding

    def shortlist_for(self, config: DecodingConfig) -> Shortlist | None:
        """Return the run's shortlist if the config asks for it; a model in training has none yet."""
        return self._shortlist if config.shortlist and self.run else None

    @cached_property
    def _shortlist(self) -> Shortlist:
        assert self.run, "only a model in a run directory has a shortlist"
        return read_shortlist(self.run, self.source_tokenizer, self.target_tokenizer)

    def ablated_model(self, heads: tuple[HeadIndex, ...]) -> Transducer:
        """Return the model with some of its heads ablated."""
        return self.ablated_models.get(self.model, heads)

    def split_text(self, text: str, *, split: bool = True, pause: Callable[[], None] | None = None) -> SegmentedText:
        """Return a text as segments that the model reads one at a time.

        They are sentences, or with `split` False, and for a model trained on several sentences per line, as many
        sentences as fit. A sentence longer than any in the training data is split further. `pause` is called whenever
        the tokens of a part have been counted.
        """
        if self.task.never_split:
            return SegmentedText((text,), ("", ""))
        label, text = self.task.split_label(text)
        segmented = split_sentences(text, lines_only=not (split and self.reads_sentences))
        max_tokens = self.max_length - 1  # one is END
        # A text has at most one token per byte, and one for the space that is put before it.
        if any(len((label + segment).encode("utf-8", "replace")) >= max_tokens for segment in segmented.sentences):

            def count(part: str) -> int:
                tokens = len(self.source_tokenizer.encode(label + part))
                if pause:
                    pause()
                return tokens

            segmented = segmented.split_long(max_tokens, count)
        return replace(segmented, sentences=tuple(label + segment for segment in segmented.sentences))

    def merge_segments(self, text: SegmentedText, segments: list[list[Hypothesis]], n_best: int) -> list[Prediction]:
        """Join the hypotheses for the segments of a text: the best of each, then the second best of each, and so on."""
        return self.join_segments(text, [list(map(self.to_prediction, ranked)) for ranked in segments], n_best)

    def join_segments(self, text: SegmentedText, rows: list[list[Prediction]], n_best: int) -> list[Prediction]:
        """Join the outputs for the segments of a text, as `merge_segments` does."""
        if len(rows) == 1:
            return [replace(prediction, text=text.fill([prediction.text])) for prediction in rows[0]]
        ranks = min(n_best, max(map(len, rows), default=1))
        return [_join_predictions(text, [row[min(rank, len(row) - 1)] for row in rows]) for rank in range(ranks)]

    def format_output(self, source: str, prediction: Prediction) -> Prediction:
        """Return an output as the task presents it; `source` is what the model read."""
        return replace(prediction, text=self.task.from_model_output(source, prediction.text))

    def to_prediction(self, hypothesis: Hypothesis) -> Prediction:
        """Return a hypothesis as text."""
        return Prediction(
            text=self.target_tokenizer.decode(hypothesis.tokens),
            score=hypothesis.score,
            log_probability=hypothesis.log_probability,
            tokens=tuple(self.target_tokenizer.spell(hypothesis.tokens)),
            truncated=hypothesis.truncated,
        )

    def source_tokens(self, text: str) -> list[int]:
        """Return the tokens that the encoder reads; none for a blank text."""
        return [*self.source_tokenizer.encode(text), END] if text.strip() else []

    def prefix_tokens(self, prefix: str) -> list[int]:
        """Return the tokens of the beginning of an output; spaces at its end belong to the next token."""
        return self.target_tokenizer.encode(prefix.rstrip()) if prefix.strip() else []

    def batch_of_one(self, tokens: Sequence[int]) -> Tensor:
        """Return tokens as a tensor of one row."""
        return torch.tensor([list(tokens)], dtype=torch.long, device=self.device)

    def _search_with_prefix(
        self, engine: Engine, counts: list[int], sources: list[list[int]], prefix: str, **options: Any
    ) -> list[list[Hypothesis]]:
        """Search with `prefix` for the first segment of each text, and without for the others."""
        first = [sum(counts[:index]) for index in range(len(counts))]
        others = [index for index in range(len(sources)) if index not in set(first)]
        forced = engine.search([sources[index] for index in first], prefix=self.prefix_tokens(prefix), **options)
        free = engine.search([sources[index] for index in others], **options)
        hypotheses = dict(zip([*first, *others], [*forced, *free], strict=True))
        return [hypotheses[index] for index in range(len(sources))]


def load(run: str | os.PathLike[str], *, device: str = "auto", checkpoint: int | None = None) -> SequenceModel:
    """Load the model in a run directory, or what it was at the step of a saved checkpoint.

    The result is a `Translator`, `Parser`, `Pronouncer`, `Inflector`, `LanguageModel` or `Transcriber`, whichever fits
    the run's task.
    `Translator.load(run)` and so on do the same and refuse the run of another task.
    """
    return SequenceModel.load(run, device=device, checkpoint=checkpoint)


def select_device(name: str) -> torch.device:
    """Return the device of this name; "auto" is the fastest that is available."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [device for device, is_available in available.items() if is_available]
    if name != "auto" and name not in usable:
        raise UserError(f'Device "{name}" is not available on this machine; available: {", ".join(usable)}.')
    return torch.device(usable[0] if name == "auto" else name)


def _join_predictions(text: SegmentedText, parts: list[Prediction]) -> Prediction:
    """Return the outputs for consecutive segments of a text as one; that of a blank text is empty."""
    return Prediction(
        text=text.fill([part.text for part in parts]) if parts else "",
        score=sum(part.score for part in parts) / max(1, len(parts)),
        log_probability=sum(part.log_probability for part in parts),
        tokens=tuple(token for part in parts for token in part.tokens),
        truncated=any(part.truncated for part in parts),
        parts=len(parts),
        long_sentences=text.long_sentences,
    )


def _scaled_progress(progress: Callable[[int], None], segments: int, texts: int) -> Callable[[int], None]:
    """Return a callback for finished segments that reports finished texts, assuming that all have equally many."""
    done = reported = 0

    def on_segments(count: int) -> None:
        nonlocal done, reported
        done += count
        finished = done * texts // segments if done < segments else texts
        progress(finished - reported)
        reported = finished

    return on_segments


def _read_weights(run: Run, check: HeaderCheck) -> tuple[dict[str, Tensor], Path, dict[str, str]]:
    """Read the weights to use; those of the newest checkpoint while a training runs."""
    path = run.weights_file
    if not path.exists():
        checkpoint, _ = newest_checkpoint(run.checkpoints_dir)
        if checkpoint is None:
            raise UserError(f"{run} has no weights yet: neither model.safetensors nor an intact checkpoint.")
        path = checkpoint / WEIGHTS_FILE
    weights, metadata = read_tensors(path, check)
    return weights, path, metadata


def _read_checkpoint_weights(run: Run, step: int, check: HeaderCheck) -> tuple[dict[str, Tensor], Path, dict[str, str]]:
    path = run.checkpoints_dir / f"{step:09d}"
    damage = find_damage(path)
    if damage:
        steps = sorted(int(checkpoint.name) for checkpoint in intact_checkpoints(run.checkpoints_dir))
        available = ", ".join(map(str, steps)) or "none"
        raise UserError(f"{run} has no intact checkpoint at step {step} ({damage}); available: {available}.")
    weights, _ = read_tensors(path / WEIGHTS_FILE, check)
    progress = read_progress(path)
    facts = {"longest_source": str(progress.longest), "paragraph_share": f"{progress.paragraph_share:.4f}"}
    return weights, path / WEIGHTS_FILE, facts


def _check_vocabulary(run: Run, metadata: Mapping[str, str], source: Tokenizer, target: Tokenizer) -> None:
    """Refuse tokenizers other than those that the weights were trained with."""
    for side, tokenizer in (("source", source), ("target", target)):
        expected = metadata.get(f"{side}_tokenizer", tokenizer.fingerprint)
        if expected != tokenizer.fingerprint:
            raise UserError(
                f"{run}: the {side} tokenizer is not the one that the model was trained with: the contents of "
                f"its file differ (vocabulary size {len(tokenizer)}; in training, "
                f"{metadata.get(f'{side}_vocabulary', 'unknown')}). "
                "Restore the original file, or train again."
            )
