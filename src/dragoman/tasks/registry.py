"""The task of a recipe, the class of its models and a new model, from the table `presets.TASKS`."""

from typing import TYPE_CHECKING, cast

from torch import nn

from dragoman.models.architectures import build_model as build_architecture
from dragoman.models.next_word import NextWordFeature
from dragoman.models.transducer import Transducer
from dragoman.presets import TASKS, import_object
from dragoman.recipe import Recipe
from dragoman.tasks.task import Task
from dragoman.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel


def get_task(name: str) -> Task:
    """Return the task of this name."""
    entry = TASKS[name].task
    task: Task = import_object(entry)() if isinstance(entry, str) else entry
    return task


def task_for(recipe: Recipe) -> Task:
    """Return the task of a recipe, configured for it."""
    return get_task(recipe.task).configure(recipe)


def model_class_for(recipe: Recipe) -> "type[SequenceModel]":
    """Return the class of the models that are trained with a recipe."""
    model_class: type[SequenceModel] = import_object(get_task(recipe.task).model_class)
    return model_class


def build_model(recipe: Recipe, source: Tokenizer, target: Tokenizer) -> Transducer:
    """Return a new model of a recipe; the task sets the word tokens of a next-word feature."""
    model = build_architecture(recipe.model, len(source), len(target))
    for module in cast(nn.Module, model).modules():
        if isinstance(module, NextWordFeature):
            module.set_word_tokens(*get_task(recipe.task).word_counts(source, target))
    return model
