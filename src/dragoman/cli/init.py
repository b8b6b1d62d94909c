"""`dragoman init`: print a recipe to edit."""

from typing import Annotated

import typer

from dragoman.cli.options import PresetOption
from dragoman.errors import UserError, did_you_mean
from dragoman.presets import TASK_DATA_KEYS, TASK_DEFAULTS, default_preset
from dragoman.recipe import Recipe

_EXAMPLE_FILES = {"source": "train.source.txt", "target": "train.target.txt", "file": "train.txt"}


def _check_task(task: str) -> None:
    """Raise a UserError for an unknown task."""
    if task not in TASK_DEFAULTS:
        raise UserError(
            f'Unknown task "{task}"; expected one of {", ".join(TASK_DEFAULTS)}.'
            f"{did_you_mean(task, list(TASK_DEFAULTS))}"
        )


def init(
    task: Annotated[str, typer.Argument(help="Task: translate, pronounce, inflect, parse or generate.")] = "translate",
    preset: PresetOption = None,
) -> None:
    """Print a commented recipe with every setting and its default: dragoman init translate > recipe.toml"""
    _check_task(task)
    data = {name: _EXAMPLE_FILES[name] for name in TASK_DATA_KEYS[task] if name in _EXAMPLE_FILES}
    recipe = Recipe.from_table({"task": task, "data": data}, preset=preset or default_preset(task))
    print(recipe.to_toml(comments=True), end="")
