"""Table 3: only significant differences are reported."""

import pytest
from small_lab import check_report, shrink
from toy_lab import toy_lab, train

from dragoman.lab import variations
from dragoman.lab.variations import (
    VARIATIONS,
    compare_with_base,
    is_significant,
    score_model,
    variation_findings,
    variations_table,
)


def rows_with(changed, values):
    made = {each.name: [1.5, 1.6, 1.4] for each in VARIATIONS} | {changed: values}
    return {
        name: [{"perplexity": value, "bleu": 50.0, "parameters": 7, "seconds": 1.0} for value in each]
        for name, each in made.items()
    }


def test_means_that_do_not_pass_students_test_do_not_differ():
    assert not is_significant((1.0, 0.1), (1.1, 0.1), 3)
    assert is_significant((1.0, 0.01), (1.1, 0.01), 3)
    assert not is_significant((1.0, 0.1), (1.2, 0.1), 3)  # 2.4 standard errors: chance alone does that once in fourteen
    assert compare_with_base((1.0, 0.1), (1.1, 0.1), 3) == "no clear difference"
    assert compare_with_base((1.0, 0.01), (1.1, 0.01), 3) == "better"
    assert compare_with_base((1.2, 0.01), (1.1, 0.01), 3) == "worse"


def test_two_seeds_need_a_larger_difference_than_three():
    assert is_significant((1.0, 0.03), (1.1, 0.03), 3)
    assert not is_significant((1.0, 0.03), (1.1, 0.03), 2)


def test_the_table_has_a_row_for_every_variation_and_marks_differences():
    rows = rows_with("1 head", [2.0, 2.1, 1.9])
    result = {row[1]: row for row in variations_table(rows).rows}
    assert list(result) == [each.name for each in VARIATIONS]
    assert result["1 head"][2] == "2.000 ± 0.100"
    assert result["1 head"][-1] == "worse"
    assert result["8 heads"][-1] == "no clear difference"
    assert any("worse: 1 head (+0.500)" in finding for finding in variation_findings(rows))


@pytest.mark.parametrize("variation", VARIATIONS, ids=lambda each: each.name)
def test_every_variation_changes_the_named_settings_alone(tmp_path, corpus, variation):
    lab = toy_lab(tmp_path, corpus)
    base, varied = (
        lab.build_recipe("x", {**variations.BASE_SETTINGS, **settings}) for settings in ({}, variation.settings)
    )
    changed = {
        f"{part}.{key}": value
        for part in ("model", "training")
        for key, value in getattr(varied, part)
        if getattr(getattr(base, part), key) != value
    }
    assert changed == variation.settings


def test_a_model_is_scored_once(tmp_path, corpus):
    lab = toy_lab(tmp_path, corpus)
    settings = {"tokenizer.kind": "words", "model.width": 16, "training.steps": 2, "training.threads": 1}
    model = train(lab, "base-1", settings)
    row = score_model(lab, "base-1", model, corpus.pairs("test"), settings)
    assert row["perplexity"] == model.perplexity
    assert row == score_model(lab, "base-1", None, [], settings)


def test_the_experiment_trains_every_variation_with_every_seed(tmp_path, corpus, monkeypatch):
    """The trainings run one after another here; test_laboratory.py runs some in parallel."""
    shrink(monkeypatch)
    base = {**variations.BASE_SETTINGS, "model.width": 16, "model.inner_width": 16, "model.layers": 1}
    monkeypatch.setattr(variations, "BASE_SETTINGS", base)
    monkeypatch.setattr(variations, "VARIATIONS", VARIATIONS[:2])
    monkeypatch.setattr(variations, "available_cores", lambda: 1)
    lab = toy_lab(tmp_path, corpus, seconds=48)
    report = variations.run(lab)
    check_report(report, lab, tables=1, pictures=1)
    rows = report.results["rows"]
    assert {name: len(scores) for name, scores in rows.items()} == {"base": 2, "1 head": 2}
    assert len({row["perplexity"] for scores in rows.values() for row in scores}) == 4
    assert "4 models (2 variants, 2 seeds each), about 12 s each, 6 steps" in report.parts[1]
