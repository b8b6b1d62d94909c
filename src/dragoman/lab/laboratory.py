"""The laboratory that an experiment works in: its folder, its corpus, its time, and models trained to order.

Whatever is finished is kept: a measurement as a small JSON file, a model as a run directory like any other. So an
experiment that was interrupted goes on where it stopped, by doing everything again that is not there yet.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from dragoman.errors import TrainingDiverged, TrainingStopped
from dragoman.evaluation.scores import corpus_bleu
from dragoman.lab.corpus import SplitCorpus
from dragoman.lab.parallel_runs import can_resume, train_in_parallel
from dragoman.lab.report import Json
from dragoman.model_config import ModelConfig
from dragoman.model_files import read_tokenizers
from dragoman.models.architectures import build_model
from dragoman.processes import available_cores
from dragoman.recipe import Recipe, merge_tables
from dragoman.run import Run, read_metrics
from dragoman.storage import make_directory, to_json, write_atomically
from dragoman.tasks.events import Notice, OnEvent, ProgressUpdate
from dragoman.tasks.translator import Translator, load
from dragoman.training.events import StopRequest, TrainingEvent, TrainingFinished, TrainingPlan
from dragoman.training.loop import TrainingStep
from dragoman.training.trainer import train

# A small model with norm first, which learns the phrasebook in a minute or two. The inverse square root needs no last
# step to be known, so a training ends when its time is over. In so short a time dropout only slows learning down.
SMALL_RECIPE: dict[str, Any] = {
    "tokenizer": {"size": 3000},
    "model": {"layers": 2, "width": 128, "inner_width": 256, "heads": 4, "dropout": 0.0, "norm": "pre"},
    "training": {
        "steps": 1_000_000, "batch_tokens": 1024, "rate": 0.005, "warmup": 100, "clip": 1.0, "validate_every": 100,
        "validation_sample": 0, "checkpoint_every": 100, "keep": 5, "average": 3,
    },
}  # fmt: skip

FINISHED_FILE = "trained.json"  # in a run directory: its training was finished


@dataclass(frozen=True)
class TrainedModel:
    """A model that was trained to order."""

    run: Run
    diverged: bool = False

    @cached_property
    def parameters(self) -> int:
        """How many numbers were learned; counted without giving a model memory."""
        recipe = self.run.read_recipe()
        source, target = read_tokenizers(self.run, recipe.tokenizer.joint)
        return count_parameters(recipe.model, len(source), len(target))

    @cached_property
    def translator(self) -> Translator:
        """The model, ready to use."""
        return load(self.run)

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """What the training noted: "train" and "validation" events with their step, loss and seconds."""
        return list(read_metrics(self.run.metrics_file))

    @property
    def steps(self) -> int:
        """Updates that were made."""
        return max((event["step"] for event in self.events), default=0)

    @property
    def seconds(self) -> float:
        """Time spent on them."""
        return max((event.get("seconds", 0.0) for event in self.events), default=0.0)

    @property
    def target_tokens(self) -> int:
        """Target tokens that were learned from, those of repeated sentences counted again."""
        return sum(event["tokens"] for event in self.events if event["event"] == "train")

    @property
    def validation_loss(self) -> float:
        """On the validation text, in nats per piece, at the last step; infinite if the training was given up."""
        found = [event.get("loss", math.inf) for event in self.events if event["event"] == "validation"]
        return math.inf if self.diverged or not found else float(found[-1])

    @property
    def perplexity(self) -> float:
        """On the validation text, per piece, at the last step."""
        return math.exp(min(self.validation_loss, 50.0)) if math.isfinite(self.validation_loss) else math.inf

    def translate_sources(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Translate the sources of some pairs; what has diverged translates nothing."""
        if self.diverged:
            return [""] * len(pairs)
        return self.translator.translate([source for source, _ in pairs])

    def bleu(self, pairs: Sequence[tuple[str, str]]) -> float:
        """Return how well the sources of some pairs are translated."""
        return corpus_bleu(self.translate_sources(pairs), [target for _, target in pairs])


