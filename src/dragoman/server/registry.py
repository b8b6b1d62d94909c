"""The models that are served: loaded from run directories, and reloaded when a training writes new weights.

Runs in the worker. A replaced model stays alive while something is decoded with it.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.checkpoints import checkpoint_dirs, find_damage
from dragoman.data.sound_files import import_soundfile
from dragoman.decoding.engine import Engine, SourceItem
from dragoman.decoding.sampling_options import TEXT_SAMPLING
from dragoman.decoding.source import to_source
from dragoman.errors import UserError
from dragoman.model_config import AttentionKind
from dragoman.recipe import DecodingConfig, DecodingPrecision
from dragoman.run import Run
from dragoman.server.languages import guess_languages
from dragoman.server.limits import Limits
from dragoman.tasks.inspection import attention_sizes
from dragoman.tasks.sequence_model import SequenceModel, load
from dragoman.tasks.transcribe import Sound, Transcriber, TranscriptionTask

logger = logging.getLogger("dragoman.server")
_WeightsStamp = tuple[str, int, int, int]  # of the weights file: name, inode, size, modification time
_NO_WEIGHTS: _WeightsStamp = ("", 0, 0, 0)
_LIMITED_SETTINGS = ("beam", "extra_length", "batch_tokens")  # of [decoding]
_PROBE_HERTZ, _PROBE_SECONDS = 440, 0.5
_MAX_CHECKPOINT_MODELS = 3  # models of saved checkpoints that are kept in memory


@dataclass(eq=False)
class ServedModel:
    """One model and the run that it was loaded from."""

    name: str
    run: Path
    source: str
    target: str
    translator: SequenceModel
    stamp: _WeightsStamp
    precision: DecodingPrecision | None = None  # None: the recipe's
    _configs: dict[tuple[int | None, int], DecodingConfig] = field(default_factory=dict)

    def decoding_config(self, beam: int | None, n_best: int) -> DecodingConfig:
        """Return the decoding config; equal arguments give the same object, which marks sentences of one batch."""
        key = beam, n_best
        if key not in self._configs:
            self._configs[key] = self.translator.decoding_config(
                beam and max(beam, n_best), n_best=n_best, precision=self.precision
            )
        return self._configs[key]

    def engine(self, config: DecodingConfig) -> Engine:
        """Return an engine for the calling thread."""
        translator = self.translator
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        constrain = partial(translator.task.constrain, tokenizers=tokenizers, config=config)
        shortlist = translator.shortlist_for(config)
        return Engine(translator.model, config, translator.device, shortlist=shortlist, constrain=constrain)

    @property
    def label(self) -> str:
        """The languages of a translator, the task of another model."""
        return f"{self.source}-{self.target}" if self.source else self.translator.task.name

    @cached_property
    def attention_sizes(self) -> dict[AttentionKind, tuple[int, int]]:
        """The number of layers and heads of each kind of attention that the model has."""
        source, device = None, self.translator.device
        if isinstance(self.translator, Transcriber):
            frames = np.asarray(self.probe_source())
            source = to_source(frames[None], np.array([len(frames)]), device)
        return attention_sizes(self.translator.model, device, source)

    def warm_up(self) -> None:
        """Decode something, so that whatever is compiled or packed at first use is ready before a request comes."""
        self.engine(self.decoding_config(None, 1)).search([self.probe_source()])

    def probe_source(self) -> SourceItem:
        """Return something short that the model can read: a letter, or a sound."""
        if isinstance(self.translator, Transcriber):
            return next(self.translator.hear([self.probe_sound()])).frames
        return self.translator.source_tokens("a")

    def probe_sound(self) -> Sound:
        """Return a short tone at the sampling rate of a transcriber."""
        rate = self.audio_rate
        assert rate, "the model reads text"
        phases = 2 * np.pi * _PROBE_HERTZ / rate * np.arange(round(_PROBE_SECONDS * rate))
        return Sound((np.sin(phases) / 2).astype(np.float32), rate)

    @property
    def frame_width(self) -> int:
        """The number of features in a frame; 0 for a model that reads text."""
        task = self.translator.task
        return task.frame_width if isinstance(task, TranscriptionTask) else 0

    @property
    def audio_rate(self) -> int | None:
        """The sampling rate at which a transcriber hears; None for a model that reads text."""
        task = self.translator.task
        return task.audio.rate if isinstance(task, TranscriptionTask) else None

    def describe(self) -> dict[str, Any]:
        """Return the model's entry in `/v1/info`."""
        recipe, task = self.translator.recipe, self.translator.task
        return {
            "name": self.name,
            "source": self.source,
            "target": self.target,
            "task": task.name,
            "noun": task.noun,
            "input_hint": task.input_hint,
            "has_language_pair": task.has_language_pair,
            "raw_text_io": task.raw_text_io,
            "reads_signals": task.reads_signals,
            "sampling_rate": self.audio_rate,
            "never_split": task.never_split,
            "reads_sentences": self.translator.reads_sentences,
            "is_language_model": task.is_language_model,
            "sampling": asdict(TEXT_SAMPLING) if task.is_language_model else None,  # the defaults
            "architecture": recipe.model.architecture,
            "layers": recipe.model.layers,
            "width": recipe.model.width,
            "heads": max((heads for _, heads in self.attention_sizes.values()), default=0),
            "attention": {
                kind: {"layers": layers, "heads": heads} for kind, (layers, heads) in self.attention_sizes.items()
            },
            "parameters": sum(parameter.numel() for parameter in self.translator.model.parameters()),
            "vocabulary": [len(self.translator.source_tokenizer), len(self.translator.target_tokenizer)],
            "beam": recipe.decoding.beam,  # at most the server's limit
            "precision": self.decoding_config(None, 1).precision,
            "max_length": self.translator.max_length,
            "weights": self.stamp[0],
        }


