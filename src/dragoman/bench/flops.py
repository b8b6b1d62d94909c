"""Count the operations of a model's matrix products: two, a multiplication and an addition, per weight.

Only matrix products are counted, without padding: no softmax, norms or embeddings. Attention counts as the full
matrix, although half of the decoder's self-attention is masked. S and T are the lengths of source and
target with END, D the width, F the inner width, V the vocabulary; Q and U are the widths of all heads' keys and values.
"""

from collections.abc import Iterable

from dragoman.errors import UserError
from dragoman.model_config import ModelConfig, TransformerConfig

_COUNTABLE_SETTINGS = {"architecture": ("transformer",), "score": ("scaled_dot", "dot"), "pattern": ("full",)}
_BACKWARD_FACTOR = 2  # per product of the forward pass: one for the gradient of either factor


def check_countable(config: ModelConfig, run: object) -> None:
    """Raise a UserError for a model that these formulas do not cover."""
    for name, known in _COUNTABLE_SETTINGS.items():
        value = getattr(config, name, None)
        if value not in known:
            raise UserError(
                f'{run} cannot be measured: its [model] {name} is "{value}", but `dragoman bench` supports only '
                "Transformers with full attention. `dragoman lab architectures` compares all architectures."
            )


def training_flops(config: TransformerConfig, vocabulary: int, lengths: Iterable[tuple[int, int]]) -> float:
    """Return the operations per target token of pairs of these lengths, forward and backward."""
    forward = tokens = 0
    for source, target in lengths:
        forward += encoder_flops(config, source) + memory_flops(config, source)
        forward += decoder_flops(config, vocabulary, target, attended_pairs=target * (target + source))
        tokens += target
    return forward * (1 + _BACKWARD_FACTOR) / tokens


def decoding_flops(config: TransformerConfig, vocabulary: int, source: int, target: int, beam: int) -> int:
    """Return the operations per sentence: the source is encoded once, every hypothesis is decoded step by step."""
    looked_at = target * (target + 1) // 2 + target * source
    return (
        encoder_flops(config, source)
        + memory_flops(config, source)
        + beam * decoder_flops(config, vocabulary, target, attended_pairs=looked_at)
    )


def encoder_flops(config: TransformerConfig, source: int) -> int:
    """Count the encoder: S (2 D (2Q + 2U) + 4 D F) + 2 S² (Q + U) per layer."""
    keys, values = _head_widths(config)
    positions = source * (2 * config.width * 2 * (keys + values) + 4 * config.width * config.inner_width)
    return config.layers * (positions + 2 * source * source * (keys + values))


def memory_flops(config: TransformerConfig, source: int) -> int:
    """Count the projections of the memory: S 2 D (Q + U) per layer of the decoder."""
    keys, values = _head_widths(config)
    return config.decoder_depth * source * 2 * config.width * (keys + values)


def decoder_flops(config: TransformerConfig, vocabulary: int, target: int, attended_pairs: int) -> int:
    """Count the decoder and the output projection; `attended_pairs` is the number of query–key pairs."""
    keys, values = _head_widths(config)
    own, cross, inner = 2 * (keys + values), keys + values, 2 * config.inner_width
    layers = config.decoder_depth * (
        target * 2 * config.width * (own + cross + inner) + 2 * attended_pairs * (keys + values)
    )
    return layers + 2 * target * config.width * vocabulary


def _head_widths(config: TransformerConfig) -> tuple[int, int]:
    """Return the widths of the keys and of the values of all heads together."""
    share = config.width // config.heads
    return config.heads * (config.key_width or share), config.heads * (config.value_width or share)
