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

from dragoman.decoding.engine import Engine
from dragoman.errors import UserError
from dragoman.model.knockout import Kind
from dragoman.recipe import Decoding, Precision
from dragoman.run import Run
from dragoman.server.languages import guessed
from dragoman.tasks.look import attention_sizes
from dragoman.tasks.translator import Translator, load
from dragoman.training.checkpoints import fault, places

Stamp = tuple[str, int, int, int]  # of the file with the weights: its name, number, size and time
NO_WEIGHTS: Stamp = ("", 0, 0, 0)
KEPT = 3  # models of other checkpoints that were looked at last


@dataclass(eq=False)
class Served:
    """One model, and where it comes from."""

    name: str
    run: Path
    source: str
    target: str
    translator: Translator
    stamp: Stamp
    precision: Precision | None = None  # None: as the recipe says
    decodings: dict[tuple[int | None, int], Decoding] = field(default_factory=dict)

    def how(self, beam: int | None, n_best: int) -> Decoding:
        """Return how to search, always the same object for the same wish."""
        wish = beam, n_best
        if wish not in self.decodings:
            self.decodings[wish] = self.translator.decoding(
                beam and max(beam, n_best), n_best=n_best, precision=self.precision
            )
        return self.decodings[wish]

    def engine(self, how: Decoding) -> Engine:
        """Return an engine that works in the calling thread."""
        own = self.translator
        tokenizers = own.source_tokenizer, own.target_tokenizer
        constrain = partial(own.task.constrained, tokenizers=tokenizers, how=how)
        return Engine(own.model, how, own.device, shortlist=own.listed(how), constrain=constrain)

    @property
    def kind(self) -> str:
        """What the model does, in short: its languages, or its task."""
        return f"{self.source}-{self.target}" if self.source else self.translator.task.name

    @cached_property
    def attention(self) -> dict[Kind, tuple[int, int]]:
        """How many layers and heads the model has of each kind of attention, of the kinds that it has."""
        return attention_sizes(self.translator.model, self.translator.device)

    def facts(self) -> dict[str, Any]:
        """Return what is known about the model without using it."""
        recipe, task = self.translator.recipe, self.translator.task
        return {
            "name": self.name, "source": self.source, "target": self.target, "task": task.name, "noun": task.noun,
            "asks": task.asks, "languages": task.languages, "plain": task.plain, "whole": task.whole,
            "goes_on": task.goes_on,
            "architecture": recipe.model.architecture, "layers": recipe.model.layers, "width": recipe.model.width,
            "heads": max((heads for _, heads in self.attention.values()), default=0),
            "attention": {kind: {"layers": layers, "heads": heads} for kind, (layers, heads) in self.attention.items()},
            "parameters": sum(each.numel() for each in self.translator.model.parameters()),
            "vocabulary": [len(self.translator.source_tokenizer), len(self.translator.target_tokenizer)],
            "beam": recipe.decoding.beam, "precision": self.how(None, 1).precision,
            "longest": self.translator.longest, "weights": self.stamp[0],
        }  # fmt: skip


class Shelf:
    """The models by name; the first is the one to use when nobody says which."""

    def __init__(self, device: str, precision: Precision | None = None) -> None:
        self.device, self.precision = device, precision
        self.models: dict[str, Served] = {}
        self.before: dict[tuple[str, int], Served] = {}  # as they were at saved checkpoints
        self.looking = threading.Lock()

    def fill(self, runs: Iterable[str], languages: dict[str, tuple[str, str]]) -> None:
        """Load every run; refuse two that nobody could tell apart."""
        found = [self.loaded(Path(run), languages) for run in runs]
        unused = languages.keys() - {model.name for model in found}
        if unused:
            known = ", ".join(model.name for model in found)
            raise UserError(f"--languages {min(unused)}=…: no run of that name is served; there is {known}.")
        names = Counter(model.name for model in found)
        for model in found:
            self.add(model, ambiguous=names[model.name] > 1)

    def add(self, model: Served, *, ambiguous: bool) -> None:
        """Put a model on the shelf; of two runs of one name each is called by what it does too."""
        if ambiguous:
            model.name = f"{model.name}.{model.kind}"
        if model.name in self.models:
            raise UserError(
                f"{self.models[model.name].run} and {model.run} have the same name and do the same "
                f"({model.kind}), so nobody could tell them apart; rename one of the directories."
            )
        self.models[model.name] = model

    def loaded(self, run: Path, languages: dict[str, tuple[str, str]]) -> Served:
        """Load one run."""
        stamp = newest_weights(run)
        translator = load(run, device=self.device)
        data = translator.recipe.data
        source = target = ""  # a model that is no translator leads from no language into another
        if translator.task.languages:
            source, target = languages.get(translator.name) or guessed(data.source, data.target, data.pairs, run.name)
        elif translator.name in languages:
            raise UserError(f"--languages {translator.name}=…: {run} is a {translator.task.noun}, which has none.")
        served = Served(translator.name, run, source, target, translator, stamp, self.precision)
        served.how(None, 1)  # says what is wrong with the precision
        return served

    def refresh(self, changed: Callable[[Served], None]) -> None:
        """Load again what has new weights; in one assignment the next request has the new model."""
        for name, model in list(self.models.items()):
            stamp = newest_weights(model.run, model.stamp)
            if stamp in (model.stamp, NO_WEIGHTS):
                continue
            translator = load(model.run, device=self.device)
            fresh = replace(model, translator=translator, stamp=stamp, decodings={})
            fresh.engine(fresh.how(1, 1)).search([translator.source_tokens("a")])  # pack it before anyone waits for it
            self.models[name] = fresh
            changed(fresh)

    def at(self, name: str, checkpoint: int | None) -> Served:
        """Return a model, or what it was at the step of a saved checkpoint."""
        if checkpoint is None:
            return self.models[name]
        with self.looking:
            if (name, checkpoint) not in self.before:
                now = self.models[name]
                then = load(now.run, device=self.device, checkpoint=checkpoint)
                stamp = (f"checkpoints/{checkpoint:09d}", 0, 0, 0)
                self.before[name, checkpoint] = replace(now, translator=then, stamp=stamp, decodings={})
                for old in list(self.before)[:-KEPT]:
                    del self.before[old]
            return self.before[name, checkpoint]


def newest_weights(folder: Path, known: Stamp = NO_WEIGHTS) -> Stamp:
    """Say which weights `load` would take now; a checkpoint that is known to be whole is not read again."""
    run = Run(folder)
    try:
        found = run.weights_file.stat()
        return run.weights_file.name, found.st_ino, found.st_size, found.st_mtime_ns
    except FileNotFoundError:
        pass
    for place in places(run.checkpoints):
        stamp = f"checkpoints/{place.name}", place.stat().st_ino, 0, 0
        if stamp == known or fault(place) is None:
            return stamp
    return NO_WEIGHTS
