"""Trains the models of a comparison as planned, and finds out which of them have learned.

Models that have not learned are not compared: differences between them say nothing about the question of an experiment.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from shutil import rmtree
from statistics import median

from dragoman.errors import format_count
from dragoman.lab.corpus import SplitCorpus
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plan import LEARNING_STEPS, Comparison, ComparisonPlan, plan_comparison
from dragoman.model_files import read_tokenizers
from dragoman.recipe import Recipe
from dragoman.report import Cell, ExperimentReport, Json, ReportPart, ReportTable, format_number
from dragoman.run import Run
from dragoman.tasks.events import Notice
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END

# A model has learned if its validation loss is at most this share of the unigram loss, that of predicting every token
# by its frequency. In eight trainings with a validation every 50 steps (Transformers, a recurrent model and ByteNet on
# the phrasebook, a Transformer on Tatoeba), BLEU was at most 4.1 above this share and at least 3.8 below it.
LEARNED_SHARE = 0.6


def has_learned(loss: float, unigram_loss: float) -> bool:
    """Return whether a model with this validation loss has learned: the criterion of all experiments."""
    return loss <= LEARNED_SHARE * unigram_loss


def nothing_learned(minutes: int) -> str:
    """Return the finding of an experiment that has nothing to compare."""
    return (
        f"Nothing was learned in this budget; it needs about {format_count(minutes, 'minute')} (an estimate). Run it "
        f"again with --budget {minutes}m --overwrite."
    )


def _needed_steps(made: int, learning_steps: int) -> int:
    # Those that suffice for the phrasebook, or twice as many as did not suffice here.
    return learning_steps if made < learning_steps else 2 * made


@dataclass(frozen=True)
class TrainedComparison:
    """The models of a plan after their training."""

    plan: ComparisonPlan
    losses: Mapping[str, Sequence[float]]  # final validation loss of each seed, by variant
    steps: Mapping[str, int]  # by variant, of the first seed
    unigram_loss: float
    models: Mapping[str, list[TrainedModel]] = field(default_factory=dict)  # by variant, one per seed

    @cached_property
    def learned(self) -> tuple[str, ...]:
        """The variants that have learned, by the median over seeds."""
        return tuple(name for name, losses in self.losses.items() if has_learned(median(losses), self.unigram_loss))

    @property
    def learned_models(self) -> dict[str, list[TrainedModel]]:
        """The models of the variants that have learned."""
        return {name: self.models[name] for name in self.learned}

    @property
    def needed_minutes(self) -> int:
        """Estimate the budget in which those variants learn that have not."""
        made = max(self.steps[name] for name in self.losses if name not in self.learned)
        return self.plan.needed_minutes(_needed_steps(made, self.plan.comparison.learning_steps))

    def findings(self) -> tuple[str, ...]:
        """Return a sentence about the variants that have not learned, if there are any."""
        if not self.learned:
            return (nothing_learned(self.needed_minutes),)
        others = ", ".join(f"“{name}”" for name in self.losses if name not in self.learned)
        if not others:
            return ()
        needed = f"That needs about {format_count(self.needed_minutes, 'minute')} (an estimate)."
        if len(self.learned) == 1:
            return (f"Only “{self.learned[0]}” learned in this budget, so there is nothing to compare. {needed}",)
        return (f"Not compared, because they did not learn in this budget: {others}. {needed}",)

    def parts(self) -> tuple[ReportPart, ...]:
        """Return the plan, and a table of the losses if some variants have not learned."""
        return (str(self.plan),) if len(self.learned) == len(self.losses) else (str(self.plan), self._loss_table())

    def results(self) -> dict[str, Json]:
        """Return the numbers of the trainings."""
        return {
            "plan": str(self.plan), "seeds": list(self.plan.seeds), "unigram_loss": self.unigram_loss,
            "learned": list(self.learned),
            "validation_losses": {name: list(losses) for name, losses in self.losses.items()},
        }  # fmt: skip

    def refusal(
        self, findings: tuple[str, ...] = (), parts: tuple[ReportPart, ...] = (), **results: Json
    ) -> ExperimentReport:
        """Return the report of an experiment with fewer than two variants that have learned."""
        return ExperimentReport(
            (*findings, *self.findings()), (*parts, *self.parts()), {**results, "comparison": self.results()}
        )

    def _loss_table(self) -> ReportTable:
        rows: list[tuple[Cell, ...]] = [
            (name, self.steps[name], format_number(median(losses), ".3f"), "yes" if name in self.learned else "no")
            for name, losses in self.losses.items()
        ]
        note = (
            "Final validation loss in nats per token, median over seeds. A model has learned if this is at most "
            f"{LEARNED_SHARE:g} times the unigram loss, {self.unigram_loss:.3f}, that of predicting every token by its "
            "frequency."
        )
        return ReportTable("Which models have learned", ("model", "steps", "validation loss", "learned"), rows, note)


def train_comparison(
    lab: Laboratory, comparison: Comparison, *, corpus: SplitCorpus | None = None
) -> TrainedComparison:
    """Measure the speed, make and announce the plan, and train all models; those already trained are loaded."""
    plan = announce_plan(lab, comparison, corpus=corpus)
    recipes = {
        (name, seed): lab.build_recipe(f"{slug(name)}-{seed}", plan.settings(name), seed=seed, corpus=corpus)
        for seed in plan.seeds  # all variants with one seed before any with the next
        for name in plan.variants
    }
    labels = {key: key[0] if len(plan.seeds) == 1 else f"{key[0]}, seed {key[1]}" for key in recipes}

    def complete_seeds(trained: Collection[str]) -> tuple[int, ...]:
        return tuple(seed for seed in plan.seeds if all(labels[name, seed] in trained for name in plan.variants))

    trained = lab.train_all(
        {labels[key]: recipe for key, recipe in recipes.items()},
        at_once=comparison.at_once,
        suffices=lambda trained: len(complete_seeds(trained)) >= comparison.min_seeds,
    )
    plan = replace(plan, seeds=complete_seeds(trained))  # fewer than planned if the machine has become slower
    models = {name: [trained[labels[name, seed]] for seed in plan.seeds] for name in plan.variants}
    loss = lab.measure_once("unigram loss", lambda: unigram_loss(next(iter(recipes.values())), corpus or lab.corpus))
    losses = {name: [model.validation_loss for model in same] for name, same in models.items()}
    return TrainedComparison(plan, losses, {name: same[0].steps for name, same in models.items()}, loss, models)


def announce_plan(lab: Laboratory, comparison: Comparison, *, corpus: SplitCorpus | None = None) -> ComparisonPlan:
    """Measure the speed of every variant, plan the trainings within the budget, and send the plan as a notice."""
    plan = plan_comparison(comparison, lab.measure_speed(comparison.variants, corpus), lab.budget_seconds, lab.seed)
    lab.on_event(Notice(f"{lab.name}: {plan}"))
    return plan


def slug(name: str) -> str:
    """Return the name of a variant as a file name: 1-head for "1 head", d_k-8-scaled for "d_k = 8, scaled"."""
    return re.sub(r"[^\w.]+", "-", name).strip("-")


def unigram_loss(recipe: Recipe, corpus: SplitCorpus) -> float:
    """Return the validation loss of predicting every token by its frequency in the training text."""
    _, tokenizer = read_tokenizers(Run(recipe.run), recipe.tokenizer.joint)
    counts = _count_tokens(tokenizer, corpus.pairs("train"))
    total = sum(counts.values()) + len(tokenizer)  # add-one smoothing
    tokens = _count_tokens(tokenizer, corpus.pairs("valid"))
    loss = -sum(count * math.log((counts[token] + 1) / total) for token, count in tokens.items())
    return loss / sum(tokens.values())


def _count_tokens(tokenizer: Tokenizer, pairs: list[tuple[str, str]]) -> Counter[int]:
    return Counter(token for _, target in pairs for token in (*tokenizer.encode(target), END))


# The reference model


def reference_refusal(lab: Laboratory, model: TrainedModel) -> ExperimentReport | None:
    """Return the report of an experiment whose reference model has not learned; None if it has or is the user's.

    A reference model that has not learned is removed, so that the next experiment trains it with its own budget.
    """
    if lab.given_run is not None:
        return None
    loss = lab.measure_once("unigram loss", lambda: unigram_loss(model.run.read_recipe(), lab.corpus))
    if has_learned(model.validation_loss, loss):
        return None
    results = {"steps": model.steps, "validation_loss": model.validation_loss, "unigram_loss": loss}
    seconds = model.seconds / model.steps * _needed_steps(model.steps, LEARNING_STEPS)
    rmtree(model.run.folder)
    minutes = math.ceil(seconds * (lab.reference_seconds + lab.budget_seconds) / lab.reference_seconds / 60)
    return ExperimentReport((nothing_learned(minutes),), (), results)
