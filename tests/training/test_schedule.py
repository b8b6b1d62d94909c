import math

import pytest

from dragoman.presets import PRESETS
from dragoman.recipe import TrainingConfig
from dragoman.training.schedule import schedule


def test_the_papers_schedule_is_equation_3_with_the_numbers_of_base():
    width = PRESETS["base"]["model"]["width"]
    rate = schedule(TrainingConfig(warmup=4000), width)
    steps = (1, 17, 3999, 4000, 4001, 50_000, 100_000)
    assert [rate(step) for step in steps] == pytest.approx(
        [512**-0.5 * min(step**-0.5, step * 4000**-1.5) for step in steps], rel=1e-12
    )


def test_a_peak_of_ones_own_is_reached_at_the_end_of_the_warm_up():
    rate = schedule(TrainingConfig(warmup=10, rate=0.5, schedule="noam"), 512)
    assert max(rate(step) for step in range(1, 1000)) == rate(10) == 0.5


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_a_schedule_that_ends_at_zero_falls_all_the_way_and_never_stands_still(kind):
    rate = schedule(TrainingConfig(steps=50, warmup=10, rate=1.0, schedule=kind), 512)
    falling = [rate(step) for step in range(10, 51)]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] == 1.0
    assert 0 < falling[-1] < 0.03
    assert rate(51) == pytest.approx(0, abs=1e-12)


def test_the_cosine_is_half_way_down_half_way_through():
    rate = schedule(TrainingConfig(steps=29, warmup=10, rate=1.0, schedule="cosine"), 512)
    assert rate(20) == pytest.approx((1 + math.cos(math.pi / 2)) / 2)


def test_a_constant_rate_rises_and_then_stays():
    rate = schedule(TrainingConfig(steps=100, warmup=4, rate=0.2, schedule="constant"), 512)
    assert [rate(step) for step in (1, 2, 4, 5, 100)] == pytest.approx([0.05, 0.1, 0.2, 0.2, 0.2])


def test_a_training_shorter_than_its_warm_up_only_rises():
    rate = schedule(TrainingConfig(steps=3, warmup=10, rate=1.0, schedule="linear"), 512)
    assert [rate(step) for step in (1, 2, 3)] == pytest.approx([0.1, 0.2, 0.3])
