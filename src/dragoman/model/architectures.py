"""The architectures that a recipe can name. All are `Transducer`s: training, search and viewer know no other word."""

from collections.abc import Callable

from dragoman.model.convolutional import Convolutional
from dragoman.model.dilated import Dilated
from dragoman.model.floor import averaged, concatenated
from dragoman.model.joined import Joined
from dragoman.model.recurrent import Recurrent
from dragoman.model.transducer import Network
from dragoman.model.transformer import Transformer
from dragoman.recipe import Model

ARCHITECTURES: dict[str, Callable[[Model, int, int], Network]] = {
    "transformer": Transformer,
    "recurrent": Recurrent,
    "convolutional": Convolutional,
    "dilated": Dilated,
    "averaged": averaged,
    "concatenated": concatenated,
    "joined": Joined,
}


def build(how: Model, source_vocabulary: int, target_vocabulary: int) -> Network:
    """Return a new model of the architecture that the recipe names."""
    return ARCHITECTURES[how.architecture](how, source_vocabulary, target_vocabulary)
