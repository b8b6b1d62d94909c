"""How many operations the matrix products of a model take: two, a multiplication and an addition, for each weight.

Only products are counted, on the real lengths: no padding, no softmax, no norms, no embeddings. Attention counts as the
full rectangle, though half of what a decoder computes on the target is masked. S and T are the lengths of source and
target with END, D the width, F the inner width, V the vocabulary; Q and U are the widths of all heads' keys and values.
"""

from collections.abc import Iterable

from dragoman.errors import UserError
from dragoman.recipe import Model

COUNTED = {"architecture": ("transformer",), "score": ("scaled_dot", "dot"), "pattern": ("full",)}
BACKWARD = 2  # for each product of the forward pass: one for the gradient of either factor


def check_countable(how: Model, run: object) -> None:
    """Refuse a model whose operations these formulas do not count."""
    for name, known in COUNTED.items():
        value = getattr(how, name)
        if value not in known:
            raise UserError(
                f'{run} cannot be measured: its [model] {name} is "{value}", and `dragoman bench` counts operations '
                f"of a Transformer with full attention. `dragoman lab architectures` compares all of them."
            )


def training_flops(how: Model, vocabulary: int, lengths: Iterable[tuple[int, int]]) -> float:
    """Return the operations for one target token of pairs of these lengths, forward and backward."""
    forward = tokens = 0
    for source, target in lengths:
        forward += encoder_flops(how, source) + memory_flops(how, source)
        forward += decoder_flops(how, vocabulary, target, looked_at=target * (target + source))
        tokens += target
    return forward * (1 + BACKWARD) / tokens


def decoding_flops(how: Model, vocabulary: int, source: int, target: int, beam: int) -> int:
    """Return the operations for one sentence: the source is read once, each of the hypotheses step by step."""
    looked_at = target * (target + 1) // 2 + target * source
    return (
        encoder_flops(how, source)
        + memory_flops(how, source)
        + beam * decoder_flops(how, vocabulary, target, looked_at=looked_at)
    )


def encoder_flops(how: Model, source: int) -> int:
    """Count the encoder: S (2 D (2Q + 2U) + 4 D F) + 2 S² (Q + U) a layer."""
    keys, values = head_widths(how)
    positions = source * (2 * how.width * 2 * (keys + values) + 4 * how.width * how.inner_width)
    return how.layers * (positions + 2 * source * source * (keys + values))


def memory_flops(how: Model, source: int) -> int:
    """Count the projections of what the encoder leaves: S 2 D (Q + U) for each layer of the decoder."""
    keys, values = head_widths(how)
    return how.decoder_depth * source * 2 * how.width * (keys + values)


def decoder_flops(how: Model, vocabulary: int, target: int, looked_at: int) -> int:
    """Count the decoder and the output projection; `looked_at` is how many pairs of places attention compares."""
    keys, values = head_widths(how)
    own, cross, inner = 2 * (keys + values), keys + values, 2 * how.inner_width
    layers = how.decoder_depth * (target * 2 * how.width * (own + cross + inner) + 2 * looked_at * (keys + values))
    return layers + 2 * target * how.width * vocabulary


def head_widths(how: Model) -> tuple[int, int]:
    """Return the widths of the keys and of the values of all heads together."""
    share = how.width // how.heads
    return how.heads * (how.key_width or share), how.heads * (how.value_width or share)
