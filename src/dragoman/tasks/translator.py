"""A trained model in use: text in, text out."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor

from dragoman.checkpoints import WEIGHTS_FILE, checkpoint_dirs, find_damage, newest_checkpoint, read_progress
from dragoman.decoding.engine import Engine
from dragoman.decoding.generate import SamplingOptions
from dragoman.decoding.hypothesis import Hypothesis
from dragoman.decoding.shortlist import Shortlist
from dragoman.decoding.windows import join_texts, split_long_text
from dragoman.errors import UserError
from dragoman.model_config import ModelConfig, TransformerConfig
from dragoman.model_files import check_weights_match, copy_weights, read_tensors, read_tokenizers
from dragoman.models.architectures import build_model as build_architecture
from dragoman.models.head_ablation import HeadIndex
from dragoman.models.transducer import IncrementalDecoder, Transducer
from dragoman.models.weights import named_weights as weights_of
from dragoman.parallel import thread_pool
from dragoman.recipe import DecodingConfig, DecodingPrecision, Recipe
from dragoman.run import Run
from dragoman.tasks.building import build_model
from dragoman.tasks.continuation import Continuation, ContinuationStream, ignore_notice
from dragoman.tasks.inspection import AblatedModels, inspect_model
from dragoman.tasks.registry import task_for
from dragoman.tasks.shortlist import read_shortlist
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END
from dragoman.viewer.record import AttentionRecord

_LINES_PER_CHUNK = 1024  # of a stream: enough to sort by length, few enough to see progress


@dataclass(frozen=True)
class Translation:
    """One output for one text, with what the search knows about it."""

    text: str
    score: float  # the log-probability divided by the length penalty: what translations are ranked by
    log_probability: float
    tokens: tuple[str, ...]  # the pieces it was written in
    truncated: bool  # whether the search had to end it at the longest length allowed
    parts: int = 1  # that the text was read in, because it is longer than any in training


@dataclass(frozen=True)
class TranslationSampling:
    """How to draw translations at random instead of searching for the best."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


