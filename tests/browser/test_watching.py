"""The live page of a training."""

import dragoman


def test_the_page_of_a_training_is_updated_while_it_runs(visit, start, recipe_of, tmp_path):
    """The page is opened before the run exists; it shows the steps and the samples of the validation."""
    run = tmp_path / "run"
    page = visit(start("watch", run))
    assert page.locator("#now").text_content() == ""
    dragoman.train(recipe_of(run, steps=4, warmup=1, validate_every=2))
    page.wait_for_selector("#now:has-text('4 of 4')")
    page.wait_for_selector("#samples li")
    assert page.locator("#curves canvas, #curves svg").count() >= 4
