"""The planner as a pure function: from facts, speed and budget to a complete recipe."""

import math
import re

import pytest

from dragoman.native.functions import LANES
from dragoman.presets import TASKS
from dragoman.recipe import Recipe
from dragoman.training.planner import (
    Budget,
    CorpusFacts,
    TextFacts,
    candidate_recipes,
    plan_tokenizer,
    plan_training,
    replan_last_step,
)

PAIRS = (60, 500, 5_000, 20_000, 160_000, 4_500_000)
NEED_NO_VALUE = {"training.rate", "model.decoder_layers"}


def facts(pairs, length=13, valid=1000):
    return CorpusFacts(pairs, tokens=pairs * length, valid_tokens=valid * length, scored_examples=valid)


def plan(pairs, *overrides, task="translate", speed=6000.0, length=13, processes=1, **budget):
    recipe = plan_tokenizer(
        Recipe.from_table({"task": task}, overrides), TextFacts(pairs, characters=pairs * 90, distinct_characters=100)
    )
    known = facts(pairs, length)
    speeds = [speed / 2**index for index in range(len(candidate_recipes(recipe, known)))]
    return plan_training(recipe, known, speeds, Budget(**budget), processes=processes)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("budget", [{}, {"seconds": 240.0}, {"seconds": 3600.0}, {"steps": 7}, {"steps": 50_000}])
