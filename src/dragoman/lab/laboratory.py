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

from dragoman.errors import Diverged, Stopped
from dragoman.evaluation.scores import bleu
from dragoman.lab.material import Material
from dragoman.lab.report import Json
from dragoman.lab.side_by_side import is_begun, trained_side_by_side
from dragoman.model.architectures import build
from dragoman.recipe import Model, Recipe, laid_over
from dragoman.run import Run, make_folder, to_json, write_whole
from dragoman.tasks.events import Finished, Listen, Plan, Working
from dragoman.tasks.train import cores, train
from dragoman.tasks.translator import Translator, load
from dragoman.training.journal import read_metrics
from dragoman.training.loop import Step
from dragoman.training.session import Event, Notice, Stop

# A small model with norm first, which learns the phrasebook in a minute or two. The inverse square root needs no last
# step to be known, so a training ends when its time is over. In so short a time dropout only slows learning down.
SMALL: dict[str, Any] = {
    "tokenizer": {"size": 3000},
    "model": {"layers": 2, "width": 128, "inner_width": 256, "heads": 4, "dropout": 0.0, "norm": "pre"},
    "training": {
        "steps": 1_000_000, "batch_tokens": 1024, "rate": 0.005, "warmup": 100, "clip": 1.0, "validate_every": 100,
        "validation_sample": 0, "checkpoint_every": 100, "keep": 5, "average": 3,
    },
}  # fmt: skip

MARK = "trained.json"  # in a run directory: its training was finished


