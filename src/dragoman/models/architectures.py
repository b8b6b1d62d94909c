"""The architectures that a recipe can select; each is a `Transducer`."""

from collections.abc import Callable
from typing import Any

from dragoman.model_config import ModelConfig
from dragoman.models.bag_of_embeddings import BagOfEmbeddings
from dragoman.models.bytenet import ByteNet
from dragoman.models.convs2s import ConvS2S
from dragoman.models.decoder_only import DecoderOnly
from dragoman.models.recurrent import Recurrent
from dragoman.models.transducer import Transducer
from dragoman.models.transformer import Transformer

ARCHITECTURES: dict[str, Callable[[Any, int, int], Transducer]] = {  # config, source and target vocabulary size
    "transformer": Transformer,
    "decoder_only": DecoderOnly,
    "recurrent": Recurrent,
    "convs2s": ConvS2S,
    "bytenet": ByteNet,
    "bag_of_embeddings": BagOfEmbeddings,
}


def build_model(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> Transducer:
    """Return a new model of the config's architecture."""
    return ARCHITECTURES[config.architecture](config, source_vocabulary, target_vocabulary)
