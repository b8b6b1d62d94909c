"""The worked example of CONTRIBUTING.md, as it stands there: entered, trained, used."""

import re
from datetime import date, timedelta
from pathlib import Path

import pytest

import dragoman
from dragoman import presets
from dragoman.recipe import Recipe

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"
PART = re.search(r"^## Adding a task$(.*?)^## ", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PART[1], re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def entered():
    """The tables with the example in them."""
    names = {}
    for block in BLOCKS:
        exec(compile(block, str(GUIDE), "exec"), names)
    yield names
    del presets.TASKS["date"]


@pytest.fixture(scope="module")
def dates(tmp_path_factory):
    """Two files of dates."""
    folder = tmp_path_factory.mktemp("dates")
    days = [date(2021, 5, 3) + timedelta(days=7 * number) for number in range(40)]
    lines = [f"{day.day} {day:%B %Y}\t{day.isoformat()}\n" for day in days]
    files = folder / "train.tsv", folder / "valid.tsv"
    for file, some in zip(files, (lines[8:], lines[:8]), strict=True):
        file.write_text("".join(some))
    return files


@pytest.fixture(scope="module")
def run(entered, dates, tmp_path_factory):
    """A run of the example."""
    table = {
        "task": "date", "run": str(tmp_path_factory.mktemp("runs") / "dates"),
        "data": {"pairs": str(dates[0]), "valid_pairs": str(dates[1])},
        "model": {"layers": 1, "width": 16, "inner_width": 16, "heads": 2},
        "training": {"steps": 3, "batch_tokens": 512, "warmup": 2, "validate_every": 3, "threads": 1},
    }  # fmt: skip
    return dragoman.train(Recipe.from_table(table)).folder


def test_it_has_less_than_a_hundred_lines():
    assert sum(len(block.splitlines()) for block in BLOCKS) < 100


def test_it_is_trained_and_used_like_any_other(run, command):
    model = dragoman.load(run)
    assert (model.task.noun, model.recipe.tokenizer.kind) == ("date reader", "characters")
    result = command("translate", run, "3  May, 2021")
    assert result.code == 0
    assert result.out == model.translate("3 May 2021") + "\n"
    assert "A date reader trained with Dragoman" in (run / "README.md").read_text()


def test_it_is_scored_like_any_other(run, dates, command):
    result = command("evaluate", run, "--reference", dates[1])
    assert result.code == 0
    assert "accuracy" in result.out
    refused = command("evaluate", run, "--source", dates[1], "--reference", dates[1])
    assert (refused.code, "--reference alone" in refused.err) == (2, True)


def test_it_can_be_looked_into_like_any_other(run, command, tmp_path):
    assert dragoman.load(run).inspect("3 May 2021").source_text == "3 May 2021"
    assert command("heads", run, "--no-importance").code == 0
    assert command("info", run).code == 0


def test_a_recipe_to_edit_can_be_had(entered, command):
    result = command("init", "date")
    assert result.code == 0
    assert 'task = "date"' in result.out
