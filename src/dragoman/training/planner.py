"""The planner: it chooses the settings that a recipe leaves open, from the data, the speed of the machine and a budget.

Everything here is a pure function of its arguments: nothing is read, timed or drawn at random. `planning` collects the
arguments. docs/decisions/0017-planner.md has the experiments behind the constants; those of each task are in `presets`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dragoman.errors import format_count, format_duration
from dragoman.model_config import applicable_settings
from dragoman.presets import PLANNED_SETTINGS, TASKS, PlanningRules, SizeRule
from dragoman.recipe import Recipe, merge_tables

_REFERENCE_PAIRS = 20_000  # for which `PlanningRules.epochs` holds
_EPOCH_EXPONENT = 0.5  # four times the data: half the epochs
_MIN_EPOCHS = 6.0
_BUDGET_EPOCHS = 3.0  # times as many epochs are the most that a budget is spent on
_MAX_UNASKED_HOURS = 3.0  # a training without a budget is not planned to take longer
_UPDATES = 5000  # batches are as large as this number of updates allows
_VECTOR_WIDTH = 16  # floats of a vector of the compiled attention, which computes heads of whole vectors
_MAX_RATE = 0.005
_WARMUP_SHARE = 0.1
_MAX_WARMUP = 4000  # the paper's
_DROPOUTS = ((4.0, 0.0), (15.0, 0.1), (45.0, 0.2), (math.inf, 0.3))  # up to so many epochs
_VALIDATIONS = (5, 25)  # the smallest and the largest number
_VALIDATION_SHARE = 0.05  # of the training time, unless that is too little for the smallest number
_CHECKPOINTS = 25  # regular ones, so that those that are averaged are from the last fifth of the training
_PATIENCE_SHARE = 0.3  # of the validations, without improvement, until training stops early
_SPEED_MARGIN = 0.95  # of the measured speed is counted on
_OVERRUN = 1.03  # of the time limit: what is tolerated before the end is planned again

# Costs of other work in padded tokens of training, measured on translators (docs/decisions/0017-planner.md).
_LOSS_COST = 0.4  # per validation token
_GREEDY_COST, _BEAM_COST = 1.0, 2.0  # per token
_CANDIDATES = 4  # sets of weights that are compared after the last step
_SCORING_SECONDS = 0.001  # per scored example, for confidence intervals
_CLOSING_SECONDS = 1.0  # for curves, the averaged weights and the model card

_CHARACTER_MODEL_LIMIT = 2_000_000  # characters of running text, up to which the tokens are characters
_MANY_CHARACTERS = 500  # distinct ones, of a script whose text is not split into characters
_VOCABULARY_PAIRS = (20_000, 160_000)  # for which the vocabulary has 8,000 subwords
_VOCABULARY_LIMITS = (1000, 32_000)


@dataclass(frozen=True)
class TextFacts:
    """What a tokenizer is planned from."""

    pairs: int
    characters: int  # of both sides
    distinct_characters: int


@dataclass(frozen=True)
class CorpusFacts:
    """What a training is planned from: the tokenized data. Tokens are those of the longer side of a pair."""

    pairs: int  # for training
    tokens: int  # for training, per epoch
    valid_tokens: int
    scored_examples: int  # validation examples that are decoded after the last step
    unit: str = "pair"  # what the task calls a pair

    @property
    def tokens_per_pair(self) -> float:
        """The mean length of a pair."""
        return self.tokens / max(1, self.pairs)


@dataclass(frozen=True)
class Budget:
    """What a training may take: updates, or seconds from now until the model is written and scored."""

    steps: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Plan:
    """The settings that the planner chose, and why."""

    recipe: Recipe  # complete
    summary: tuple[str, ...]  # a few lines for a person
    is_too_short: bool = False  # whether the budget is too small to learn much


@dataclass(frozen=True)
class _Length:
    """The length of a training with one model size."""

    batch_tokens: int
    steps: int
    tokens: float
    epochs: float
    validations: int
    speed: float | None  # tokens per second
    finishing_seconds: float
    limit: Literal["steps", "seconds", "epochs", "hours"]  # what the number of steps follows from

    @property
    def seconds(self) -> float | None:
        """The time from the first step to the end, validations and scoring included."""
        return self.tokens / self.speed * (1 + _VALIDATION_SHARE) + self.finishing_seconds if self.speed else None


def _complete_recipe(recipe: Recipe, chosen: Mapping[str, Any]) -> Recipe:
    """Return the recipe with the chosen settings where it has none of its own."""
    chosen = {**chosen, "model": applicable_settings(chosen.get("model", {}), recipe.model.architecture)}
    return Recipe.from_table(merge_tables(chosen, recipe.given_settings))


def take_planned_settings(recipe: Recipe, recorded: Recipe) -> Recipe:
    """Return the recipe with the settings that it leaves open taken from the recorded recipe of its run."""
    sections = {section: getattr(recorded, section) for section in PLANNED_SETTINGS}
    return _complete_recipe(
        recipe,
        {
            section: {name: getattr(config, name) for name in PLANNED_SETTINGS[section] if hasattr(config, name)}
            for section, config in sections.items()
        },
    )


def plan_tokenizer(recipe: Recipe, facts: TextFacts) -> Recipe:
    """Return the recipe with a complete [tokenizer] section."""
    kind, size = recipe.tokenizer.kind, float(recipe.tokenizer.size)
    if TASKS[recipe.task].planning.is_running_text:
        is_small = facts.characters < _CHARACTER_MODEL_LIMIT and facts.distinct_characters < _MANY_CHARACTERS
        kind = "characters" if is_small else kind
        size = 2000 * math.sqrt(facts.characters / _CHARACTER_MODEL_LIMIT)
    elif kind in ("bpe", "wordpiece"):
        small, large = _VOCABULARY_PAIRS
        size = 8000 * (facts.pairs / _clamp(facts.pairs, (small, large))) ** (1 / 3)
    if facts.distinct_characters >= _MANY_CHARACTERS:
        size = max(size, 2 * facts.distinct_characters)
    rounded = int(_clamp(round(size / 500) * 500, _VOCABULARY_LIMITS))
    return _complete_recipe(recipe, {"tokenizer": {"kind": kind, "size": rounded}})


def candidate_recipes(recipe: Recipe, facts: CorpusFacts) -> list[Recipe]:
    """Return the recipe with each size that there is enough data for, the smallest first, to measure its speed."""
    training = {"batch_tokens": TASKS[recipe.task].planning.batch_tokens[0]}
    return [
        _complete_recipe(recipe, {"model": _fit_model(recipe, size), "training": training})
        for size in _fitting_sizes(recipe, facts)
    ]


def plan_training(
    recipe: Recipe, facts: CorpusFacts, speeds: Sequence[float], budget: Budget, *, processes: int = 1
) -> Plan:
    """Choose every setting that the recipe leaves open.

    `speeds` are the tokens per second of each of the `candidate_recipes`. They may be left out if the budget is in
    steps; then the smallest size that fits the data is planned.
    """
    rules, sizes = TASKS[recipe.task].planning, _fitting_sizes(recipe, facts)
    speed_of_size: Sequence[float | None] = speeds or [None] * len(sizes)
    lengths = [_plan_length(recipe, facts, speed, budget, processes) for speed in speed_of_size]
    trainable = [index for index, size in enumerate(sizes) if lengths[index].tokens >= size.min_tokens]
    chosen = max(trainable, default=0)
    length, model = lengths[chosen], _fit_model(recipe, sizes[chosen])
    settings = {
        "model": {**model, "norm": "pre", "dropout": _dropout(length.epochs, rules)},
        "training": _training_settings(recipe, model["width"], length, processes),
    }
    planned = _complete_recipe(recipe, settings)
    return Plan(
        recipe=planned,
        summary=tuple(_summary_lines(planned, facts, length, budget)),
        is_too_short=_is_too_short(recipe, length),
    )


def replan_last_step(
    step: int, last_step: int, elapsed: float, seconds_per_step: float, time_limit: float
) -> int | None:
    """Return an earlier last step for a training that would exceed its time limit, or None if it keeps it."""
    if elapsed + (last_step - step) * seconds_per_step <= _OVERRUN * time_limit:
        return None
    return max(step + 1, step + int((time_limit - elapsed) / seconds_per_step))


# Sizes


def _fitting_sizes(recipe: Recipe, facts: CorpusFacts) -> list[SizeRule]:
    sizes = TASKS[recipe.task].planning.sizes
    width = _given(recipe, "model", "width")
    if width is not None:  # the size is the user's; the nearest one says the rest
        return [min(sizes, key=lambda size: abs(size.model["width"] - width))]
    return [size for size in sizes if facts.pairs >= size.min_pairs] or [sizes[0]]


def _fit_model(recipe: Recipe, size: SizeRule) -> dict[str, Any]:
    """Return a size's settings, fitted to those of the recipe."""
    model = {"decoder_layers": None, **size.model}
    heads = _given(recipe, "model", "heads")
    if heads is not None:
        model["width"] = -(-model["width"] // (2 * heads)) * 2 * heads
    width = _given(recipe, "model", "width")
    if width is not None:
        model["inner_width"] = max(1, width * model["inner_width"] // model["width"])
        model["heads"] = max(range(1, model["heads"] + 1), key=lambda heads: _head_fit(width, heads))
        model["width"] = width
    if _given(recipe, "model", "layers") is not None:
        model["decoder_layers"] = None
    return model


def _head_fit(width: int, heads: int) -> tuple[bool, bool, int]:
    """Rank a number of heads: it must divide the width; attention is twice as fast if a head is whole vectors wide."""
    return width % heads == 0, width // heads % _VECTOR_WIDTH == 0, heads


def _dropout(epochs: float, rules: PlanningRules) -> float:
    return min(rules.max_dropout, next(dropout for limit, dropout in _DROPOUTS if epochs <= limit))


# Length


def _plan_length(recipe: Recipe, facts: CorpusFacts, speed: float | None, budget: Budget, processes: int) -> _Length:
    rules = TASKS[recipe.task].planning
    tokens, finishing = _usual_epochs(rules, facts) * facts.tokens, 0.0
    limit: Literal["steps", "seconds", "epochs", "hours"] = "epochs"
    if speed is not None:
        speed *= _SPEED_MARGIN
        finishing = finishing_seconds(recipe, facts, speed)
        if budget.seconds is not None:
            tokens *= _BUDGET_EPOCHS
            in_time = speed * max(0.0, budget.seconds - finishing) / (1 + _VALIDATION_SHARE)
        else:
            in_time = speed * 3600 * _MAX_UNASKED_HOURS
        if in_time < tokens:
            tokens, limit = in_time, "hours" if budget.seconds is None else "seconds"
    if budget.steps:
        limit = "steps"
    accumulate = _accumulate(recipe, processes)
    largest = tokens / ((budget.steps or _UPDATES) * accumulate)
    batch = _given(recipe, "training", "batch_tokens") or _power_of_two(largest, rules.batch_tokens)
    steps = budget.steps or max(1, round(tokens / (batch * accumulate)))
    tokens = float(steps * batch * accumulate)
    validations = int(_clamp(_VALIDATION_SHARE * tokens / _validation_cost(recipe, facts), _VALIDATIONS))
    return _Length(batch, steps, tokens, tokens / facts.tokens, validations, speed, finishing, limit)


def _usual_epochs(rules: PlanningRules, facts: CorpusFacts) -> float:
    """Return the number of epochs of a training without a budget."""
    epochs = rules.epochs * (_REFERENCE_PAIRS / facts.pairs) ** _EPOCH_EXPONENT
    return _clamp(epochs, (_MIN_EPOCHS, rules.max_epochs))


def _validation_cost(recipe: Recipe, facts: CorpusFacts, samples: int = 1) -> float:
    decoded = min(samples * recipe.training.validation_sample, facts.scored_examples) * facts.tokens_per_pair
    if TASKS[recipe.task].planning.is_running_text:  # one sample is generated
        decoded = facts.tokens_per_pair
    return _LOSS_COST * facts.valid_tokens + _GREEDY_COST * decoded


def finishing_seconds(recipe: Recipe, facts: CorpusFacts, speed: float) -> float:
    """Estimate the time after the last step, for comparing weights and scoring."""
    compared = _CANDIDATES * _validation_cost(recipe, facts, samples=2)
    scored = facts.scored_examples * facts.tokens_per_pair * _BEAM_COST
    if TASKS[recipe.task].planning.is_running_text:  # its loss is the score
        scored = _LOSS_COST * facts.valid_tokens
    return (compared + scored) / speed + _SCORING_SECONDS * facts.scored_examples + _CLOSING_SECONDS


def finishing_validations(recipe: Recipe, facts: CorpusFacts) -> float:
    """Return how many times as long as a validation the time after the last step is."""
    return finishing_seconds(recipe, facts, 1.0) / _validation_cost(recipe, facts)


def _power_of_two(size: float, limits: tuple[int, int]) -> int:
    return int(_clamp(2.0 ** math.floor(math.log2(max(1.0, size))), limits))


def _accumulate(recipe: Recipe, processes: int) -> int:
    return int(_given(recipe, "training", "accumulate") or processes)


def _training_settings(recipe: Recipe, width: int, length: _Length, processes: int) -> dict[str, Any]:
    rules, accumulate = TASKS[recipe.task].planning, _accumulate(recipe, processes)
    schedule = _given(recipe, "training", "schedule") or rules.schedule
    rate = rules.rate * math.sqrt(length.batch_tokens * accumulate / 2048 * 128 / width)
    checkpoint_every = math.ceil(length.steps / _CHECKPOINTS)
    # A validation with a new best loss saves a checkpoint too, so validations come with regular checkpoints.
    validate_every = checkpoint_every * math.ceil(length.steps / checkpoint_every / length.validations)
    return {
        "steps": length.steps,
        "batch_tokens": length.batch_tokens,
        "accumulate": accumulate,
        "schedule": schedule,
        "rate": None if schedule == "noam" else min(_MAX_RATE, float(f"{rate:.2g}")),
        "warmup": int(_clamp(length.steps * _WARMUP_SHARE, (1, _MAX_WARMUP))),
        "clip": 1.0,
        "validate_every": validate_every,
        "patience": max(3, math.ceil(_PATIENCE_SHARE * length.steps / validate_every)),
        "checkpoint_every": checkpoint_every,
    }


# What a person reads


def _summary_lines(recipe: Recipe, facts: CorpusFacts, length: _Length, budget: Budget) -> list[str]:
    training = recipe.training
    limit = format_count(budget.steps, "step") if budget.steps else ""
    if budget.seconds is not None:
        limit = format_duration(60 * training.minutes)
    rate = "" if training.rate is None else f" to {training.rate:g}"
    decay = ", then falls to zero" if training.schedule in ("linear", "cosine") else ""
    stop = format_count(training.patience, "validation")
    epochs = format_count(float(f"{length.epochs:.2g}"), "epoch")
    tokens = "positions" if getattr(recipe.model, "frame_width", 0) else "tokens"
    lines = [
        f"Plan for {format_count(facts.pairs, facts.unit)} of {facts.tokens_per_pair:.0f} {tokens} on average"
        f"{limit and f' and {limit}'}:",
        f"  model       {_describe_model(recipe)}{_size_reason(recipe, facts, length)}",
        f"  training    at most {format_count(training.steps, 'step')} of "
        f"{training.batch_tokens * training.accumulate:,} {tokens}, {epochs}; "
        f"the learning rate rises{rate} in {format_count(training.warmup, 'step')}{decay}",
        f"  validation  {_interval(training.validate_every)}"
        + (f"; training stops early after {stop} without improvement" if training.patience else ""),
    ]
    if length.seconds is not None and length.speed is not None:
        lines.append(
            f"  time        at most {format_duration(length.seconds)} at {length.speed:,.0f} {tokens} per second"
            f"{_time_reason(length, budget)}"
        )
    expectation = _expectation(recipe, facts, length)
    return [*lines, f"  expect      {expectation}"] if expectation else lines


def _interval(steps: int) -> str:
    return "after every step" if steps == 1 else f"every {steps:,} steps"


def _describe_model(recipe: Recipe) -> str:
    model, tokenizer = recipe.model, recipe.tokenizer
    depth = format_count(model.layers, "layer")
    if model.decoder_depth != model.layers:
        depth = f"{model.layers} encoder and {format_count(model.decoder_depth, 'decoder layer')}"
    vocabulary = {"words": "", "characters": ", characters as tokens", "bytes": ", bytes as tokens"}.get(
        tokenizer.kind, f", vocabulary of {tokenizer.size:,} subwords"
    )
    return f"{depth} of width {model.width}{vocabulary}, dropout {model.dropout:g}"


def _time_reason(length: _Length, budget: Budget) -> str:
    if length.limit == "hours":
        return f", limited to {_MAX_UNASKED_HOURS:g} hours; --minutes allows more"
    if budget.seconds is not None and length.seconds is not None and length.seconds > 1.05 * budget.seconds:
        return ", more than the time limit"
    return "; more epochs would hardly help" if budget.seconds is not None and length.limit == "epochs" else ""


def _size_reason(recipe: Recipe, facts: CorpusFacts, length: _Length) -> str:
    sizes = TASKS[recipe.task].planning.sizes
    larger = [
        size for size in sizes if size.model["width"] * size.model["layers"] > recipe.model.width * recipe.model.layers
    ]
    if not larger:
        return ""
    if facts.pairs < larger[0].min_pairs:
        return f" (a larger model from about {format_count(larger[0].min_pairs, facts.unit)})"
    if length.tokens < larger[0].min_tokens:
        return " (a larger model if the training is longer)"
    return ""


def _expectation(recipe: Recipe, facts: CorpusFacts, length: _Length) -> str:
    rules = TASKS[recipe.task].planning
    if not _is_too_short(recipe, length):
        return next((text for pairs, text in rules.amounts if facts.pairs < pairs), "")
    steps = f"{format_count(length.steps, 'step')} {'is' if length.steps == 1 else 'are'}"
    tokens = min(rules.enough_tokens, _BUDGET_EPOCHS * _usual_epochs(rules, facts) * facts.tokens)
    enough = f"{round(tokens * length.steps / length.tokens, -2):,.0f} steps"
    if length.speed is not None:
        seconds = tokens / length.speed * (1 + _VALIDATION_SHARE) + length.finishing_seconds
        enough += f" or {format_duration(seconds)}"
    return f"{steps} too few to learn to {recipe.task}; about {enough} would do"


def _is_too_short(recipe: Recipe, length: _Length) -> bool:
    """Return whether the budget, and not the amount of data, lets the model learn next to nothing."""
    return length.tokens < TASKS[recipe.task].planning.min_tokens and length.limit != "epochs"


def _given(recipe: Recipe, section: str, name: str) -> Any:
    """Return a setting that was given, else None."""
    config = getattr(recipe, section)
    return getattr(config, name) if name in config.model_fields_set else None


def _clamp(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])
