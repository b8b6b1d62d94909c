"""The environment of an experiment: its folder, corpus and budget, measurements made once, and models trained for it.

Every finished measurement is stored as a small JSON file and every model as an ordinary run directory. An interrupted
experiment is continued by running it again: only what is missing is computed.
"""

import json
import math
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from dragoman.errors import TrainingDiverged, TrainingStopped, UserError, format_count
from dragoman.evaluation.scores import corpus_bleu
from dragoman.lab.corpus import SplitCorpus
from dragoman.lab.plan import Comparison, TrainingSpeed, plan_comparison
from dragoman.malloc import keep_freed_memory
from dragoman.model_config import ModelConfig
from dragoman.model_files import read_tokenizers
from dragoman.models.architectures import build_model
from dragoman.processes import available_cores, child_environment, python_command, terminate
from dragoman.recipe import Recipe, merge_tables
from dragoman.report import Json
from dragoman.run import Run, read_metrics
from dragoman.storage import list_directory, make_directory, to_json, write_atomically
from dragoman.tasks.events import Notice, OnEvent, ProgressUpdate
from dragoman.tasks.translate import Translator
from dragoman.training.events import StopRequest, TrainingEvent, TrainingFinished, TrainingPlan, ignore_event
from dragoman.training.loop import TrainingStep, measure_seconds_per_step
from dragoman.training.prepare import PreparedData, open_corpora, prepare_data
from dragoman.training.trainer import Trainer, train

# A small pre-norm model that learns the phrasebook in a minute or two. The inverse square root schedule does not depend
# on the last step, so a training may end when its time is over. In so short a training, dropout only slows learning.
# Every setting that a training would otherwise choose itself is set here.
SMALL_RECIPE: dict[str, Any] = {
    "tokenizer": {"kind": "bpe", "size": 3000},
    "model": {"layers": 2, "width": 128, "inner_width": 256, "heads": 4, "dropout": 0.0, "norm": "pre"},
    "training": {
        "steps": 1_000_000, "batch_tokens": 1024, "accumulate": 1, "schedule": "noam", "rate": 0.005, "warmup": 100,
        "clip": 1.0, "label_smoothing": 0.1, "patience": 0, "validate_every": 100, "validation_sample": 0,
        "checkpoint_every": 100, "keep": 5, "average": 3, "average_of": "last",
    },
}  # fmt: skip

_SPEED_ROUNDS = 3  # of which the fastest counts: other work on the machine only makes a round slower
_SPEED_SHARE = 0.05  # of the budget, after which there are no further rounds
_VALIDATIONS = 10  # of a training, of which the overhead consists besides preparation and scoring
_SCORING_STEPS = 15  # that take as long as translating the validation and test text

_PLANNED_SETTINGS = ("minutes", "warmup", "validate_every", "checkpoint_every")  # of the reference model

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

    def measure_speed(
        self, variants: Mapping[str, Mapping[str, Any]], corpus: SplitCorpus | None = None
    ) -> TrainingSpeed:
        """Measure what a training of each variant costs, given as changed settings of the small model."""
        recipes = {name: self.build_recipe("speed", settings, corpus=corpus) for name, settings in variants.items()}
        settings = {name: dict(changed) for name, changed in variants.items()}
        limit = _SPEED_SHARE * self.budget_seconds
        stored = self.measure_once("speed", lambda: _measure_speed(recipes, limit), settings=settings)
        return TrainingSpeed(**stored)

    def train_all(
        self,
        recipes: Mapping[str, Recipe],
        *,
        at_once: int = 1,
        suffices: Callable[[Collection[str]], bool] = lambda _labels: False,
    ) -> dict[str, TrainedModel]:
        """Train models under their labels, one after another or several at once; those already trained are loaded.

        If the budget is used up and the trained models suffice, the remaining ones are left out.
        """
        started_at = time.monotonic()
        loaded = ((label, _load_finished(recipe)) for label, recipe in recipes.items())
        models = {label: model for label, model in loaded if model is not None}
        missing = {label: recipe for label, recipe in recipes.items() if label not in models}
        train = self._train_in_turn if at_once == 1 else self._train_in_processes
        for label, model in train(missing, len(recipes)):
            models[label] = model
            outcome = "diverged" if model.diverged else f"validation loss {model.validation_loss:.3f}"
            left = len(recipes) - len(models)
            self.on_event(
                Notice(
                    f"{self.name}: trained {label}: {outcome} after {format_count(model.steps, 'step')}; "
                    f"{format_count(left, 'model')} left."
                )
            )
            if left and time.monotonic() - started_at >= self.budget_seconds and suffices(models):
                self.on_event(Notice(f"{self.name}: the budget is used up; {format_count(left, 'model')} left out."))
                break
        return models

    def train(self, recipe: Recipe, label: str) -> TrainedModel:
        """Train a model, or load it if it is trained already."""
        return _load_finished(recipe) or _mark_finished(recipe, diverged=self._train_to_the_end(recipe, label))

    def _train_in_turn(self, recipes: Mapping[str, Recipe], total: int) -> Iterator[tuple[str, TrainedModel]]:
        for number, (label, recipe) in enumerate(recipes.items(), total - len(recipes) + 1):
            yield label, self.train(recipe, f"{label} (model {number} of {total})")

    def _train_in_processes(self, recipes: Mapping[str, Recipe], total: int) -> Iterator[tuple[str, TrainedModel]]:
        """Train one model per core at a time, each in a process with one thread."""

        def on_start(running: list[str], waiting: int) -> None:
            done = total - len(running) - waiting
            self.on_event(ProgressUpdate(f"{self.name}: training {' and '.join(running)}; models trained", done, total))

        try:
            for label, code in _run_processes(recipes, self.stop, on_start):
                yield label, _mark_finished(recipes[label], diverged=code == TrainingDiverged.exit_code)
        except TrainingStopped:
            raise _stop_error(self.name) from None

    def model_run(self, name: str) -> Run:
        """Return the run directory of a model."""
        return Run(self.folder / "models" / name)

    def reference_model(self) -> TrainedModel:
        """Return the model that several experiments inspect: the given one, or one that is trained once."""
        if self.given_run is not None:
            return TrainedModel(self.given_run)
        run = Run(self.root / "reference")
        if run.recipe_file.exists():  # another experiment may have trained it with another budget
            stored = run.read_recipe().training
            settings = {f"training.{key}": getattr(stored, key) for key in _PLANNED_SETTINGS}
        else:
            comparison = Comparison({"reference": {}}, equal="time", max_seeds=1)
            speed = self.measure_speed(comparison.variants)
            plan = plan_comparison(comparison, speed, self.reference_seconds)
            self.on_event(Notice(f"{self.name}, reference model: {plan}"))
            settings = plan.settings("reference")
        recipe = self.build_recipe("reference", settings, run=run)
        return self.train(recipe, "the reference model")

    def build_recipe(
        self,
        name: str,
        settings: Mapping[str, Any],
        *,
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
            "training": {"seed": self.seed if seed is None else seed},
        }  # fmt: skip
        for setting, value in settings.items():
            branch, _, key = setting.partition(".")
            table = merge_tables(table, {branch: {key: value}})
        return Recipe.from_table(table, origin=f"lab {self.name}", defaults=SMALL_RECIPE)

    def _train_to_the_end(self, recipe: Recipe, label: str) -> bool:
        """Train, from a checkpoint if there is one, and return whether the training diverged."""
        config, started_at, resume = recipe.training, time.monotonic(), _can_resume(recipe)
        seconds, description = int(60 * config.minutes), f"{self.name}: training {label}"

        def on_event(event: TrainingEvent | ProgressUpdate | TrainingPlan | TrainingFinished) -> None:
            nonlocal started_at
            match event:
                case TrainingPlan():
                    started_at = time.monotonic() - max(0.0, 60 * config.minutes - event.seconds_left)
                case TrainingStep() if seconds:
                    spent = min(int(time.monotonic() - started_at), seconds)
                    self.on_event(ProgressUpdate(f"{description}, seconds", spent, seconds))
                case TrainingStep():
                    self.on_event(ProgressUpdate(f"{description}, step", event.number, config.steps))
                case Notice(serious=True):
                    self.on_event(replace(event, text=f"{self.name}, {label}: {event.text}"))

        try:
            train(recipe, resume=resume, overwrite=not resume, on_event=on_event, stop=self.stop, limit_steps_only=True)
        except TrainingDiverged as error:
            self.on_event(Notice(f"{self.name}, {label}: {error}", serious=True))
            return True
        except TrainingStopped:
            raise _stop_error(f"{self.name}, {label}") from None
        return False


