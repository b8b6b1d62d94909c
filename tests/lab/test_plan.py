"""Plans of trainings: a function of the comparison, the measured speed and the budget."""

import pytest

from dragoman.lab import normalisation, schedule, variations
from dragoman.lab.plan import Comparison, TrainingSpeed, plan_comparison

KINDS = {kind: {"model.positions": kind} for kind in ("sinusoidal", "learned", "none")}
COMPARISON = Comparison(KINDS, equal="steps", learning_steps=200, optional=(("none",),))
SPEED = TrainingSpeed(dict.fromkeys(KINDS, 0.1), overhead_seconds=5.0)


def plan(budget_seconds, comparison=COMPARISON, speed=SPEED):
    return plan_comparison(comparison, speed, budget_seconds, first_seed=4)


def test_the_plan_is_a_sentence():
    assert str(plan(450)) == (
        "9 models (3 variants, 3 seeds each), about 45 s each, 449 steps; compared after the same number of steps."
    )


@pytest.mark.parametrize(
    ("budget", "variants", "seeds", "steps"),
    [(450, 3, 3, 449), (226, 3, 3, 201), (224, 3, 2, 323), (100, 3, 1, 283), (76, 3, 1, 203), (74, 2, 1, 320)],
)
def test_there_are_fewer_seeds_then_fewer_variants_if_models_could_not_learn(budget, variants, seeds, steps):
    planned = plan(budget)
    assert planned.variants == ("sinusoidal", "learned", "none")[:variants]
    assert planned.seeds == (4, 5, 6)[:seeds]
    assert set(planned.steps.values()) == {steps}


def test_what_is_left_out_is_said():
    assert "Because time is short: 2 instead of 3 seeds." in str(plan(200))
    assert "Because time is short: 1 instead of 3 seeds; without “none”." in str(plan(70))
    assert "Because" not in str(plan(450))


def test_a_budget_in_which_nothing_can_be_learned_is_known_in_advance():
    planned = plan(30)
    assert planned.models == 2 and planned.steps["learned"] == 100
    # Three models of 200 steps at 0.1 s and 5 s of overhead.
    assert str(planned).endswith(
        "This is probably too short: such models need about 200 steps to learn, and the experiment about 2 minutes."
    )
    assert planned.needed_minutes(2000) == 11


@pytest.mark.parametrize("comparison", [COMPARISON, schedule.build_comparison(), normalisation.build_comparison()])
@pytest.mark.parametrize("budget", [100, 400, 3600])
def test_all_trainings_fit_into_the_budget(comparison, budget):
    speed = TrainingSpeed({name: 0.05 * (1 + number % 3) for number, name in enumerate(comparison.variants)}, 3.0)
    planned = plan(budget, comparison, speed)
    each = [planned.steps[name] * speed.seconds_per_step[name] + 3.0 for name in planned.variants]
    total = len(planned.seeds) * sum(each)
    assert 0.9 * budget < total <= budget


def test_models_that_are_trained_at_the_same_time_share_the_budget(monkeypatch):
    monkeypatch.setattr(variations, "available_cores", lambda: 2)
    comparison = variations.build_comparison()
    speed = TrainingSpeed(dict.fromkeys(comparison.variants, 0.1), 5.0)
    planned = plan(1260, comparison, speed)
    assert planned.models == 54
    assert planned.steps["base"] == int((2 * 1260 / 3 - 18 * 5) / (18 * 0.1))
    assert len(plan(900, comparison, speed).seeds) == 2


def test_slower_models_make_fewer_steps_in_equal_time():
    comparison = Comparison(KINDS, equal="time", max_seeds=1)
    planned = plan(330, comparison, TrainingSpeed({"sinusoidal": 0.1, "learned": 0.2, "none": 0.25}, 10.0))
    assert planned.steps == {"sinusoidal": 1000, "learned": 500, "none": 400}
    assert set(planned.seconds.values()) == {100.0}
    assert "100 s each, about 400–1,000 steps; compared after the same training time." in str(planned)
    assert planned.settings("none")["training.minutes"] == pytest.approx(100 / 60)
    assert "training.steps" not in planned.settings("none")
    assert planned.needed_minutes() == 3  # until the slowest has made 200 steps, for all three


@pytest.mark.parametrize(
    ("steps", "warmup", "interval"), [(1000, 100, 100), (500, 100, 50), (200, 50, 20), (30, 7, 3), (2, 1, 1)]
)
def test_warmup_and_intervals_fit_the_number_of_steps(steps, warmup, interval):
    comparison = Comparison({"base": {}}, equal="steps", max_seeds=1)
    settings = plan(steps, comparison, TrainingSpeed({"base": 1.0}, 0.0)).settings("base")
    assert settings["training.steps"] == steps
    assert settings["training.warmup"] == warmup
    assert settings["training.validate_every"] == settings["training.checkpoint_every"] == interval


def test_the_settings_of_a_variant_win_over_planned_ones():
    settings = plan(400, schedule.build_comparison(), _even_speed(schedule.build_comparison())).settings
    assert settings("equation 3 without warm-up")["training.warmup"] == 1
    assert settings("equation 3, warm-up 100")["training.warmup"] == 100


def _even_speed(comparison):
    return TrainingSpeed(dict.fromkeys(comparison.variants, 0.1), 5.0)
