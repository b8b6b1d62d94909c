"""The table of all tasks."""

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
