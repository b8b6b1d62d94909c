"""A new model for a recipe and two vocabularies."""

from typing import cast

from torch import nn

from dragoman.models.architectures import build_model as build_architecture
from dragoman.models.next_word import NextWordFeature
from dragoman.models.transducer import Transducer
from dragoman.recipe import Recipe
from dragoman.tasks.registry import get_task
from dragoman.text.tokenizer import Tokenizer


def build_model(recipe: Recipe, source: Tokenizer, target: Tokenizer) -> Transducer:
    """Build the model; if it has a guide, the task says which tokens that counts."""
    model = build_architecture(recipe.model, len(source), len(target))
    for part in cast(nn.Module, model).modules():
        if isinstance(part, NextWordFeature):
            part.set_word_tokens(*get_task(recipe.task).word_counts(source, target))
    return model