def prepare_run(recipe: Recipe) -> PreparedData:
    """Prepare the data of a recipe without training; a vocabulary that the run has already is kept."""
    run = Run(recipe.run)
    make_directory(run.folder)
    return prepare_data(run, recipe, *open_corpora(recipe), ignore_event)


def _measure_speed(recipes: Mapping[str, Recipe], limit_seconds: float) -> dict[str, Json]:
    """Return the values of a `TrainingSpeed`; the data is prepared once, and no parameters are updated.

    After `limit_seconds` there is no further round of measurements.
    """
    started_at = time.monotonic()
    data = prepare_run(next(iter(recipes.values())))
    preparation_seconds = time.monotonic() - started_at
    keep_freed_memory()  # as in training
    rounds: dict[str, list[float]] = {name: [] for name in recipes}
    for _ in range(_SPEED_ROUNDS):
        if all(rounds.values()) and time.monotonic() - started_at > limit_seconds:
            break
        for name, recipe in recipes.items():
            trainer = Trainer(Run(recipe.run), recipe, data)
            rounds[name].append(
                measure_seconds_per_step(
                    trainer.model, trainer.objective, trainer.batches_of_step, recipe.training, pool=trainer.pool
                )
            )
    seconds = {name: min(values) for name, values in rounds.items()}
    started_at = time.monotonic()
    trainer.validation_loss()
    validation_seconds = time.monotonic() - started_at
    scoring_seconds = _SCORING_STEPS * min(seconds.values())
    overhead = preparation_seconds + _VALIDATIONS * validation_seconds + scoring_seconds
    return {"seconds_per_step": seconds, "overhead_seconds": overhead}


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
        return bool(list_directory(run.checkpoints_dir)) and run.read_recipe() == recipe
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


def _run_processes(
    recipes: Mapping[str, Recipe], stop: StopRequest, on_start: Callable[[list[str], int], None]
) -> Iterator[tuple[str, int]]:
    """Train all recipes, one per core at a time; yield the name and exit code of each that is finished or diverged.

    `on_start` is called with the names of the running trainings and the number of those that wait.
    """
    waiting, running = list(recipes), dict[str, subprocess.Popen[bytes]]()
    stop.deferred = True
    try:
        while waiting or running:
            while waiting and len(running) < available_cores():
                name = waiting.pop(0)
                running[name] = _start_training(recipes[name])
                on_start(list(running), len(waiting))
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
            python_command("dragoman", "train", file, option),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=child_environment(threads=1), start_new_session=True,
        )  # fmt: skip


def _log_file(recipe: Recipe) -> Path:
    return Path(recipe.run).with_suffix(".log")


def _training_error(name: str, code: int, log: Path) -> UserError:
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    message = last[0].removeprefix("dragoman: ") if last else f"exit code {code} without a message"
    return UserError(f"Training {name} failed: {message} (full output: {log})")
