"""`dragoman init`: a recipe to edit."""

from typing import Annotated

import typer

from dragoman.cli.options import Preset
from dragoman.errors import UserError, nearest
from dragoman.recipe import Recipe

TASKS = ["translate"]


def check_task(task: str) -> None:
    """Refuse a task that there is not."""
    if task not in TASKS:
        raise UserError(f'There is no task "{task}"; there is {", ".join(TASKS)}.{nearest(task, TASKS)}')


def init(
    task: Annotated[str, typer.Argument(help="What to learn: translate.")] = "translate", preset: Preset = "tiny"
) -> None:
    """Print a commented recipe with every setting and its default, to edit: dragoman init translate > recipe.toml"""
    check_task(task)
    data = {"source": "train.source.txt", "target": "train.target.txt"}
    print(Recipe.from_table({"task": task, "data": data}, preset=preset).to_toml(comments=True), end="")
