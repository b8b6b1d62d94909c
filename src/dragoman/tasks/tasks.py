"""The table of all tasks."""

from dragoman.recipe import Recipe
from dragoman.tasks.generate import Generate
from dragoman.tasks.inflect import Inflect
from dragoman.tasks.parse import Parse
from dragoman.tasks.pronounce import Pronounce
from dragoman.tasks.task import Task
from dragoman.tasks.translate import Translate

TASKS: dict[str, Task] = {
    "translate": Translate(),
    "pronounce": Pronounce(),
    "inflect": Inflect(),
    "parse": Parse(),
    "generate": Generate(),
}


def task_of(recipe: Recipe) -> Task:
    """Return the task of a recipe, with what it has to know of the recipe's files."""
    return TASKS[recipe.task].of(recipe.data)
