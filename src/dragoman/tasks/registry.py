"""The table of all tasks."""

from dragoman.recipe import Recipe
from dragoman.tasks.generate import GenerationTask
from dragoman.tasks.inflect import InflectionTask
from dragoman.tasks.parse import ParsingTask
from dragoman.tasks.pronounce import PronunciationTask
from dragoman.tasks.task import Task
from dragoman.tasks.translate import TranslationTask

TASKS: dict[str, Task] = {
    "translate": TranslationTask(),
    "pronounce": PronunciationTask(),
    "inflect": InflectionTask(),
    "parse": ParsingTask(),
    "generate": GenerationTask(),
}


def task_for(recipe: Recipe) -> Task:
    """Return the task of a recipe, with what it has to know of the recipe's files."""
    return TASKS[recipe.task].configure(recipe.data)
