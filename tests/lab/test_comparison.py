"""Which variants of a comparison have learned, and what is said about the others."""

import math

import pytest
from small_lab import shrink
from toy_lab import toy_lab

from dragoman.lab.comparison import TrainedComparison, has_learned, reference_refusal, slug, train_comparison
from dragoman.lab.plan import Comparison, TrainingSpeed, plan_comparison
from dragoman.run import Run
from dragoman.tasks.events import Notice

KINDS = Comparison({"a": {}, "b": {}, "c": {}}, equal="steps", learning_steps=200)
PLAN = plan_comparison(KINDS, TrainingSpeed(dict.fromkeys("abc", 1.0), 0.0), 90.0)


def trained(steps=30, **losses):
    return TrainedComparison(PLAN, losses, dict.fromkeys(losses, steps), unigram_loss=5.0)


def test_a_model_has_learned_if_its_loss_is_clearly_below_the_unigram_loss():
    assert has_learned(3.0, 5.0)
    assert not has_learned(4.9, 5.0)
    assert not has_learned(math.inf, 5.0)
    assert not has_learned(math.nan, 5.0)


def test_a_variant_has_learned_if_most_of_its_seeds_have():
    assert trained(a=[1.0, 1.2, math.inf], b=[1.0, 4.8, 4.9]).learned == ("a",)


def test_nothing_is_concluded_from_models_that_have_not_learned():
    report = trained(a=[4.9], b=[5.1], c=[5.0]).refusal()
    assert report.findings == (
        "Nothing was learned in this budget; it needs about 10 minutes (an estimate). Run it again with --budget 10m "
        "--overwrite.",
    )
    plan, table = report.parts
    assert plan == str(PLAN)
    assert [row[-1] for row in table.rows] == ["no", "no", "no"]
    assert "predicting every token by its frequency" in table.note


def test_models_that_learned_nothing_in_many_steps_need_twice_as_many():
    assert trained(steps=400, a=[4.9], b=[5.1], c=[5.0]).needed_minutes == 40  # three models, 800 steps of 1 s
    losses, steps = {"a": [1.0], "b": [4.9], "c": [1.0]}, {"a": 900, "b": 100, "c": 100}  # fast, slow, slow
    assert TrainedComparison(PLAN, losses, steps, 5.0).needed_minutes == 10


def test_variants_that_have_not_learned_are_named():
    partly = trained(a=[1.0], b=[4.9], c=[2.0])
    assert partly.learned == ("a", "c")
    assert partly.findings()[0].startswith("Not compared, because they did not learn in this budget: “b”. That needs")
    assert trained(a=[1.0], b=[4.9], c=[4.9]).findings()[0].startswith("Only “a” learned in this budget, so there is")
    assert trained(a=[1.0], b=[1.0], c=[1.0]).findings() == ()


@pytest.mark.parametrize(
    ("name", "file"),
    [("d_k = 8, scaled", "d_k-8-scaled"), ("dilated (ByteNet)", "dilated-ByteNet"), ("1 head", "1-head")],
)
def test_the_run_of_a_variant_is_named_like_it(name, file):
    assert slug(name) == file


def test_the_plan_is_announced_before_the_first_training(tmp_path, corpus, monkeypatch):
    shrink(monkeypatch)
    events = []
    lab = toy_lab(tmp_path, corpus, seconds=16, on_event=events.append)
    kinds = Comparison({"one": {}, "two": {"model.norm": "post"}}, equal="steps", max_seeds=1)
    result = train_comparison(lab, kinds)
    assert events[0] == Notice(f"toy: {result.plan}")
    assert result.steps == {"one": 4, "two": 4}
    recipe = result.models["two"][0].run.read_recipe()
    assert (recipe.training.steps, recipe.training.minutes, recipe.training.warmup) == (4, 0.0, 1)


def test_seeds_are_left_out_if_the_budget_is_used_up(tmp_path, corpus, monkeypatch):
    shrink(monkeypatch)
    events = []
    lab = toy_lab(tmp_path, corpus, seconds=6e-7, on_event=events.append)
    speed = TrainingSpeed({"one": 1e-7, "two": 1e-7}, 0.0)
    monkeypatch.setattr(type(lab), "measure_speed", lambda *_: speed)
    kinds = {"one": {}, "two": {"model.norm": "post"}}
    result = train_comparison(lab, Comparison(kinds, equal="steps", learning_steps=1))
    assert {name: len(models) for name, models in result.models.items()} == {"one": 1, "two": 1}
    assert "Because time is short: 1 instead of 3 seeds." in str(result.plan)
    assert events[-2] == Notice("toy: the budget is used up; 4 models left out.")


def test_a_reference_model_that_has_not_learned_is_not_inspected(tmp_path, corpus, trained, monkeypatch):
    shrink(monkeypatch, learned=False)
    lab = toy_lab(tmp_path, corpus, name="heads")
    refusal = reference_refusal(lab, lab.reference_model())
    assert refusal is not None and refusal.findings[0].startswith("Nothing was learned in this budget")
    assert not (tmp_path / "reference").exists()  # another budget trains it again
    own = toy_lab(tmp_path, corpus, given_run=Run(trained))
    assert reference_refusal(own, own.reference_model()) is None
