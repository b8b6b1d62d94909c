"""The environment of an experiment: its folder, corpus and budget, measurements made once, and models trained for it.

Every finished measurement is stored as a small JSON file and every model as an ordinary run directory. An interrupted
experiment is continued by running it again: only what is missing is computed.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from dragoman.errors import TrainingDiverged, TrainingStopped, UserError
from dragoman.evaluation.scores import corpus_bleu
from dragoman.lab.corpus import SplitCorpus
from dragoman.model_config import ModelConfig
from dragoman.model_files import read_tokenizers
from dragoman.models.architectures import build_model
from dragoman.processes import available_cores, child_environment, terminate
from dragoman.recipe import Recipe, merge_tables
from dragoman.report import Json
from dragoman.run import Run, read_metrics
from dragoman.storage import make_directory, to_json, write_atomically
from dragoman.tasks.events import Notice, OnEvent, ProgressUpdate
from dragoman.tasks.translate import Translator
from dragoman.training.events import StopRequest, TrainingEvent, TrainingFinished, TrainingPlan
from dragoman.training.loop import TrainingStep
from dragoman.training.trainer import train

# A small pre-norm model that learns the phrasebook in a minute or two. The inverse square root schedule does not depend
# on the last step, so a training may end when its time is over. In so short a training, dropout only slows learning.
SMALL_RECIPE: dict[str, Any] = {
    "tokenizer": {"size": 3000},
    "model": {"layers": 2, "width": 128, "inner_width": 256, "heads": 4, "dropout": 0.0, "norm": "pre"},
    "training": {
        "steps": 1_000_000, "batch_tokens": 1024, "rate": 0.005, "warmup": 100, "clip": 1.0, "validate_every": 100,
        "validation_sample": 0, "checkpoint_every": 100, "keep": 5, "average": 3,
    },
}  # fmt: skip

FINISHED_FILE = "trained.json"  # in a run directory whose training is finished

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 60.0  # in which a training that was asked to stop may save


@dataclass(frozen=True)
class TrainedModel:
    """A model that was trained for an experiment."""

    run: Run
    diverged: bool = False

    @cached_property
    def parameters(self) -> int:
        """The number of parameters."""
        recipe = self.run.read_recipe()
        source, target = read_tokenizers(self.run, recipe.tokenizer.joint)
        return count_parameters(recipe.model, len(source), len(target))

    @cached_property
    def translator(self) -> Translator:
        """The loaded model."""
        return Translator.load(self.run)

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The metrics of the training: "train" and "validation" events with their step, loss and seconds."""
        return list(read_metrics(self.run.metrics_file))

    @property
    def steps(self) -> int:
        """The number of updates."""
        return max((event["step"] for event in self.events), default=0)

    @property
    def seconds(self) -> float:
        """The training time."""
        return max((event.get("seconds", 0.0) for event in self.events), default=0.0)

    @property
    def target_tokens(self) -> int:
        """The number of target tokens in all updates; repeated sentences count each time."""
        return sum(event["tokens"] for event in self.events if event["event"] == "train")

    @property
    def validation_loss(self) -> float:
        """The last validation loss in nats per token; infinite if the training diverged."""
        losses = [event.get("loss", math.inf) for event in self.events if event["event"] == "validation"]
        return math.inf if self.diverged or not losses else float(losses[-1])

    @property
    def perplexity(self) -> float:
        """The last validation perplexity per token."""
        return perplexity(self.validation_loss)

    def translate_sources(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Translate the sources of sentence pairs; a diverged model gives empty translations."""
        if self.diverged:
            return [""] * len(pairs)
        return self.translator.translate([source for source, _ in pairs])

    def bleu(self, pairs: Sequence[tuple[str, str]]) -> float:
        """Return the corpus BLEU of the translated sources of sentence pairs."""
        return corpus_bleu(self.translate_sources(pairs), [target for _, target in pairs])


@dataclass(frozen=True)
class Laboratory:
    """The environment of one experiment."""

    name: str  # of the experiment
    folder: Path
    root: Path  # of all experiments
    budget_seconds: float
    seed: int
    corpus: SplitCorpus
    on_event: OnEvent
    stop: StopRequest
    reference_seconds: float  # for training the model that several experiments inspect
    given_run: Run | None = None  # a trained model to inspect instead

    def measure_once(self, name: str, measure: Callable[[], Json], **depends_on: Json) -> Json:
        """Return the stored value of a measurement; measure if there is none or if `depends_on` has changed."""
        file = self.folder / "parts" / f"{name}.json"
        depends_on = {**depends_on, "seed": self.seed, "corpus": self.corpus.name}
        stored = read_json(file)
        if isinstance(stored, dict) and stored.get("what") == json.loads(json.dumps(depends_on)):
            return stored["value"]
        self.on_event(ProgressUpdate(f"{self.name}: {name}", 0))
        started_at = time.monotonic()
        value = measure()
        make_directory(file.parent)
        seconds = round(time.monotonic() - started_at, 2)
        write_atomically(file, to_json({"what": depends_on, "value": value, "seconds": seconds}))
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
        """Train the small model with changed settings ({"model.heads": 1}), or load it if it is trained already."""
        return self._load_or_train(self.build_recipe(name, settings, seconds=seconds, seed=seed, corpus=corpus), name)

    def train_in_parallel(self, variants: Mapping[str, tuple[Mapping[str, Any], int]]) -> dict[str, TrainedModel]:
        """Train models, each with its settings and seed, one per core at a time."""
        recipes = {
            name: self.build_recipe(name, {**settings, "training.threads": 1}, seconds=0.0, seed=seed)
            for name, (settings, seed) in variants.items()
        }
        missing = {name: recipe for name, recipe in recipes.items() if _load_finished(recipe) is None}
        finished = len(recipes) - len(missing)
        try:
            for count, (name, code) in enumerate(_train_in_processes(missing, self.stop), finished + 1):
                _mark_finished(missing[name], diverged=code == TrainingDiverged.exit_code)
                self.on_event(ProgressUpdate(f"{self.name}: models trained", count, len(recipes)))
        except TrainingStopped:
            raise _stop_error(self.name) from None
        return {name: self._load_or_train(recipe, name) for name, recipe in recipes.items()}

    def model_run(self, name: str) -> Run:
        """Return the run directory of a model."""
        return Run(self.folder / "models" / name)

    def reference_model(self) -> TrainedModel:
        """Return the model that several experiments inspect: the given one, or one that is trained once."""
        if self.given_run is not None:
            return TrainedModel(self.given_run)
        run = Run(self.root / "reference")
        recipe = self.build_recipe("reference", {}, seconds=self.reference_seconds, run=run)
        if run.recipe_file.exists():  # another experiment may have trained it with another budget
            minutes = run.read_recipe().training.minutes
            recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"minutes": minutes})})
        return self._load_or_train(recipe, "reference")

    def build_recipe(
        self,
        name: str,
        settings: Mapping[str, Any],
        *,
        seconds: float = 1.0,
        seed: int | None = None,
        corpus: SplitCorpus | None = None,
        run: Run | None = None,
    ) -> Recipe:
        """Return the recipe of a model, the small one with changed settings."""
        corpus = corpus or self.corpus
        files = {
            "source": str(corpus.train[0]), "target": str(corpus.train[1]),
            "valid_source": str(corpus.valid[0]), "valid_target": str(corpus.valid[1]),
        }  # fmt: skip
        table: dict[str, Any] = {
            "run": str(run or self.model_run(name)), "data": files,
            "training": {"minutes": seconds / 60, "seed": self.seed if seed is None else seed},
        }  # fmt: skip
        for setting, value in settings.items():
            branch, _, key = setting.partition(".")
            table = merge_tables(table, {branch: {key: value}})
        return Recipe.from_table(table, origin=f"lab {self.name}", defaults=SMALL_RECIPE)

    def _load_or_train(self, recipe: Recipe, name: str) -> TrainedModel:
        return _load_finished(recipe) or _mark_finished(recipe, diverged=self._train_to_the_end(recipe, name))

    def _train_to_the_end(self, recipe: Recipe, name: str) -> bool:
        """Train, from a checkpoint if there is one, and return whether the training diverged."""
        seconds, started_at, resume = int(60 * recipe.training.minutes), time.monotonic(), _can_resume(recipe)

        def on_event(event: TrainingEvent | ProgressUpdate | TrainingPlan | TrainingFinished) -> None:
            nonlocal started_at
            match event:
                case TrainingPlan():
                    started_at = time.monotonic() - max(0.0, 60 * recipe.training.minutes - event.seconds_left)
                case TrainingStep():
                    spent = min(int(time.monotonic() - started_at), seconds)
                    self.on_event(ProgressUpdate(f"{self.name}: training {name}, seconds", spent, seconds))
                case Notice(serious=True):
                    self.on_event(replace(event, text=f"{self.name}, {name}: {event.text}"))

        try:
            train(recipe, resume=resume, overwrite=not resume, on_event=on_event, stop=self.stop)
        except TrainingDiverged as error:
            self.on_event(Notice(f"{self.name}, {name}: {error}", serious=True))
            return True
        except TrainingStopped:
            raise _stop_error(f"{self.name}, {name}") from None
        return False


def _stop_error(where: str) -> TrainingStopped:
    return TrainingStopped(f"Stopped during {where}; everything is saved. Run the same command to continue.")


def _load_finished(recipe: Recipe) -> TrainedModel | None:
    """Return the model of a recipe if its training is finished and its training text has not changed."""
    stored = read_json(Path(recipe.run) / FINISHED_FILE)
    if not isinstance(stored, dict) or stored != {**_training_facts(recipe), "diverged": stored.get("diverged")}:
        return None
    return TrainedModel(Run(recipe.run), stored["diverged"])


def _mark_finished(recipe: Recipe, *, diverged: bool) -> TrainedModel:
    write_atomically(Path(recipe.run) / FINISHED_FILE, to_json({**_training_facts(recipe), "diverged": diverged}))
    return TrainedModel(Run(recipe.run), diverged)


def _training_facts(recipe: Recipe) -> dict[str, Json]:
    files = (Path(name) for name in (recipe.data.source, recipe.data.target) if name)
    return {"recipe": recipe.to_toml(), "sizes": [file.stat().st_size for file in files]}


def _can_resume(recipe: Recipe) -> bool:
    """Return whether a training with this recipe has written a checkpoint."""
    run = Run(recipe.run)
    try:
        return any(run.checkpoints_dir.glob("*")) and run.read_recipe() == recipe
    except UserError:
        return False


def perplexity(loss: float) -> float:
    """Return the perplexity of a loss in nats; losses above 50 count as 50 to avoid an overflow."""
    return math.exp(min(loss, 50.0)) if math.isfinite(loss) else math.inf


def count_parameters(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> int:
    """Count the parameters of a model on the meta device, without allocating them."""
    with torch.device("meta"):
        model = build_model(config, source_vocabulary, target_vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())


def read_json(file: Path) -> Json:
    """Return the content of a JSON file, or None if it is missing or damaged."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None


# Several trainings at once: each is `dragoman train` in a process with one thread


def _train_in_processes(recipes: Mapping[str, Recipe], stop: StopRequest) -> Iterator[tuple[str, int]]:
    """Train all recipes, one per core at a time; yield the name and exit code of each that is finished or diverged."""
    waiting, running = list(recipes), dict[str, subprocess.Popen[bytes]]()
    stop.deferred = True
    try:
        while waiting or running:
            while waiting and len(running) < available_cores():
                name = waiting.pop(0)
                running[name] = _start_training(recipes[name])
            for name in [name for name, process in running.items() if process.poll() is not None]:
                code = running.pop(name).returncode
                if code not in (0, TrainingDiverged.exit_code):
                    raise _training_error(name, code, _log_file(recipes[name]))
                yield name, code
            if stop.requested:
                raise TrainingStopped("Stopped; everything is saved.")
            time.sleep(_POLL_SECONDS)
    finally:
        stop.deferred = False
        terminate(running.values(), _GRACE_SECONDS)


def _start_training(recipe: Recipe) -> "subprocess.Popen[bytes]":
    file = Path(recipe.run).with_suffix(".toml")
    make_directory(file.parent)
    file.write_text(recipe.to_toml(), encoding="utf-8")
    option = "--resume" if _can_resume(recipe) else "--overwrite"
    with _log_file(recipe).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "dragoman", "train", str(file), option],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=child_environment(threads=1), start_new_session=True,
        )  # fmt: skip


def _log_file(recipe: Recipe) -> Path:
    return Path(recipe.run).with_suffix(".log")


def _training_error(name: str, code: int, log: Path) -> UserError:
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    message = last[0].removeprefix("dragoman: ") if last else f"exit code {code} without a message"
    return UserError(f"Training {name} failed: {message} (full output: {log})")
