"""The task of a recipe and the class of its models, from the table `presets.TASKS`."""

from typing import TYPE_CHECKING

from dragoman.presets import TASKS, import_object
from dragoman.recipe import Recipe
from dragoman.tasks.task import Task

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel


def get_task(name: str) -> Task:
    """Return the task of this name."""
    entry = TASKS[name].task
    task: Task = import_object(entry)() if isinstance(entry, str) else entry
    return task


def task_for(recipe: Recipe) -> Task:
    """Return the task of a recipe, configured for the recipe's files."""
    return get_task(recipe.task).configure(recipe.data)


def model_class_for(recipe: Recipe) -> "type[SequenceModel]":
    """Return the class of the models that are trained with a recipe."""
    found: type[SequenceModel] = import_object(get_task(recipe.task).model_class)
    return found
