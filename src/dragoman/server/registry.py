"""The models that are served: loaded from their runs, described, and replaced when their training commits new weights.

Runs in the worker. A replaced model stays alive as long as something is decoded with it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from dragoman.checkpoints import checkpoint_dirs, find_damage
from dragoman.decoding.engine import Engine
from dragoman.errors import UserError
from dragoman.models.head_ablation import AttentionKind
from dragoman.recipe import DecodingConfig, DecodingPrecision
from dragoman.run import Run
from dragoman.server.languages import guess_languages
from dragoman.tasks.inspection import attention_sizes
from dragoman.tasks.translator import Translator, load

_WeightsStamp = tuple[str, int, int, int]  # of the file with the weights: its name, number, size and time
_NO_WEIGHTS: _WeightsStamp = ("", 0, 0, 0)
_MAX_CHECKPOINT_MODELS = 3  # models of other checkpoints that were looked at last


@dataclass(eq=False)
class ServedModel:
    """One model, and where it comes from."""

    name: str
    run: Path
    source: str
    target: str
    translator: Translator
    stamp: _WeightsStamp
    precision: DecodingPrecision | None = None  # None: as the recipe says
    decodings: dict[tuple[int | None, int], DecodingConfig] = field(default_factory=dict)

    def decoding_config(self, beam: int | None, n_best: int) -> DecodingConfig:
        """Return how to search, always the same object for the same wish."""
        wish = beam, n_best
        if wish not in self.decodings:
            self.decodings[wish] = self.translator.decoding_config(
                beam and max(beam, n_best), n_best=n_best, precision=self.precision
            )
        return self.decodings[wish]

    def engine(self, config: DecodingConfig) -> Engine:
        """Return an engine that works in the calling thread."""
        own = self.translator
        tokenizers = own.source_tokenizer, own.target_tokenizer
        constrain = partial(own.task.constrain, tokenizers=tokenizers, config=config)
        return Engine(own.model, config, own.device, shortlist=own._shortlist_for(config), constrain=constrain)

    @property
    def label(self) -> str:
        """What the model does, in short: its languages, or its task."""
        return f"{self.source}-{self.target}" if self.source else self.translator.task.name

    @cached_property
    def attention_sizes(self) -> dict[AttentionKind, tuple[int, int]]:
        """How many layers and heads the model has of each kind of attention, of the kinds that it has."""
        return attention_sizes(self.translator.model, self.translator.device)

    def describe(self) -> dict[str, Any]:
        """Return what is known about the model without using it."""
        recipe, task = self.translator.recipe, self.translator.task
        return {
            "name": self.name,
            "source": self.source,
            "target": self.target,
            "task": task.name,
            "noun": task.noun,
            "asks": task.input_hint,
            "languages": task.has_language_pair,
            "plain": task.raw_text_io,
            "whole": task.never_split,
            "goes_on": task.is_language_model,
            "architecture": recipe.model.architecture,
            "layers": recipe.model.layers,
            "width": recipe.model.width,
            "heads": max((heads for _, heads in self.attention_sizes.values()), default=0),
            "attention": {
                kind: {"layers": layers, "heads": heads} for kind, (layers, heads) in self.attention_sizes.items()
            },
            "parameters": sum(each.numel() for each in self.translator.model.parameters()),
            "vocabulary": [len(self.translator.source_tokenizer), len(self.translator.target_tokenizer)],
            "beam": recipe.decoding.beam,
            "precision": self.decoding_config(None, 1).precision,
            "longest": self.translator.max_length,
            "weights": self.stamp[0],
        }


class ModelRegistry:
    """The models by name; the first is the one to use when nobody says which."""

    def __init__(self, device: str, precision: DecodingPrecision | None = None) -> None:
        self.device, self.precision = device, precision
        self.models: dict[str, ServedModel] = {}
        self.checkpoint_models: dict[tuple[str, int], ServedModel] = {}  # as they were at saved checkpoints
        self.checkpoint_lock = threading.Lock()

    def load_all(self, runs: Iterable[str], languages: dict[str, tuple[str, str]]) -> None:
        """Load every run; refuse two that nobody could tell apart."""
        found = [self.load_run(Path(run), languages) for run in runs]
        unused = languages.keys() - {model.name for model in found}
        if unused:
            known = ", ".join(model.name for model in found)
            raise UserError(f"--languages {min(unused)}=…: no run of that name is served; there is {known}.")
        names = Counter(model.name for model in found)
        for model in found:
            self.add(model, ambiguous=names[model.name] > 1)

    def add(self, model: ServedModel, *, ambiguous: bool) -> None:
        """Put a model on the shelf; of two runs of one name each is called by what it does too."""
        if ambiguous:
            model.name = f"{model.name}.{model.label}"
        if model.name in self.models:
            raise UserError(
                f"{self.models[model.name].run} and {model.run} have the same name and do the same "
                f"({model.label}), so nobody could tell them apart; rename one of the directories."
            )
        self.models[model.name] = model

    def load_run(self, run: Path, languages: dict[str, tuple[str, str]]) -> ServedModel:
        """Load one run."""
        stamp = _newest_weights(run)
        translator = load(run, device=self.device)
        data = translator.recipe.data
        source = target = ""  # a model that is no translator leads from no language into another
        if translator.task.has_language_pair:
            source, target = languages.get(translator.name) or guess_languages(
                data.source, data.target, data.pairs, run.name
            )
        elif translator.name in languages:
            raise UserError(f"--languages {translator.name}=…: {run} is a {translator.task.noun}, which has none.")
        served = ServedModel(translator.name, run, source, target, translator, stamp, self.precision)
        served.decoding_config(None, 1)  # says what is wrong with the precision
        return served

    def reload_changed(self, on_change: Callable[[ServedModel], None]) -> None:
        """Load again what has new weights; in one assignment the next request has the new model."""
        for name, model in list(self.models.items()):
            stamp = _newest_weights(model.run, model.stamp)
            if stamp in (model.stamp, _NO_WEIGHTS):
                continue
            translator = load(model.run, device=self.device)
            fresh = replace(model, translator=translator, stamp=stamp, decodings={})
            fresh.engine(fresh.decoding_config(1, 1)).search(
                [translator.source_tokens("a")]
            )  # pack it before anyone waits for it
            self.models[name] = fresh
            on_change(fresh)

    def at_checkpoint(self, name: str, checkpoint: int | None) -> ServedModel:
        """Return a model, or what it was at the step of a saved checkpoint."""
        if checkpoint is None:
            return self.models[name]
        with self.checkpoint_lock:
            if (name, checkpoint) not in self.checkpoint_models:
                now = self.models[name]
                then = load(now.run, device=self.device, checkpoint=checkpoint)
                stamp = (f"checkpoints/{checkpoint:09d}", 0, 0, 0)
                self.checkpoint_models[name, checkpoint] = replace(now, translator=then, stamp=stamp, decodings={})
                for old in list(self.checkpoint_models)[:-_MAX_CHECKPOINT_MODELS]:
                    del self.checkpoint_models[old]
            return self.checkpoint_models[name, checkpoint]


def _newest_weights(folder: Path, known: _WeightsStamp = _NO_WEIGHTS) -> _WeightsStamp:
    """Say which weights `load` would take now; a checkpoint that is known to be whole is not read again."""
    run = Run(folder)
    try:
        found = run.weights_file.stat()
        return run.weights_file.name, found.st_ino, found.st_size, found.st_mtime_ns
    except FileNotFoundError:
        pass
    for place in checkpoint_dirs(run.checkpoints_dir):
        stamp = f"checkpoints/{place.name}", place.stat().st_ino, 0, 0
        if stamp == known or find_damage(place) is None:
            return stamp
    return _NO_WEIGHTS
