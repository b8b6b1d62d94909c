"""How many operations the matrix products of a model take: two, a multiplication and an addition, for each weight.

Only products are counted, on the real lengths: no padding, no softmax, no norms, no embeddings. Attention counts as the
full rectangle, though half of what a decoder computes on the target is masked. S and T are the lengths of source and
target with END, D the width, F the inner width, V the vocabulary; Q and U are the widths of all heads' keys and values.
"""

from collections.abc import Iterable

from dragoman.errors import UserError
from dragoman.model_config import ModelConfig, TransformerConfig

_COUNTABLE_SETTINGS = {"architecture": ("transformer",), "score": ("scaled_dot", "dot"), "pattern": ("full",)}
_BACKWARD_FACTOR = 2  # for each product of the forward pass: one for the gradient of either factor


def check_countable(config: ModelConfig, run: object) -> None:
    """Refuse a model whose operations these formulas do not count."""
    for name, known in _COUNTABLE_SETTINGS.items():
        value = getattr(config, name, None)
        if value not in known:
            raise UserError(
                f'{run} cannot be measured: its [model] {name} is "{value}", and `dragoman bench` counts operations '
                f"of a Transformer with full attention. `dragoman lab architectures` compares all of them."
            )


def training_flops(config: TransformerConfig, vocabulary: int, lengths: Iterable[tuple[int, int]]) -> float:
    """Return the operations for one target token of pairs of these lengths, forward and backward."""
    forward = tokens = 0
    for source, target in lengths:
        forward += encoder_flops(config, source) + memory_flops(config, source)
        forward += decoder_flops(config, vocabulary, target, attended_pairs=target * (target + source))
        tokens += target
    return forward * (1 + _BACKWARD_FACTOR) / tokens


def decoding_flops(config: TransformerConfig, vocabulary: int, source: int, target: int, beam: int) -> int:
    """Return the operations for one sentence: the source is read once, each of the hypotheses step by step."""
    looked_at = target * (target + 1) // 2 + target * source
    return (
        encoder_flops(config, source)
        + memory_flops(config, source)
        + beam * decoder_flops(config, vocabulary, target, attended_pairs=looked_at)
    )


def encoder_flops(config: TransformerConfig, source: int) -> int:
    """Count the encoder: S (2 D (2Q + 2U) + 4 D F) + 2 S² (Q + U) a layer."""
    keys, values = _head_widths(config)
    positions = source * (2 * config.width * 2 * (keys + values) + 4 * config.width * config.inner_width)
    return config.layers * (positions + 2 * source * source * (keys + values))


def memory_flops(config: TransformerConfig, source: int) -> int:
    """Count the projections of what the encoder leaves: S 2 D (Q + U) for each layer of the decoder."""
    keys, values = _head_widths(config)
    return config.decoder_depth * source * 2 * config.width * (keys + values)


def decoder_flops(config: TransformerConfig, vocabulary: int, target: int, attended_pairs: int) -> int:
    """Count the decoder and the output projection; `looked_at` is how many pairs of places attention compares."""
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