class Translator:
    """A model with its vocabularies, ready to use."""

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
    ) -> None:
        self.recipe = recipe
        self.task = task_for(recipe)
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.device = device
        self.run = run
        self.name = run.folder.resolve().name if run else ""
        # Longer texts than any in training are read badly; they are better read in parts.
        self.max_length = min(recipe.data.longest, max_length or recipe.data.longest)
        self.ablated_models = AblatedModels()

    @overload
    def translate(self, text: str, *, details: Literal[False] = False, **options: Any) -> str: ...
    @overload
    def translate(self, text: Sequence[str], *, details: Literal[False] = False, **options: Any) -> list[str]: ...
    @overload
    def translate(self, text: str | Sequence[str], *, details: Literal[True], **options: Any) -> Any: ...
    def translate(self, text: str | Sequence[str], *, details: bool = False, n_best: int = 1, **options: Any) -> Any:
        """Translate a text, or a list of them; `n_best` above 1 gives a list for each, `details` gives scores too."""
        if isinstance(text, str):
            return self.translate([text], details=details, n_best=n_best, **options)[0]  # type: ignore[call-overload]
        found = self.search(text, n_best=n_best, **options)
        results = [row if details else [translation.text for translation in row] for row in found]
        return results if n_best > 1 else [row[0] for row in results]

    def search(
        self,
        texts: Sequence[str],
        *,
        n_best: int = 1,
        beam: int | None = None,
        length_penalty: float | None = None,
        precision: DecodingPrecision | None = None,
        shortlist: bool | None = None,
        sampling: TranslationSampling | None = None,
        exact: bool = False,
        progress: Callable[[int], None] | None = None,
        prefix: str = "",
    ) -> list[list[Translation]]:
        """Return the `n_best` translations of each text, the best first; an empty text has one, the empty one.

        With a `prefix` the translation of each text, or of its first part, begins with it.
        """
        if self.task.is_language_model:
            return [self._sample_continuations(prefix + text, n_best, sampling) for text in texts]
        engine = self.build_engine(self.decoding_config(beam, length_penalty, n_best, precision, shortlist))
        texts = [self.task.to_model_input(text) for text in texts]
        parts = [self.split_text(text) for text in texts]  # of each text, mostly one
        sources = [self.source_tokens(part) for row in parts for part in row]
        if prefix and sampling is None:
            found = self._search_with_prefix(
                engine, parts, sources, prefix, n_best=n_best, exact=exact, progress=progress
            )
        elif sampling is None:
            found = engine.search(sources, n_best=n_best, exact=exact, progress=progress)
        else:
            found = engine.sample(sources, n=n_best, exact=exact, progress=progress, **vars(sampling))
        results = iter(found)
        rows = [self.merge_parts(list(islice(results, len(row))), n_best) for row in parts]
        return [[self.format_output(text, one) for one in row] for text, row in zip(texts, rows, strict=True)]

    def _sample_continuations(self, prompt: str, count: int, sampling: TranslationSampling | None) -> list[Translation]:
        """Return how a language model goes on with a text, for as many tokens as the recipe has as extra length."""
        draw, length = (
            SamplingOptions(**vars(sampling)) if sampling else SamplingOptions(),
            self.recipe.decoding.extra_length,
        )
        found = []
        for number in range(count):
            writing = self.stream(prompt, length=length, sampling=draw, sample=number)
            text = "".join(writing)
            pieces, total = tuple(self.target_tokenizer.spell(writing.tokens)), sum(writing.log_probabilities)
            ended = writing.result().ended
            found.append(Translation(text, total / max(1, len(pieces)), total, pieces, truncated=ended == "length"))
        return found

    def format_output(self, source: str, translation: Translation) -> Translation:
        """Return an output as the task shows it."""
        return replace(translation, text=self.task.from_model_output(source, translation.text))

    def _search_with_prefix(
        self, engine: Engine, parts: list[list[str]], sources: list[list[int]], prefix: str, **options: Any
    ) -> list[list[Hypothesis]]:
        """Search with the first part of each text beginning with `prefix`, and the others as they please."""
        starts = {sum(map(len, parts[:number])) for number in range(len(parts))}
        first = [number for number in range(len(sources)) if number in starts]
        others = [number for number in range(len(sources)) if number not in starts]
        begun = engine.search([sources[number] for number in first], prefix=self.prefix_tokens(prefix), **options)
        free = engine.search([sources[number] for number in others], **options)
        found = dict(zip([*first, *others], [*begun, *free], strict=True))
        return [found[number] for number in range(len(sources))]

    def build_engine(self, config: DecodingConfig, model: Transducer | None = None) -> Engine:
        """Return an engine that searches like this, on all cores; in another model if one is given."""
        crew = thread_pool(torch.get_num_threads() if self.device.type == "cpu" else 1)
        tokenizers = self.source_tokenizer, self.target_tokenizer

        def constrain(plain: IncrementalDecoder) -> IncrementalDecoder:
            return self.task.constrain(plain, tokenizers, config)

        used = model or self.model
        return Engine(used, config, self.device, pool=crew, shortlist=self._shortlist_for(config), constrain=constrain)

    def _shortlist_for(self, config: DecodingConfig) -> Shortlist | None:
        """Return the shortlist if it is to be used."""
        return self.shortlist if config.shortlist and self.run else None

    @cached_property
    def shortlist(self) -> Shortlist:
        """What each source piece may become, read when it is first needed; a model in training has none yet."""
        assert self.run, "only a model in a run directory has a shortlist"
        return read_shortlist(self.run, self.source_tokenizer, self.target_tokenizer)

    def decoding_config(
        self,
        beam: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        precision: DecodingPrecision | None = None,
        shortlist: bool | None = None,
    ) -> DecodingConfig:
        """Return how to search: as the recipe says, unless told otherwise; n best need a beam as wide."""
        own = self.recipe.decoding
        width = max(own.beam, n_best) if beam is None else beam
        penalty = own.length_penalty if length_penalty is None else length_penalty
        listed = own.shortlist if shortlist is None else shortlist
        kind = precision or own.precision
        chosen = {"beam": width, "length_penalty": penalty, "precision": kind, "shortlist": listed}
        settings = {**own.model_dump(), **chosen}
        return Recipe.from_table({"decoding": settings}, origin="options").decoding

    def translate_lines(
        self, lines: Iterable[str], chunk_size: int = _LINES_PER_CHUNK, **options: Any
    ) -> Iterator[Any]:
        """Translate a stream of lines, some at a time; one result comes out for each line that goes in, in order."""
        stream = iter(lines)
        while some := list(islice(stream, chunk_size)):
            yield from self.translate(some, **options)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Translation]:
        """Return how probable the model finds given translations."""
        if len(sources) != len(targets):
            raise UserError(f"{len(sources)} sources cannot have {len(targets)} translations; give one for each.")
        texts = [self.task.to_model_input(text) for text in sources]
        answers = [self.task.to_model_target(text, answer) for text, answer in zip(texts, targets, strict=True)]
        written = [[*self.target_tokenizer.encode(answer), END] for answer in answers]
        found = self.build_engine(self.recipe.decoding).score([self.source_tokens(text) for text in texts], written)
        return [self.format_output(text, self.to_translation(one)) for text, one in zip(texts, found, strict=True)]

    def inspect(
        self,
        text: str,
        *,
        target: str | None = None,
        prefix: str = "",
        without: Iterable[HeadIndex] = (),
        beam: int | None = None,
        trace: bool = False,
    ) -> AttentionRecord:
        """Record every attention weight while the model reads `text` and writes its translation.

        `target` is read along instead of a translation of its own, `prefix` is how the translation has to begin. The
        heads in `without`, each (kind, layer, head), are switched off. With `trace` all is kept that the search tried.
        """
        return inspect_model(self, text, target=target, prefix=prefix, without=without, beam=beam, trace=trace)

    def generate(self, prompt: str = "", *, samples: int = 1, details: bool = False, **options: Any) -> Any:
        """Go on with a text, of a language model; `stream` explains the options. With several samples a list."""
        found: list[str | Continuation] = []
        for number in range(samples):
            writing = self.stream(prompt, sample=number, **options)
            text = "".join(writing)
            found.append(writing.result() if details else text)
        return found if samples > 1 else found[0]

    def stream(
        self,
        prompt: str = "",
        *,
        length: int = 500,
        sampling: SamplingOptions | None = None,
        stop: str = "",
        sample: int = 0,
        on_notice: Callable[[str], None] = ignore_notice,
        **sampling_options: Any,
    ) -> ContinuationStream:
        """Return an iterator over a text as a language model goes on with it, a piece at a time.

        Up to `length` tokens are drawn as `draw`, or temperature, top_k, top_p and seed, say; none from where `stop`
        would begin. `say` hears what a person should know.
        """
        chosen = sampling or SamplingOptions(**sampling_options)
        return ContinuationStream(self, prompt, chosen, length=length, stop=stop, sample=sample, on_notice=on_notice)

    def ablated_model(self, heads: tuple[HeadIndex, ...]) -> Transducer:
        """Return the model without some of its heads."""
        return self.ablated_models.get(self.model, heads)

    def prefix_tokens(self, prefix: str) -> list[int]:
        """Return the tokens of the beginning of a translation; spaces at its end are the next piece's affair."""
        return self.target_tokenizer.encode(prefix.rstrip()) if prefix.strip() else []

    def split_text(self, text: str) -> list[str]:
        """Return a text in parts that the model can read, cut at sentence ends where possible."""
        longest = self.max_length - 1  # END has its place too
        if self.task.never_split:
            return [text]
        if len(text.encode("utf-8", "replace")) < longest:  # no text has more pieces than bytes, and a space before it
            return [text]
        return split_long_text(text, longest, lambda part: len(self.source_tokenizer.encode(part)))

    def source_tokens(self, text: str) -> list[int]:
        """Return what the encoder reads; of a blank text nothing."""
        return [*self.source_tokenizer.encode(text), END] if text.strip() else []

    def merge_parts(self, parts: list[list[Hypothesis]], n_best: int) -> list[Translation]:
        """Put the parts of one text together again: the best of each, then the second best of each, …"""
        rows = [[self.to_translation(one) for one in hypotheses] for hypotheses in parts]
        if len(rows) == 1:
            return rows[0]
        return [self._join_translations([row[min(rank, len(row) - 1)] for row in rows]) for rank in range(n_best)]

    def _join_translations(self, parts: list[Translation]) -> Translation:
        """Make one translation of the translations of consecutive parts."""
        return Translation(
            text=join_texts([part.text for part in parts]),
            score=sum(part.score for part in parts) / max(1, len(parts)),
            log_probability=sum(part.log_probability for part in parts),
            tokens=tuple(token for part in parts for token in part.tokens),
            truncated=any(part.truncated for part in parts),
            parts=len(parts),
        )

    def to_translation(self, hypothesis: Hypothesis) -> Translation:
        """Turn tokens into text."""
        return Translation(
            text=self.target_tokenizer.decode(hypothesis.tokens),
            score=hypothesis.score,
            log_probability=hypothesis.log_probability,
            tokens=tuple(self.target_tokenizer.spell(hypothesis.tokens)),
            truncated=hypothesis.truncated,
        )

    def parse(self, text: str | Sequence[str], **options: Any) -> Any:
        """Parse a sentence, or a list of them, with a parser; `translate` explains the options."""
        return self._require_task("parse").translate(text, **options)

    def pronounce(self, text: str | Sequence[str], **options: Any) -> Any:
        """Pronounce a word, or a list of them, with a pronouncer; `translate` explains the options."""
        return self._require_task("pronounce").translate(text, **options)

    def inflect(self, text: str | Sequence[str], **options: Any) -> Any:
        """Inflect "lemma⇥tags", or a list of them, with a model of inflection; `translate` explains the options."""
        return self._require_task("inflect").translate(text, **options)

    def _require_task(self, verb: str) -> "Translator":
        """Return this model if it has learned what the verb says."""
        if self.task.name != verb:
            raise UserError(f"{self.run or 'The model'} is a {self.task.noun}; it cannot {verb}, but {self.task.name}.")
        return self

    def batch_of_one(self, tokens: Sequence[int]) -> Tensor:
        """Return tokens as a batch of one."""
        return torch.tensor([list(tokens)], dtype=torch.long, device=self.device)


