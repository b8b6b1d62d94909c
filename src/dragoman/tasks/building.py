"""A new model for a recipe and two vocabularies."""

from typing import cast

from torch import nn

from dragoman.model.architectures import build
from dragoman.model.guide import WordGuide
from dragoman.model.transducer import Network
from dragoman.recipe import Recipe
from dragoman.tasks.tasks import TASKS
from dragoman.text.tokenizer import Tokenizer


def built(recipe: Recipe, source: Tokenizer, target: Tokenizer) -> Network:
    """Build the model; if it has a guide, the task says which tokens that counts."""
    model = build(recipe.model, len(source), len(target))
    for part in cast(nn.Module, model).modules():
        if isinstance(part, WordGuide):
            part.mark(*TASKS[recipe.task].words(source, target))
    return model