@dataclass(frozen=True)
class Laboratory:
    """Where one experiment is made."""

    name: str  # of the experiment
    folder: Path
    root: Path  # of all experiments
    budget_seconds: float
    seed: int
    corpus: SplitCorpus
    on_event: OnEvent
    stop: StopRequest
    reference_seconds: float  # of training for the model that several experiments share
    given_run: Run | None = None  # a trained model to look into instead of that

    def measure_once(self, name: str, measure: Callable[[], Json], **depends_on: Json) -> Json:
        """Return what `measure` finds, measured once; it is measured again if `what` it depends on has changed."""
        file = self.folder / "parts" / f"{name}.json"
        depends_on = {**depends_on, "seed": self.seed, "corpus": self.corpus.name}
        there = read_json(file)
        if isinstance(there, dict) and there.get("what") == json.loads(json.dumps(depends_on)):
            return there["value"]
        self.on_event(ProgressUpdate(f"{self.name}: {name}", 0))
        began_at = time.monotonic()
        value = measure()
        make_directory(file.parent)
        write_atomically(
            file, to_json({"what": depends_on, "value": value, "seconds": round(time.monotonic() - began_at, 2)})
        )
        return json.loads(json.dumps(value))

    def train_model(
        self,
        name: str,
        settings: Mapping[str, Any],
        *,
        seconds: float,
        seed: int | None = None,
        corpus: SplitCorpus | None = None,
    ) -> TrainedModel:
        """Train the small model with some settings changed ({"model.heads": 1}) for so long, or find it trained."""
        place = self.model_run(name)
        recipe = self.build_recipe(place, settings, seconds, self.seed if seed is None else seed, corpus or self.corpus)
        return self._load_or_train(recipe, name)

    def train_in_parallel(self, orders: Mapping[str, tuple[Mapping[str, Any], int]]) -> dict[str, TrainedModel]:
        """Train several models, each with its settings and seed, as many at a time as there are cores."""
        recipes = {
            name: self.build_recipe(self.model_run(name), {**settings, "training.threads": 1}, 0.0, seed, self.corpus)
            for name, (settings, seed) in orders.items()
        }
        missing = {name: recipe for name, recipe in recipes.items() if _load_finished(recipe) is None}
        try:
            for count, (name, code) in enumerate(train_in_parallel(missing, self.stop, available_cores()), 1):
                _mark_finished(missing[name], diverged=code == TrainingDiverged.exit_code)
                self.on_event(
                    ProgressUpdate(f"{self.name}: models trained", len(recipes) - len(missing) + count, len(recipes))
                )
        except TrainingStopped:
            raise TrainingStopped(f"Stopped in {self.name}; all is saved. The same command goes on.") from None
        return {name: self._load_or_train(recipe, name) for name, recipe in recipes.items()}

    def model_run(self, name: str) -> Run:
        """Return the run directory of a model to order."""
        return Run(self.folder / "models" / name)

    def reference_model(self) -> TrainedModel:
        """Return the model that several experiments look into: trained once, or the one that was given."""
        if self.given_run is not None:
            return TrainedModel(self.given_run)
        place = Run(self.root / "reference")
        recipe = self.build_recipe(place, {}, self.reference_seconds, self.seed, self.corpus)
        if place.recipe_file.exists():  # another experiment may have given it another time
            before = place.read_recipe()
            minutes = before.training.minutes
            recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"minutes": minutes})})
        return self._load_or_train(recipe, "reference")

    def build_recipe(
        self, run: Run, settings: Mapping[str, Any], seconds: float, seed: int, corpus: SplitCorpus
    ) -> Recipe:
        """Return the recipe of a model to order."""
        files = {
            "source": str(corpus.train[0]), "target": str(corpus.train[1]),
            "valid_source": str(corpus.valid[0]), "valid_target": str(corpus.valid[1]),
        }  # fmt: skip
        training = {"minutes": seconds / 60, "seed": seed}
        table: dict[str, Any] = {"run": str(run), "data": files, "training": training}
        for setting, value in settings.items():
            branch, _, key = setting.partition(".")
            table = merge_tables(table, {branch: {key: value}})
        return Recipe.from_table(table, origin=f"lab {self.name}", defaults=SMALL_RECIPE)

    def _load_or_train(self, recipe: Recipe, name: str) -> TrainedModel:
        """Train a run to its end, from wherever it is."""
        return _load_finished(recipe) or _mark_finished(recipe, diverged=self._train_to_the_end(recipe, name))

    def _train_to_the_end(self, recipe: Recipe, name: str) -> bool:
        """Train, and return whether the loss was lost on the way."""
        seen, begun = _TrainingProgress(self, name, 60 * recipe.training.minutes), can_resume(recipe)
        try:
            train(recipe, resume=begun, overwrite=not begun, on_event=seen, stop=self.stop)
        except TrainingDiverged as error:
            self.on_event(Notice(f"{self.name}, {name}: {error}", serious=True))
            return True
        except TrainingStopped:
            raise TrainingStopped(f"Stopped in {self.name}, {name}; all is saved. The same command goes on.") from None
        return False


def _load_finished(recipe: Recipe) -> TrainedModel | None:
    """Return the model of a recipe if its training was finished, and with the same text."""
    there = read_json(Path(recipe.run) / FINISHED_FILE)
    if (
        not isinstance(there, dict)
        or there.get("recipe") != recipe.to_toml()
        or there.get("sizes") != _training_file_sizes(recipe)
    ):
        return None
    return TrainedModel(Run(recipe.run), there["diverged"])


def _mark_finished(recipe: Recipe, *, diverged: bool) -> TrainedModel:
    """Note that a training is finished."""
    facts = {"recipe": recipe.to_toml(), "sizes": _training_file_sizes(recipe), "diverged": diverged}
    write_atomically(Path(recipe.run) / FINISHED_FILE, to_json(facts))
    return TrainedModel(Run(recipe.run), diverged)


def _training_file_sizes(recipe: Recipe) -> list[int]:
    """Return what tells whether the training text has been replaced since: the sizes of its files."""
    return [Path(name).stat().st_size for name in (recipe.data.source, recipe.data.target) if name]


class _TrainingProgress:
    """Hears a training and passes on what someone who waits for a whole experiment wants to know."""

    def __init__(self, lab: Laboratory, name: str, seconds: float) -> None:
        self.lab, self.name, self.seconds = lab, name, seconds
        self.began_at = time.monotonic()

    def __call__(self, event: TrainingEvent | ProgressUpdate | TrainingPlan | TrainingFinished) -> None:
        """Pass on progress and warnings."""
        match event:
            case TrainingPlan():
                self.began_at = time.monotonic() - max(0.0, self.seconds - event.seconds_left)
            case TrainingStep():
                spent = min(int(time.monotonic() - self.began_at), int(self.seconds))
                self.lab.on_event(
                    ProgressUpdate(f"{self.lab.name}: training {self.name}, seconds", spent, int(self.seconds))
                )
            case Notice(serious=True):
                self.lab.on_event(replace(event, text=f"{self.lab.name}, {self.name}: {event.text}"))


def count_parameters(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> int:
    """Count the parameters of a model without giving it memory."""
    with torch.device("meta"):
        model = build_model(config, source_vocabulary, target_vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())


def read_json(file: Path) -> Json:
    """Read what was kept, or nothing if it is not there or was damaged."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
