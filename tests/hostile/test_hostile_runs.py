"""Whatever is in a run directory, loading it gives a model or a UserError; `make test-long` tries thousands."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import BASES, bases, changes, hostile_run, randoms, recipe_files, tokenizer_files

import dragoman
from dragoman.errors import UserError
from dragoman.recipe import Recipe
from dragoman.tasks.info import run_info
from dragoman.text.tokenizer import Tokenizer
from dragoman.toml import parse_toml

BUDGETS = [40, pytest.param(3000, marks=pytest.mark.long)]


def use(run):
    """Load a run, predict one line, and describe it."""
    for action in (lambda: dragoman.load(run, device="cpu").predict("a b"), lambda: run_info(run)):
        try:
            action()
        except UserError as error:
            assert str(error)


@pytest.mark.parametrize("count", BUDGETS)
def test_a_hostile_run_is_refused_or_used(count):
    @settings(max_examples=count)
    @given(bases, changes, randoms)
    def check(base, names, random):
        with hostile_run(base, names, random) as run:
            before = {path.name: path.read_bytes() for path in (run.parent / "outside").iterdir() if path.is_file()}
            use(run)
            after = {path.name: path.read_bytes() for path in (run.parent / "outside").iterdir() if path.is_file()}
            assert after == before

    check()


@pytest.mark.parametrize("count", BUDGETS)
def test_a_hostile_tokenizer_is_refused_or_used(count):
    @settings(max_examples=count)
    @given(tokenizer_files(), st.text(max_size=20))
    def check(text, line):
        try:
            tokenizer = Tokenizer.from_json(text)
        except UserError:
            return
        assert "\x1b" not in tokenizer.decode(tokenizer.encode(line.replace("\x1b", "")))

    check()


@pytest.mark.parametrize("count", BUDGETS)
def test_a_hostile_recipe_is_refused_or_read(count):
    @settings(max_examples=count)
    @given(recipe_files())
    def check(content):
        try:
            Recipe.from_table(parse_toml(content, "recipe.toml"), origin="recipe.toml", is_complete=True)
        except UserError as error:
            assert len(str(error)) < 20_000

    check()


def test_labels_of_an_old_recipe_that_are_no_list_are_refused():
    """They ended in a traceback; the generator found it."""
    with pytest.raises(UserError, match="labelled"):
        Recipe.from_table({"model": {}, "data": {"labelled": True}}, is_complete=True)


def test_a_mutation_depends_on_nothing_but_its_generator():
    found = []
    for _ in range(2):
        with hostile_run(BASES[0], ["change_recipe", "change_bytes"], Random(7)) as run:
            found.append({path.name: path.read_bytes() for path in run.iterdir()})
    assert found[0] == found[1]
