"""How far apart two places are (table 1, section 4): operations that wait for each other, and gradients that arrive.

Small random layers of every kind, in double precision; all look back, as in a decoder. A gradient that is exactly zero
has no path to travel on.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.models.attention import MultiHeadAttention
from dragoman.models.local_attention import WindowPattern, attend_pattern

_WIDTH = 16  # of the vectors
WINDOW_SIZE = 8  # neighbours that restricted attention looks at here (r)
_KERNEL_SIZE = 3
STACK_DEPTH = 6  # layers of a deep stack, as many as the paper's
_RANDOM_DRAWS = 12  # random layers and directions that a profile is the mean of

SELF_ATTENTION, RESTRICTED = "self-attention", f"restricted self-attention (r = {WINDOW_SIZE})"
RECURRENT, CONVOLUTIONAL, DILATED = "recurrent (LSTM)", "convolutional (k = 3)", "dilated convolutional (k = 3)"


class _CausalSelfAttention(nn.Module):
    """One head that looks everywhere, or in a pattern."""

    def __init__(self, pattern: WindowPattern | None = None) -> None:
        super().__init__()
        self.attention, self.pattern = MultiHeadAttention(_WIDTH, 1, _WIDTH, _WIDTH), pattern

    def forward(self, x: Tensor) -> Tensor:
        """Let every place look."""
        layer = self.attention
        if self.pattern is None:
            return layer(x, x, None, record=True)[0]  # type: ignore[no-any-return]
        seen = attend_pattern(
            layer.split_heads(layer.query(x)), *layer.project_keys_values(x), self.pattern, None, causal=True
        )
        return layer.output(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class _StepwiseLSTM(nn.Module):
    """An LSTM from left to right, step by step, so that its steps can be counted."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(_WIDTH, _WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Read one place after the other."""
        state, outputs = None, []
        for place in range(x.shape[1]):
            state = self.cell(x[:, place], state)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1)


class _CausalConvolution(nn.Module):
    """k places, so far apart, each place and those before it."""

    def __init__(self, dilation: int = 1) -> None:
        super().__init__()
        self.layer = nn.Conv1d(_WIDTH, _WIDTH, _KERNEL_SIZE, dilation=dilation)
        self.padding = (_KERNEL_SIZE - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        """Convolve over the places, with zeros before the first."""
        return self.layer(nn.functional.pad(x.mT, (self.padding, 0))).mT  # type: ignore[no-any-return]


LAYER_KINDS: dict[str, Callable[[int], nn.Module]] = {  # of the number of the layer in its stack, from 0
    SELF_ATTENTION: lambda _: _CausalSelfAttention(),
    RESTRICTED: lambda _: _CausalSelfAttention(WindowPattern(WINDOW_SIZE)),
    RECURRENT: lambda _: _StepwiseLSTM(),
    CONVOLUTIONAL: lambda _: _CausalConvolution(),
    DILATED: lambda number: _CausalConvolution(_KERNEL_SIZE**number),
}
PATH_FORMULAS: dict[str, tuple[str, str]] = {  # sequential operations, maximum path length
    SELF_ATTENTION: ("O(1)", "O(1)"),
    RESTRICTED: ("O(1)", "O(n/r)"),
    RECURRENT: ("O(n)", "O(n)"),
    CONVOLUTIONAL: ("O(1)", "O(n/k)"),
    DILATED: ("O(1)", "O(log_k(n))"),
}


def _random_stack(kind: str, depth: int) -> nn.ModuleList:
    """Return layers of one kind with new random parameters."""
    return nn.ModuleList(LAYER_KINDS[kind](number) for number in range(depth)).double()


def _gradient_norms(layers: nn.ModuleList, n: int, *, residual: bool = False) -> Tensor:
    """Return how strongly the last output depends on each of n inputs: the gradient's length at each place (n)."""
    inputs = torch.randn(1, n, _WIDTH, dtype=torch.float64, requires_grad=True)
    x: Tensor = inputs
    for layer in layers:
        x = nn.functional.layer_norm(x + layer(x), (_WIDTH,)) if residual else layer(x)
    (found,) = torch.autograd.grad(x[0, -1] @ torch.randn(_WIDTH, dtype=torch.float64), inputs)
    return cast(Tensor, found[0].norm(dim=-1))


def layers_needed(kind: str, n: int) -> int:
    """Return how many layers it takes until the last of n outputs depends on the first input."""
    depth = 1
    while _gradient_norms(_random_stack(kind, depth), n)[0] == 0:
        depth += 1
    return depth


def sequential_operations(kind: str, n: int) -> int:
    """Count the operations of one layer over n places that have to wait for each other: the longest chain of them."""
    inputs = torch.randn(1, n, _WIDTH, dtype=torch.float64, requires_grad=True)
    return _longest_chain(_random_stack(kind, 1)[0](inputs).grad_fn)


def _longest_chain(last: Any) -> int:
    """Return the length of the longest way through a graph of autograd nodes that ends in `last`."""
    length: dict[Any, int] = {}
    waiting = [last]
    while waiting:
        node = waiting[-1]
        before = [parent for parent, _ in node.next_functions if parent is not None]
        unknown = [parent for parent in before if parent not in length]
        if unknown:
            waiting += unknown
        else:
            length[waiting.pop()] = 1 + max((length[parent] for parent in before), default=0)
    return length[last]


def gradient_profile(kind: str, depth: int, n: int) -> list[float]:
    """Return the mean length of the gradient at each distance from the last place (0 … n-1), over random draws."""
    lengths = [_gradient_norms(_random_stack(kind, depth), n, residual=depth > 1) for _ in range(_RANDOM_DRAWS)]
    return [float(value) for value in torch.stack(lengths).mean(0).flip(0)]


def gradient_half_distance(lengths: list[float]) -> float | None:
    """Return over how many places a gradient falls to a half, fitted to its logarithm; nothing if it does not fall."""
    points = [(distance, value) for distance, value in enumerate(lengths) if distance and value > 0]
    if len(points) < 3:
        return None
    across, up = np.array(points).T
    slope = float(np.polyfit(across, np.log2(up), 1)[0])
    return -1 / slope if slope < -1e-3 else None