def test_every_task_size_and_budget_gets_a_complete_recipe(task, pairs, budget):
    planned = plan(pairs, task=task, **budget)
    config = planned.recipe.training
    assert set(planned.recipe.unplanned_settings) <= NEED_NO_VALUE
    assert 1 <= config.warmup <= max(1, config.steps // 5)
    assert config.schedule in ("linear", "cosine")  # the rate falls to zero at the last step
    assert -(-config.steps // config.validate_every) >= min(4, config.steps)
    assert 20 * config.checkpoint_every <= max(20, config.steps)
    assert config.validate_every % config.checkpoint_every == 0, "the averaged checkpoints are evenly spaced"
    assert 5 <= len(planned.summary) <= 6


@pytest.mark.parametrize("minutes", [4, 15, 45, 180])
@pytest.mark.parametrize("pairs", [20_000, 160_000, 4_500_000])
@pytest.mark.parametrize("speed", [3000.0, 20_000.0])
def test_a_training_with_a_time_limit_fills_it_with_steps_and_does_not_exceed_it(minutes, pairs, speed):
    recipe = plan(pairs, speed=speed, seconds=60.0 * minutes).recipe
    speed_of_size = speed / 2 ** [size.model["width"] for size in TASKS["translate"].planning.sizes].index(
        recipe.model.width
    )
    epochs = recipe.training.steps * recipe.training.batch_tokens / (13 * pairs)
    seconds = recipe.training.steps * recipe.training.batch_tokens / speed_of_size
    assert seconds < 60 * minutes
    assert seconds > (0.7 if minutes < 10 else 0.85) * 60 * minutes or epochs > 30, "more would not help"


@pytest.mark.parametrize(
    ("pairs", "least", "most"), [(500, 60, 121), (20_000, 20, 60), (160_000, 8, 30), (4_500_000, 0.4, 10)]
)
def test_without_a_budget_the_data_is_seen_a_sensible_number_of_times(pairs, least, most):
    config = plan(pairs).recipe.training
    assert least <= config.steps * config.batch_tokens / (13 * pairs) <= most
    assert config.steps * config.batch_tokens / 6000 <= 3 * 3600


def test_few_examples_get_more_dropout_than_many():
    dropouts = [plan(pairs, seconds=3600.0).recipe.model.dropout for pairs in (5_000, 160_000, 4_500_000)]
    assert dropouts == sorted(dropouts, reverse=True)
    assert dropouts[0] > dropouts[-1]


def test_a_larger_model_needs_more_data_and_more_time():
    widths = {
        (pairs, hours): plan(pairs, speed=12_000.0, seconds=3600.0 * hours).recipe.model.width
        for pairs in (20_000, 4_500_000)
        for hours in (0.25, 24)
    }
    assert widths[20_000, 24] == widths[20_000, 0.25] == widths[4_500_000, 0.25] == 128
    assert widths[4_500_000, 24] > 128


def test_what_is_given_is_kept_and_the_rest_fits_it():
    planned = plan(20_000, "model.width=96", "training.warmup=7", "training.schedule=cosine", seconds=900.0).recipe
    assert (planned.model.width, planned.training.warmup, planned.training.schedule) == (96, 7, "cosine")
    assert planned.model.width % planned.model.heads == 0
    planned = plan(20_000, "model.heads=6", "model.layers=2", seconds=900.0).recipe
    assert (planned.model.heads, planned.model.layers) == (6, 2)
    assert planned.model.width % 12 == 0
    small, large = (
        plan(20_000, f"training.batch_tokens={size}", seconds=900.0).recipe.training for size in (512, 4096)
    )
    assert 7 <= small.steps / large.steps <= 9, "as many tokens in smaller batches"


def test_every_size_has_heads_that_the_compiled_attention_computes():
    sizes = [size.model for spec in TASKS.values() for size in spec.planning.sizes]
    assert {size["width"] // size["heads"] % LANES for size in sizes} == {0}


@pytest.mark.parametrize(("width", "heads"), [(96, 3), (144, 3), (160, 2), (256, 4), (100, 4), (97, 1)])
def test_a_given_width_gets_heads_of_whole_vectors_if_it_can(width, heads):
    assert plan(20_000, f"model.width={width}", "model.positions='none'").recipe.model.heads == heads


def test_the_papers_schedule_keeps_its_own_rate():
    assert plan(20_000, "training.schedule=noam", seconds=900.0).recipe.training.rate is None


def test_another_architecture_gets_only_settings_that_it_has():
    recipe = plan(20_000, "model.architecture=recurrent", seconds=900.0).recipe
    assert recipe.model.architecture == "recurrent"
    assert set(recipe.unplanned_settings) <= NEED_NO_VALUE


def test_several_processes_share_each_update():
    one, four = plan(160_000, seconds=900.0), plan(160_000, seconds=900.0, processes=4)
    assert (one.recipe.training.accumulate, four.recipe.training.accumulate) == (1, 4)
    assert four.recipe.training.steps < one.recipe.training.steps


def test_a_complete_recipe_is_planned_as_it_is():
    first = plan(20_000, seconds=900.0).recipe
    again = plan_training(Recipe.from_table(first.model_dump()), facts(20_000), [], Budget(steps=first.training.steps))
    assert again.recipe == first


def test_a_budget_that_is_too_short_says_what_would_do():
    planned = plan(20_000, seconds=60.0)
    assert planned.is_too_short
    assert "are too few to learn to translate; about" in planned.summary[-1]
    assert planned.summary[-1].endswith(" min would do")
    assert plan(20_000, steps=30).summary[-1].endswith(" would do")
    assert "1 step is too few" in plan(20_000, steps=1).summary[-1]
    assert not plan(20_000, seconds=2700.0).is_too_short


def test_the_time_that_would_do_does_not_depend_on_how_short_the_budget_is():
    said = {plan(20_000, seconds=seconds).summary[-1].split("about ")[1] for seconds in (0.0, 1.0, 30.0)}
    assert len(said) == 1
    minutes = int(said.pop().split()[3])
    assert not plan(20_000, seconds=60.0 * minutes).is_too_short


def test_a_small_validation_set_leaves_more_time_for_steps():
    recipe = plan_tokenizer(Recipe(task="transcribe"), TextFacts(31, 900, 12))
    steps = [
        plan_training(
            recipe, CorpusFacts(31, 31 * 155, valid * 155, valid, "recording"), [2300.0], Budget(seconds=300.0)
        ).recipe.training.steps
        for valid in (10, 200)
    ]
    assert steps[0] > 1.5 * steps[1]


@pytest.mark.parametrize("task", ["transcribe", "translate"])
def test_a_training_as_long_as_advised_is_not_called_too_short(task):
    advised = plan(31, task=task, length=155, speed=2300.0, seconds=60.0).summary[-1]
    assert "too few to learn" in advised
    minutes = int(re.search(r"or (\d+) min", advised)[1])
    assert not plan(31, task=task, length=155, speed=2300.0, seconds=60.0 * minutes).is_too_short
    assert not plan(31, task=task, length=155, speed=2300.0).is_too_short


def test_the_summary_says_why_a_training_is_as_long_as_it_is():
    assert "limited to 3 hours; --minutes allows more" in "".join(plan(4_500_000).summary)
    assert "more epochs would hardly help" in "".join(plan(500, seconds=36_000.0).summary)
    assert "more than the time limit" in "".join(plan(20_000, seconds=5.0).summary)
    assert "limited" not in "".join(plan(20_000, seconds=900.0).summary)


def test_the_summary_says_what_to_expect_of_so_much_data():
    assert "a phrasebook rather than a translator; more text helps most" in plan(20_000, seconds=2700.0).summary[-1]
    assert "at most" in "".join(plan(20_000).summary)


@pytest.mark.parametrize(
    ("characters", "distinct", "kind"), [(300_000, 90, "characters"), (300_000, 3000, "bpe"), (9_000_000, 90, "bpe")]
)
def test_a_small_book_gets_characters(characters, distinct, kind):
    recipe = plan_tokenizer(Recipe(task="generate"), TextFacts(1, characters, distinct))
    assert recipe.tokenizer.kind == kind


def test_the_vocabulary_grows_with_the_data_and_the_script():
    def size(pairs, distinct=100):
        return plan_tokenizer(Recipe(), TextFacts(pairs, 90 * pairs, distinct)).tokenizer.size

    sizes = [size(pairs) for pairs in PAIRS]
    assert sizes == sorted(sizes)
    assert sizes[0] == 1000 and size(10**9) == 32_000
    assert size(20_000, distinct=5000) > size(20_000)


@pytest.mark.parametrize(
    ("elapsed", "seconds_per_step", "last_step"),
    [(50.0, 1.0, None), (50.0, 1.02, None), (50.0, 2.0, 75), (99.0, 2.0, 51), (200.0, 1.0, 51)],
)
def test_the_end_moves_only_as_far_as_the_time_limit_demands(elapsed, seconds_per_step, last_step):
    assert replan_last_step(50, 100, elapsed, seconds_per_step, time_limit=100.0) == last_step


def test_the_learning_rate_falls_to_zero_at_the_new_end():
    from dragoman.training.schedule import schedule, shorten

    config = plan(20_000, steps=100).recipe.training
    before = schedule(config, 128)
    after = shorten(before, 40, 60)
    assert [after(step) for step in range(1, 41)] == [before(step) for step in range(1, 41)]
    falling = [after(step) for step in range(40, 61)]
    assert falling == sorted(falling, reverse=True)
    assert math.isclose(falling[-1], falling[0] / 21)
