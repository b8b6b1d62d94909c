"""`dragoman init`: print a recipe to edit."""

from typing import Annotated

import typer

from dragoman.cli.options import PresetOption, check_task
from dragoman.presets import TASKS
from dragoman.recipe import Recipe, apply_preset

_EXAMPLE_FILES = {"source": "train.source.txt", "target": "train.target.txt", "file": "train.txt"}


def init(
    task: Annotated[
        str, typer.Argument(help="Task: translate, pronounce, inflect, parse, generate or transcribe.")
    ] = "translate",
    preset: PresetOption = None,
) -> None:
    """Print a commented recipe with every setting and its default: dragoman init translate > recipe.toml"""
    check_task(task)
    data = {name: _EXAMPLE_FILES[name] for name in TASKS[task].data_keys if name in _EXAMPLE_FILES}
    table = apply_preset({"task": task, "data": data}, preset, "--preset")
    print(Recipe.from_table(table).to_toml(comments=True), end="")
