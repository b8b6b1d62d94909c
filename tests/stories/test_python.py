"""The Python of DESIGN.md, in the corners that the stories of the commands leave out."""

import pytest

import dragoman
from dragoman.training.events import TrainingFinished


@pytest.fixture(scope="module")
def model(trained):
    return dragoman.load(trained)


def test_nothing_in_is_nothing_out(model):
    assert model.translate([]) == []


def test_details_of_the_best_are_those_of_the_first_of_the_n_best(model):
    best = model.translate("a b c", beam=4, details=True)
    assert best == model.translate("a b c", beam=4, n_best=3, details=True)[0]
    assert best.log_probability <= best.score <= 0
    assert isinstance(best.tokens, tuple)


def test_lines_come_out_as_they_go_in_without_waiting_for_the_last(model):
    def lines():
        yield from ("a b", "c")
        raise AssertionError("nobody should have asked for a third line yet")

    stream = model.translate_lines(lines(), chunk_size=2)
    assert [next(stream), next(stream)] == model.translate(["a b", "c"])


def test_attention_is_a_record_of_every_head_of_every_layer(model):
    record = model.inspect("a b c")
    assert record.source_text == "a b c"
    assert record.encoder.shape[:2] == record.decoder.shape[:2] == record.cross.shape[:2] == (1, 2)
    assert record.cross.sum(-1) == pytest.approx(1, abs=1e-5)


def test_training_takes_a_recipe_from_a_file_and_sends_every_event(toy_recipe, tmp_path):
    (tmp_path / "recipe.toml").write_text(toy_recipe(tmp_path / "run", "training.steps=2").to_toml())
    events = []
    run = dragoman.train(dragoman.Recipe.from_toml(tmp_path / "recipe.toml"), on_event=events.append)
    assert run.folder == tmp_path / "run"
    assert isinstance(events[-1], TrainingFinished)


def test_a_public_name_that_is_not_there_is_missed_in_the_usual_way():
    with pytest.raises(AttributeError, match="module 'dragoman' has no attribute 'transalte'"):
        _ = dragoman.transalte


def test_what_a_user_can_cause_is_one_kind_of_exception(tmp_path):
    with pytest.raises(dragoman.UserError, match="no such run directory"):
        dragoman.load(tmp_path / "missing")
