"""The architectures that a recipe can name. All are `Transducer`s: training, search and viewer know no other word."""

from collections.abc import Callable

from torch import nn

from dragoman.model.transformer import Transformer
from dragoman.recipe import Model

ARCHITECTURES: dict[str, Callable[[Model, int, int], nn.Module]] = {
    "transformer": Transformer,
}


def build(how: Model, source_vocabulary: int, target_vocabulary: int) -> nn.Module:
    """Return a new model of the architecture that the recipe names."""
    return ARCHITECTURES[how.architecture](how, source_vocabulary, target_vocabulary)