@dataclass(frozen=True)
class Trained:
    """A model that was trained to order."""

    run: Run
    diverged: bool = False

    @cached_property
    def parameters(self) -> int:
        """How many numbers were learned; counted without giving a model memory."""
        recipe = self.run.read_recipe()
        source, target = self.run.read_tokenizers(recipe.tokenizer.joint)
        return parameters_of(recipe.model, len(source), len(target))

    @cached_property
    def translator(self) -> Translator:
        """The model, ready to use."""
        return load(self.run)

    @cached_property
    def curve(self) -> list[dict[str, Any]]:
        """What the training noted: "train" and "validation" events with their step, loss and seconds."""
        return list(read_metrics(self.run.metrics_file))

    @property
    def steps(self) -> int:
        """Updates that were made."""
        return max((event["step"] for event in self.curve), default=0)

    @property
    def seconds(self) -> float:
        """Time spent on them."""
        return max((event.get("seconds", 0.0) for event in self.curve), default=0.0)

    @property
    def tokens(self) -> int:
        """Target tokens that were learned from, those of repeated sentences counted again."""
        return sum(event["tokens"] for event in self.curve if event["event"] == "train")

    @property
    def loss(self) -> float:
        """On the validation text, in nats per piece, at the last step; infinite if the training was given up."""
        found = [event.get("loss", math.inf) for event in self.curve if event["event"] == "validation"]
        return math.inf if self.diverged or not found else float(found[-1])

    @property
    def perplexity(self) -> float:
        """On the validation text, per piece, at the last step."""
        return math.exp(min(self.loss, 50.0)) if math.isfinite(self.loss) else math.inf

    def translations(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Translate the sources of some pairs; what has diverged translates nothing."""
        if self.diverged:
            return [""] * len(pairs)
        return self.translator.translate([source for source, _ in pairs])

    def bleu(self, pairs: Sequence[tuple[str, str]]) -> float:
        """Return how well the sources of some pairs are translated."""
        return bleu(self.translations(pairs), [target for _, target in pairs])


@dataclass(frozen=True)
class Laboratory:
    """Where one experiment is made."""

    name: str  # of the experiment
    folder: Path
    home: Path  # of all experiments
    budget_seconds: float
    seed: int
    material: Material
    listen: Listen
    stop: Stop
    reference_seconds: float  # of training for the model that several experiments share
    given: Run | None = None  # a trained model to look into instead of that

    def kept(self, name: str, measure: Callable[[], Json], **what: Json) -> Json:
        """Return what `measure` finds, measured once; it is measured again if `what` it depends on has changed."""
        file = self.folder / "parts" / f"{name}.json"
        what = {**what, "seed": self.seed, "corpus": self.material.name}
        there = read_json(file)
        if isinstance(there, dict) and there.get("what") == json.loads(json.dumps(what)):
            return there["value"]
        self.listen(Working(f"{self.name}: {name}", 0))
        began_at = time.monotonic()
        value = measure()
        make_folder(file.parent)
        write_whole(file, to_json({"what": what, "value": value, "seconds": round(time.monotonic() - began_at, 2)}))
        return json.loads(json.dumps(value))

    def trained(
        self,
        name: str,
        settings: Mapping[str, Any],
        *,
        seconds: float,
        seed: int | None = None,
        material: Material | None = None,
    ) -> Trained:
        """Train the small model with some settings changed ({"model.heads": 1}) for so long, or find it trained."""
        place = self.place(name)
        recipe = self.recipe(place, settings, seconds, self.seed if seed is None else seed, material or self.material)
        return self.finished(recipe, name)

    def trained_together(self, orders: Mapping[str, tuple[Mapping[str, Any], int]]) -> dict[str, Trained]:
        """Train several models, each with its settings and seed, as many at a time as there are cores."""
        recipes = {
            name: self.recipe(self.place(name), {**settings, "training.threads": 1}, 0.0, seed, self.material)
            for name, (settings, seed) in orders.items()
        }
        missing = {name: recipe for name, recipe in recipes.items() if found(recipe) is None}
        try:
            for count, (name, code) in enumerate(trained_side_by_side(missing, self.stop, cores()), 1):
                mark_finished(missing[name], diverged=code == Diverged.exit_code)
                self.listen(Working(f"{self.name}: models trained", len(recipes) - len(missing) + count, len(recipes)))
        except Stopped:
            raise Stopped(f"Stopped in {self.name}; all is saved. The same command goes on.") from None
        return {name: self.finished(recipe, name) for name, recipe in recipes.items()}

    def place(self, name: str) -> Run:
        """Return the run directory of a model to order."""
        return Run(self.folder / "models" / name)

    def reference(self) -> Trained:
        """Return the model that several experiments look into: trained once, or the one that was given."""
        if self.given is not None:
            return Trained(self.given)
        place = Run(self.home / "reference")
        recipe = self.recipe(place, {}, self.reference_seconds, self.seed, self.material)
        if place.recipe_file.exists():  # another experiment may have given it another time
            before = place.read_recipe()
            minutes = before.training.minutes
            recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"minutes": minutes})})
        return self.finished(recipe, "reference")

    def recipe(self, place: Run, settings: Mapping[str, Any], seconds: float, seed: int, material: Material) -> Recipe:
        """Return the recipe of a model to order."""
        files = {
            "source": str(material.train[0]), "target": str(material.train[1]),
            "valid_source": str(material.valid[0]), "valid_target": str(material.valid[1]),
        }  # fmt: skip
        training = {"minutes": seconds / 60, "seed": seed}
        table = laid_over(SMALL, {"run": str(place), "data": files, "training": training})
        for setting, value in settings.items():
            branch, _, key = setting.partition(".")
            table = laid_over(table, {branch: {key: value}})
        return Recipe.from_table(table, where=f"lab {self.name}")

    def finished(self, recipe: Recipe, name: str) -> Trained:
        """Train a run to its end, from wherever it is."""
        return found(recipe) or mark_finished(recipe, diverged=self.diverges(recipe, name))

    def diverges(self, recipe: Recipe, name: str) -> bool:
        """Train, and return whether the loss was lost on the way."""
        seen, begun = Seen(self, name, 60 * recipe.training.minutes), is_begun(recipe)
        try:
            train(recipe, resume=begun, overwrite=not begun, listen=seen, stop=self.stop)
        except Diverged as error:
            self.listen(Notice(f"{self.name}, {name}: {error}", serious=True))
            return True
        except Stopped:
            raise Stopped(f"Stopped in {self.name}, {name}; all is saved. The same command goes on.") from None
        return False


def found(recipe: Recipe) -> Trained | None:
    """Return the model of a recipe if its training was finished, and with the same text."""
    there = read_json(Path(recipe.run) / MARK)
    if not isinstance(there, dict) or there.get("recipe") != recipe.to_toml() or there.get("sizes") != sizes(recipe):
        return None
    return Trained(Run(recipe.run), there["diverged"])


def mark_finished(recipe: Recipe, *, diverged: bool) -> Trained:
    """Note that a training is finished."""
    facts = {"recipe": recipe.to_toml(), "sizes": sizes(recipe), "diverged": diverged}
    write_whole(Path(recipe.run) / MARK, to_json(facts))
    return Trained(Run(recipe.run), diverged)


def sizes(recipe: Recipe) -> list[int]:
    """Return what tells whether the training text has been replaced since: the sizes of its files."""
    return [Path(name).stat().st_size for name in (recipe.data.source, recipe.data.target) if name]


class Seen:
    """Hears a training and passes on what someone who waits for a whole experiment wants to know."""

    def __init__(self, lab: Laboratory, name: str, seconds: float) -> None:
        self.lab, self.name, self.seconds = lab, name, seconds
        self.began_at = time.monotonic()

    def __call__(self, event: Event | Working | Plan | Finished) -> None:
        """Pass on progress and warnings."""
        match event:
            case Plan():
                self.began_at = time.monotonic() - max(0.0, self.seconds - event.seconds_left)
            case Step():
                spent = min(int(time.monotonic() - self.began_at), int(self.seconds))
                self.lab.listen(Working(f"{self.lab.name}: training {self.name}, seconds", spent, int(self.seconds)))
            case Notice(serious=True):
                self.lab.listen(replace(event, text=f"{self.lab.name}, {self.name}: {event.text}"))


def parameters_of(how: Model, source_vocabulary: int, target_vocabulary: int) -> int:
    """Count the parameters of a model without giving it memory."""
    with torch.device("meta"):
        model = build(how, source_vocabulary, target_vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())


def read_json(file: Path) -> Json:
    """Read what was kept, or nothing if it is not there or was damaged."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
