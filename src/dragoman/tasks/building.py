"""A new model for a recipe and two vocabularies."""

from typing import cast

from torch import nn

from dragoman.model.architectures import build
from dragoman.model.positions import CountedPositions
from dragoman.model.transducer import Network
from dragoman.recipe import Recipe
from dragoman.tasks.tasks import TASKS
from dragoman.text.tokenizer import Tokenizer


def built(recipe: Recipe, source: Tokenizer, target: Tokenizer) -> Network:
    """Build the model; if its positions count tokens, the task says which."""
    model = build(recipe.model, len(source), len(target))
    if recipe.model.positions == "counted":
        for part, marks in zip(counting(model), TASKS[recipe.task].marks(source, target), strict=True):
            part.marks.copy_(marks)
    return model


def counting(model: Network) -> list[CountedPositions]:
    """Return the positions that count, of the source and of the target."""
    return [part for part in cast(nn.Module, model).modules() if isinstance(part, CountedPositions)]
