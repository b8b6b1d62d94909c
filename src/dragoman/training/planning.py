"""Planning a training: this module collects what the planner needs, from the data and this machine, and calls it."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from dragoman.data.corpus import TextPairs
from dragoman.errors import format_count
from dragoman.manifest import replace_model_files
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.storage import write_atomically
from dragoman.tasks.events import Notice, ProgressUpdate
from dragoman.tasks.registry import get_task
from dragoman.training.distributed import SINGLE_PROCESS, World
from dragoman.training.events import OnTrainingEvent, RecipePlanned
from dragoman.training.planner import (
    Budget,
    CorpusFacts,
    Plan,
    TextFacts,
    candidate_recipes,
    plan_tokenizer,
    plan_training,
)
from dragoman.training.prepare import OPEN_ENDED_SCHEDULES, PreparedData, prepare_data

_SAMPLED_PAIRS = 20_000  # whose characters are counted
_OPTIONAL = {"training.rate", "training.accumulate", "model.decoder_layers"}  # settings that need no value


class MeasurableTraining(Protocol):
    """A training whose speed can be measured before it starts."""

    def tokens_per_second(self) -> float:
        """Measure the speed on this machine, in tokens of the longer side of a pair."""


def prepare_and_plan(
    run: Run,
    recipe: Recipe,
    corpus: TextPairs,
    valid: TextPairs | None,
    trainer: Callable[[Run, Recipe, PreparedData], MeasurableTraining],
    started_at: float,
    on_event: OnTrainingEvent,
    world: World = SINGLE_PROCESS,
) -> tuple[Recipe, PreparedData]:
    """Prepare the data, plan what the recipe leaves open, and record the complete recipe before the first step."""
    if any(name.startswith("tokenizer.") for name in recipe.unplanned_settings):
        recipe = plan_tokenizer(recipe, _text_facts(corpus))
    _write_recipe(run, recipe)
    data = prepare_data(run, recipe, corpus, valid, on_event)

    def measure_speed(candidate: Recipe) -> float:
        return world.size * trainer(run, candidate, data).tokens_per_second()

    def seconds_left() -> float:
        return max(0.0, 60 * recipe.training.minutes - (time.monotonic() - started_at))

    has_steps = "training.steps" not in recipe.unplanned_settings
    planned = _plan_recipe(recipe, data, measure_speed, seconds_left, on_event, processes=world.size)
    if planned:
        recipe = planned.recipe
        on_event(RecipePlanned(planned))
    config = recipe.training
    if has_steps and config.minutes and config.schedule not in OPEN_ENDED_SCHEDULES:
        on_event(
            Notice(
                f"The number of steps is set to {config.steps:,}, so the time limit of "
                f"{format_count(config.minutes, 'minute')} can only shorten the training."
            )
        )
    run.require_in_place()
    _write_recipe(run, recorded_recipe(recipe))
    return recipe, data


def _write_recipe(run: Run, recipe: Recipe) -> None:
    with replace_model_files(run, run.recipe_file):
        write_atomically(run.recipe_file, recipe.to_toml().encode())


def recorded_recipe(recipe: Recipe) -> Recipe:
    """Return a recipe as a run records it: without its minutes if the learning rate ends with the steps.

    A training with the recorded recipe repeats the run; with a time limit, it might end at another step.
    """
    if recipe.training.schedule in OPEN_ENDED_SCHEDULES:
        return recipe
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"minutes": 0.0})})


def _plan_recipe(
    recipe: Recipe,
    data: PreparedData,
    measure_speed: Callable[[Recipe], float],
    seconds_left: Callable[[], float],
    on_event: OnTrainingEvent,
    *,
    processes: int = 1,
) -> Plan | None:
    """Plan the settings that the recipe leaves open; None if there is nothing to plan.

    `measure_speed` returns the tokens per second of a training, `seconds_left` the rest of `training.minutes`. The
    speed is measured unless the recipe says how many steps to make.
    """
    unplanned = set(recipe.unplanned_settings)
    if not unplanned - _OPTIONAL:
        return None
    facts, speeds = corpus_facts(recipe, data), []
    if "training.steps" in unplanned:
        candidates = candidate_recipes(recipe, facts)
        for index, candidate in enumerate(candidates):
            on_event(ProgressUpdate("Measuring the speed of this machine", index, len(candidates)))
            speeds.append(measure_speed(candidate))
    config = recipe.training
    if "training.steps" not in unplanned:
        budget = Budget(steps=config.steps)
    else:
        budget = Budget(seconds=seconds_left() if config.minutes else None)
    return plan_training(recipe, facts, speeds, budget, processes=processes)


def _text_facts(corpus: TextPairs) -> TextFacts:
    """Count the pairs of a corpus, and the characters of pairs spread evenly over it."""
    pairs = corpus.count_pairs()
    every = max(1, pairs // _SAMPLED_PAIRS)
    characters, distinct = 0, set[str]()
    for source, target in islice(corpus.pairs(), 0, None, every):
        characters += len(source) + len(target)
        distinct.update(source, target)
    return TextFacts(pairs, characters * every, len(distinct))


def corpus_facts(recipe: Recipe, data: PreparedData) -> CorpusFacts:
    """Return the facts of tokenized data; overlapping windows of running text count once."""
    train, valid = data.train_pairs, data.validation
    return CorpusFacts(
        pairs=len(train) // train.repeats,
        tokens=int(train.costs.sum()) // train.repeats,
        valid_tokens=int(valid.pairs.costs.sum()),
        scored_examples=len(valid.examples),
        unit=get_task(recipe.task).unit,
    )
