"""`dragoman shortlist` and what uses it, as a person meets them."""

import shutil

import pytest

from dragoman.model_files import read_tensors, write_weights


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a trained run, to be changed."""
    return shutil.copytree(trained, tmp_path / "run")


def test_a_shortlist_is_made_once_and_used_by_translate(command, run):
    made = command("shortlist", run)
    assert made.code == 0, made.err
    assert "learned from 72 sentence pairs" in made.err  # of 80, of which 8 are held out to validate
    outcome = command("translate", run, "a b c", "--shortlist", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("[{")


def test_a_run_without_a_shortlist_says_how_one_is_made(command, run):
    outcome = command("translate", run, "a b", "--shortlist")
    assert outcome.code == 2
    assert f"run `dragoman shortlist {run}` to learn one" in outcome.err


def test_a_shortlist_for_other_vocabularies_is_refused(command, run):
    command("shortlist", run)
    where = run / "shortlist.safetensors"
    tensors, _ = read_tensors(where)
    write_weights(where, tensors, {"source_tokenizer": "another", "target_tokenizer": "another"})
    outcome = command("translate", run, "a b", "--shortlist")
    assert outcome.code == 2
    assert "different vocabularies" in outcome.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tables: {"common": tables["common"]}, "shape"),
        (lambda tables: tables | {"likely": tables["likely"][:-1]}, "shape"),
        (lambda tables: tables | {"common": tables["common"][None]}, "shape"),
        (lambda tables: tables | {"likely": tables["likely"] + 9999}, "not in the vocabulary"),
        (lambda tables: tables | {"likely": tables["likely"] - 9999}, "not in the vocabulary"),
        (lambda tables: tables | {"likely": tables["likely"].float()}, "not in the vocabulary"),
    ],
)
def test_a_damaged_shortlist_is_refused(command, run, change, words):
    command("shortlist", run)
    where = run / "shortlist.safetensors"
    tables, facts = read_tensors(where)
    write_weights(where, change(tables), {name: facts[name] for name in ("source_tokenizer", "target_tokenizer")})
    outcome = command("translate", run, "a b", "--shortlist")
    assert outcome.code == 2
    assert words in outcome.err


def test_a_training_text_that_is_gone_is_missed_by_name(command, run):
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("toy.source", "gone.source"))
    outcome = command("shortlist", run)
    assert outcome.code == 2
    assert "gone.source" in outcome.err
