"""The table of all tasks; an entry is imported when it is first used."""

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dragoman.recipe import Recipe
from dragoman.tasks.task import Task

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel

TASKS: dict[str, str | Task] = {  # "module:class", or an object
    "translate": "dragoman.tasks.translate:TranslationTask",
    "pronounce": "dragoman.tasks.pronounce:PronunciationTask",
    "inflect": "dragoman.tasks.inflect:InflectionTask",
    "parse": "dragoman.tasks.parse:ParsingTask",
    "generate": "dragoman.tasks.generate:GenerationTask",
}


def get_task(name: str) -> Task:
    """Return the task of this name."""
    entry = TASKS[name]
    task: Task = _import_object(entry)() if isinstance(entry, str) else entry
    return task


def task_for(recipe: Recipe) -> Task:
    """Return the task of a recipe, configured for the recipe's files."""
    return get_task(recipe.task).configure(recipe.data)


def model_class_for(recipe: Recipe) -> "type[SequenceModel]":
    """Return the class of the models that are trained with a recipe."""
    found: type[SequenceModel] = _import_object(get_task(recipe.task).model_class)
    return found


@lru_cache
def _import_object(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
