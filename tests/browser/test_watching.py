"""The page of a training, while the training goes on."""

import dragoman


def test_the_page_of_a_training_fills_while_it_trains(visit, start, recipe_of, tmp_path):
    """The browser is open before the run is there; it hears of each step and shows the samples of the validation."""
    run = tmp_path / "run"
    page = visit(start("watch", run))
    assert page.locator("#now").text_content() == ""
    dragoman.train(recipe_of(run, steps=4, warmup=1, validate_every=2))
    page.wait_for_selector("#now:has-text('4 of 4')")
    page.wait_for_selector("#samples li")
    assert page.locator("#curves canvas, #curves svg").count() >= 4
