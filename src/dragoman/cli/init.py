"""`dragoman init`: a recipe to edit."""

from typing import Annotated

import typer

from dragoman.cli.options import Preset
from dragoman.errors import UserError, nearest
from dragoman.presets import READS, TASKS, usual_preset
from dragoman.recipe import Recipe

EXAMPLES = {"source": "train.source.txt", "target": "train.target.txt", "file": "train.txt"}


def check_task(task: str) -> None:
    """Refuse a task that there is not."""
    if task not in TASKS:
        raise UserError(f'There is no task "{task}"; there is {", ".join(TASKS)}.{nearest(task, list(TASKS))}')


def init(
    task: Annotated[
        str, typer.Argument(help="What to learn: translate, pronounce, inflect, parse or generate.")
    ] = "translate",
    preset: Preset = None,
) -> None:
    """Print a commented recipe with every setting and its default, to edit: dragoman init translate > recipe.toml"""
    check_task(task)
    data = {name: EXAMPLES[name] for name in READS[task] if name in EXAMPLES}
    recipe = Recipe.from_table({"task": task, "data": data}, preset=preset or usual_preset(task))
    print(recipe.to_toml(comments=True), end="")
