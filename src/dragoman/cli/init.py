"""`dragoman init`: print a recipe to edit."""

from typing import Annotated

import typer

from dragoman.cli.options import PresetOption
from dragoman.errors import UserError, did_you_mean
from dragoman.presets import TASKS, default_preset
from dragoman.recipe import Recipe

_EXAMPLE_FILES = {"source": "train.source.txt", "target": "train.target.txt", "file": "train.txt"}


def _check_task(task: str) -> None:
    """Raise a UserError for an unknown task."""
    if task not in TASKS:
        raise UserError(f'Unknown task "{task}"; expected one of {", ".join(TASKS)}.{did_you_mean(task, list(TASKS))}')


def init(
    task: Annotated[str, typer.Argument(help="Task: translate, pronounce, inflect, parse or generate.")] = "translate",
    preset: PresetOption = None,
) -> None:
    """Print a commented recipe with every setting and its default: dragoman init translate > recipe.toml"""
    _check_task(task)
    data = {name: _EXAMPLE_FILES[name] for name in TASKS[task].data_keys if name in _EXAMPLE_FILES}
    recipe = Recipe.from_table({"task": task, "data": data}, preset=preset or default_preset(task))
    print(recipe.to_toml(comments=True), end="")
