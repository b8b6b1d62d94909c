"""Recipes with mistakes in them (C11): code 2, every mistake at once, each with the place it is from."""

import pytest


@pytest.fixture
def train(command, tmp_path, monkeypatch):
    """Train by a recipe of this text."""
    monkeypatch.chdir(tmp_path)

    def trained(text, *more):
        (tmp_path / "recipe.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return command("train", "recipe.toml", *more)

    return trained


REFUSED = {
    "an unknown setting": ("[model]\nhead = 8", '[model] has no setting "head". Did you mean "heads"?'),
    "an unknown part": ("[modle]\nheads = 8", 'the recipe has no setting "modle". Did you mean "model"?'),
    "a wrong type": ('[model]\nlayers = "six"', '[model] layers is "six"; it must be a whole number'),
    "a number in quotation marks": ('[model]\nlayers = "6"', '[model] layers is "6"; it must be a whole number'),
    "out of range": ("[model]\ndropout = 1.5", "[model] dropout is 1.5; it must be"),
    "not a number": ("[model]\ndropout = nan", "[model] dropout is nan"),
    "a contradiction": ("[model]\nwidth = 10\nheads = 4", "not divisible by 4 heads; the next divisible width is 12"),
    "two parts that contradict each other": ("[tokenizer]\njoint = false", "set share_embeddings = false"),
    "broken TOML": ("[model\nlayers = 6", "recipe.toml: not valid TOML: "),
    "a setting given twice": ("[model]\nlayers = 6\nlayers = 7", "recipe.toml: not valid TOML: Cannot overwrite"),
    "Latin-1": ("# für".encode("latin-1"), "recipe.toml: not UTF-8 at byte 3; save the recipe as UTF-8."),
    "an unknown preset": ('preset = "huge"', 'unknown preset "huge"; expected one of tiny, small, base, big.'),
    "an unknown task": ('task = "translat"', 'task is "translat"; it must be one of "translate", '),
    "a table that is none": ("model = 4", "[model] must be a table of settings; found 4."),
    "no data": ("", "The recipe has no training text: set [data] source and target, pairs, or corpora."),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_recipe_with_a_mistake_is_refused_with_the_mistake(train, tmp_path, text, words):
    refused = train(text)
    assert refused.code == 2
    assert words in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


def test_all_mistakes_are_shown_at_once(train):
    refused = train("[model]\nlayers = 0\nhead = 8\n[training]\nstepps = 5\nrate = 11")
    assert refused.code == 2
    for words in ("layers is 0", '"head"', 'Did you mean "steps"?', "rate is 11"):
        assert words in refused.err
    assert refused.err.count("recipe.toml: ") == 4


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.layers", "--set model.layers: expected section.key=value"),
        ("=4", "--set =4: expected section.key=value"),
        ("model.layer=4", 'Did you mean "layers"?'),
        ("model.layers=many", 'layers is "many"'),
        ("layers=4", "It belongs in [model]."),
    ],
)
def test_a_setting_on_the_command_line_with_a_mistake_is_refused(train, setting, words):
    refused = train("", "--set", setting)
    assert refused.code == 2
    assert words in refused.err


def test_an_unknown_preset_on_the_command_line_is_refused(train):
    refused = train("", "--preset", "smal")
    assert refused.code == 2
    assert 'unknown preset "smal"; expected one of tiny, small, base, big. Did you mean "small"?' in refused.err


def test_a_missing_recipe_is_told_how_to_be_made(command, tmp_path):
    refused = command("train", tmp_path / "missing.toml")
    assert refused.code == 2
    assert f"Run `dragoman init translate > {tmp_path / 'missing.toml'}` to create one." in refused.err


def test_an_unknown_task_is_refused_by_init(command):
    refused = command("init", "translat")
    assert refused.code == 2
    assert 'Unknown task "translat"; expected one of translate, pronounce' in refused.err
    assert 'Did you mean "translate"?' in refused.err


@pytest.mark.parametrize("arguments", [["trian"], ["train", "--sauce", "a"], ["translate"], []])
def test_what_is_no_command_is_refused_with_how_it_is_used(command, arguments):
    refused = command(*arguments)
    assert refused.code == 2
    assert "Usage: " in refused.err + refused.out


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["init", "--preset", "smal"], '--preset: unknown preset "smal"; expected one of'),
        (["train", "--task", "translat", "--file", "words"], 'Unknown task "translat"; expected one of'),
        (["evaluate", "--task", "pars"], 'Unknown task "pars"; expected one of'),
        (
            ["train", "--task", "pronounce", "--file", "words", "--set", "model.norm=pree"],
            'one of "post", "pre". Did you mean "pre"?',
        ),
        (["train", "--file", "words", "--set", "task=pars"], 'Did you mean "parse"?'),
    ],
)
def test_an_unknown_choice_is_refused_where_it_was_given(arguments, words, command):
    refused = command(*arguments)
    assert refused.code == 2
    assert words in refused.err and "Did you mean" in refused.err