class ModelRegistry:
    """The served models by name; the first is the default."""

    def __init__(self, device: str, precision: DecodingPrecision | None = None, limits: Limits | None = None) -> None:
        self.device, self.precision, self.limits = device, precision, limits or Limits()
        self.models: dict[str, ServedModel] = {}
        self.checkpoint_models: dict[tuple[str, int], ServedModel] = {}
        self.checkpoint_lock = threading.Lock()

    def load_all(self, runs: Iterable[str], languages: dict[str, tuple[str, str]]) -> None:
        """Load every run; raise UserError if two have the same name and languages."""
        models = [self.load_run(Path(run), languages) for run in runs]
        unused = languages.keys() - {model.name for model in models}
        if unused:
            known = ", ".join(model.name for model in models)
            raise UserError(f"--languages {min(unused)}=…: no run with this name is served; expected one of {known}.")
        names = Counter(model.name for model in models)
        for model in models:
            self.add(model, ambiguous=names[model.name] > 1)

    def add(self, model: ServedModel, *, ambiguous: bool) -> None:
        """Add a model; the names of runs with equal names get their languages or task appended."""
        if ambiguous:
            model.name = f"{model.name}.{model.label}"
        if model.name in self.models:
            raise UserError(
                f"{self.models[model.name].run} and {model.run} have the same name and the same "
                f"languages or task ({model.label}); rename one of the directories."
            )
        self.models[model.name] = model

    def load_run(self, run: Path, languages: dict[str, tuple[str, str]]) -> ServedModel:
        """Load one run."""
        stamp = _newest_weights(run)
        translator = self._load(run)
        if translator.task.reads_signals:
            import_soundfile()  # raises if it is not installed
        source = target = ""  # of a model that does not translate
        if translator.task.has_language_pair:
            source, target = languages.get(translator.name) or guess_languages(translator.recipe.data, run.name)
        elif translator.name in languages:
            noun = translator.task.noun
            raise UserError(f"--languages {translator.name}=…: {run} is a {noun}, which has no languages.")
        served = ServedModel(translator.name, run, source, target, translator, stamp, self.precision)
        served.decoding_config(None, 1)  # raises if the precision is not supported
        return served

    def _load(self, run: Path, checkpoint: int | None = None) -> SequenceModel:
        """Load a model; settings of its recipe that exceed the limits of the server are lowered."""
        translator = load(run, device=self.device, checkpoint=checkpoint)
        decoding = translator.recipe.decoding
        lowered = {
            name: getattr(self.limits, f"recipe_{name}")
            for name in _LIMITED_SETTINGS
            if getattr(decoding, name) > getattr(self.limits, f"recipe_{name}")
        }
        for name, limit in lowered.items():
            logger.warning(
                "%s: [decoding] %s = %d exceeds what the server accepts; %d is used. --limit recipe_%s=… changes it.",
                run, name, getattr(decoding, name), limit, name,
            )  # fmt: skip
        if lowered:
            translator.recipe = translator.recipe.model_copy(update={"decoding": decoding.model_copy(update=lowered)})
        return translator

    def reload_changed(self, on_change: Callable[[ServedModel], None]) -> None:
        """Reload models whose weights have changed; requests that are being decoded finish with the old ones."""
        for name, model in list(self.models.items()):
            stamp = _newest_weights(model.run, model.stamp)
            if stamp in (model.stamp, _NO_WEIGHTS):
                continue
            translator = self._load(model.run)
            fresh = replace(model, translator=translator, stamp=stamp, _configs={})
            fresh.warm_up()
            self.models[name] = fresh
            on_change(fresh)

    def at_checkpoint(self, name: str, checkpoint: int | None) -> ServedModel:
        """Return a model, or the same model with the weights of a saved checkpoint."""
        if checkpoint is None:
            return self.models[name]
        with self.checkpoint_lock:
            if (name, checkpoint) not in self.checkpoint_models:
                current = self.models[name]
                saved = self._load(current.run, checkpoint)
                stamp = (f"checkpoints/{checkpoint:09d}", 0, 0, 0)
                self.checkpoint_models[name, checkpoint] = replace(current, translator=saved, stamp=stamp, _configs={})
                for old in list(self.checkpoint_models)[:-_MAX_CHECKPOINT_MODELS]:
                    del self.checkpoint_models[old]
            return self.checkpoint_models[name, checkpoint]


def _newest_weights(folder: Path, known: _WeightsStamp = _NO_WEIGHTS) -> _WeightsStamp:
    """Return the stamp of the weights that `load` would read; a `known` checkpoint is not checked again."""
    run = Run(folder)
    try:
        status = run.weights_file.stat()
        return run.weights_file.name, status.st_ino, status.st_size, status.st_mtime_ns
    except FileNotFoundError:
        pass
    for path in checkpoint_dirs(run.checkpoints_dir):
        stamp = f"checkpoints/{path.name}", path.stat().st_ino, 0, 0
        if stamp == known or find_damage(path) is None:
            return stamp
    return _NO_WEIGHTS
