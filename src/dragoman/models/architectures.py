"""The architectures that a recipe can name. All are `Transducer`s: training, search and viewer know no other word."""

from collections.abc import Callable

from dragoman.models.bag_of_embeddings import build_averaged, build_concatenated
from dragoman.models.bytenet import ByteNet
from dragoman.models.convs2s import ConvS2S
from dragoman.models.decoder_only import DecoderOnly
from dragoman.models.recurrent import Recurrent
from dragoman.models.transducer import Transducer
from dragoman.models.transformer import Transformer
from dragoman.recipe import ModelConfig

ARCHITECTURES: dict[str, Callable[[ModelConfig, int, int], Transducer]] = {
    "transformer": Transformer,
    "recurrent": Recurrent,
    "convolutional": ConvS2S,
    "dilated": ByteNet,
    "averaged": build_averaged,
    "concatenated": build_concatenated,
    "joined": DecoderOnly,
}


def build_model(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> Transducer:
    """Return a new model of the architecture that the recipe names."""
    return ARCHITECTURES[config.architecture](config, source_vocabulary, target_vocabulary)