def load(run: str | os.PathLike[str], *, device: str = "auto", checkpoint: int | None = None) -> Translator:
    """Load the model in a run directory, to translate with it; or what it was at the step of a saved checkpoint."""
    place = Run(run)
    recipe = place.read_recipe()
    source, target = read_tokenizers(place, recipe.tokenizer.joint)
    weights, where, facts = _read_weights(place) if checkpoint is None else _read_checkpoint_weights(place, checkpoint)
    _check_vocabulary(place, facts, source, target)
    if not _has_expected_shapes(weights, recipe.model, len(source)):
        with torch.device("meta"):  # a recipe that asks for more than there is must not be granted the memory first
            check_weights_match(weights, weights_of(build_architecture(recipe.model, len(source), len(target))), where)
    model = build_model(recipe, source, target)
    copy_weights(weights, weights_of(model), where)
    to = select_device(device)
    longest = _parse_int(facts.get("longest_source"))
    return Translator(recipe, model.to(to).eval(), source, target, to, run=place, max_length=longest)


def _has_expected_shapes(weights: dict[str, Tensor], config: ModelConfig, vocabulary: int) -> bool:
    """Return whether a few weights have the shapes of this Transformer; checking all of them would take seconds."""
    if not isinstance(config, TransformerConfig):
        return False
    heads = (config.key_width or config.width // config.heads) * config.heads
    expected = {
        "source_embedding.weight": (vocabulary, config.width),
        "encoder.0.attention.key.weight": (heads, config.width),
        f"decoder.{config.decoder_depth - 1}.feed_forward.inner.weight": (config.inner_width, config.width),
    }
    found = {name: tuple(weights[name].shape) for name in expected if name in weights}
    usual = config.positions == "sinusoidal" and config.value_width is None
    return usual and found == expected


def _parse_int(fact: str | None) -> int:
    """Read a number that stands beside the weights, 0 if there is none."""
    return int(fact) if fact and fact.isdecimal() else 0


def _read_weights(run: Run) -> tuple[dict[str, Tensor], Path, dict[str, str]]:
    """Read the weights to use; while a training goes on, those of its newest checkpoint."""
    where = run.weights_file
    if not where.exists():
        place, _ = newest_checkpoint(run.checkpoints_dir)
        if place is None:
            raise UserError(f"{run} has no weights yet: neither model.safetensors nor a whole checkpoint is there.")
        where = place / WEIGHTS_FILE
    weights, facts = read_tensors(run.require_inside(where))
    return weights, where, facts


def _read_checkpoint_weights(run: Run, step: int) -> tuple[dict[str, Tensor], Path, dict[str, str]]:
    """Read the weights of a saved checkpoint, if it is there and whole."""
    place = run.checkpoints_dir / f"{step:09d}"
    wrong = find_damage(run.require_inside(place))
    if wrong:
        known = ", ".join(str(int(there.name)) for there in reversed(checkpoint_dirs(run.checkpoints_dir))) or "none"
        raise UserError(f"{run} has no whole checkpoint of step {step} ({wrong}); it has {known}.")
    weights, _ = read_tensors(run.require_inside(place / WEIGHTS_FILE))
    return weights, place / WEIGHTS_FILE, {"longest_source": str(read_progress(place).longest)}


def _check_vocabulary(run: Run, facts: dict[str, str], source: Tokenizer, target: Tokenizer) -> None:
    """Refuse tokenizers other than those that the weights were trained with."""
    for side, tokenizer in (("source", source), ("target", target)):
        expected = facts.get(f"{side}_tokenizer", tokenizer.fingerprint)
        if expected != tokenizer.fingerprint:
            raise UserError(
                f"{run}: the tokenizer of the {side} is not the one that the model was trained with (it has "
                f"{len(tokenizer)} pieces, the model knows {facts.get(f'{side}_vocabulary', 'others')}). "
                "Restore the file, or train again."
            )


def select_device(name: str) -> torch.device:
    """Return the device to compute on, the fastest there is if the choice is ours."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(name for name, there in available.items() if there))
    if not available.get(name, False):
        there = ", ".join(name for name, there in available.items() if there)
        raise UserError(f'This machine has no device "{name}" that torch can use; it has {there}.')
    return torch.device(name)
