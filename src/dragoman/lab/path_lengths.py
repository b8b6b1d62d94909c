"""Sequential operations and path lengths of table 1 (section 4), measured by autograd.

Small random causal layers of every kind in double precision. Where a gradient is exactly zero, there is no path.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.models.attention import MultiHeadAttention
from dragoman.models.local_attention import WindowPattern, attend_pattern

_WIDTH = 16  # of the vectors
WINDOW_SIZE = 8  # r of restricted attention
_KERNEL_SIZE = 3
STACK_DEPTH = 6  # layers of a deep stack, as in the paper
_RANDOM_DRAWS = 12  # over which a gradient profile is averaged

SELF_ATTENTION, RESTRICTED = "self-attention", f"restricted self-attention (r = {WINDOW_SIZE})"
RECURRENT, CONVOLUTIONAL, DILATED = "recurrent (LSTM)", "convolutional (k = 3)", "dilated convolutional (k = 3)"


class _CausalSelfAttention(nn.Module):
    """One head over all earlier positions or over a window."""

    def __init__(self, pattern: WindowPattern | None = None) -> None:
        super().__init__()
        self.attention, self.pattern = MultiHeadAttention(_WIDTH, 1, _WIDTH, _WIDTH), pattern

    def forward(self, x: Tensor) -> Tensor:
        """Attend from every position."""
        layer = self.attention
        if self.pattern is None:
            return layer(x, x, None, record=True)[0]  # type: ignore[no-any-return]
        attended = attend_pattern(
            layer.split_heads(layer.query(x)), *layer.project_keys_values(x), self.pattern, None, causal=True
        )
        return layer.output(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class _StepwiseLSTM(nn.Module):
    """An LSTM as a loop of cells, so that its operations can be counted."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(_WIDTH, _WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Run the cell over the positions."""
        state, outputs = None, []
        for position in range(x.shape[1]):
            state = self.cell(x[:, position], state)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1)


class _CausalConvolution(nn.Module):
    """A causal convolution over k positions with a dilation."""

    def __init__(self, dilation: int = 1) -> None:
        super().__init__()
        self.layer = nn.Conv1d(_WIDTH, _WIDTH, _KERNEL_SIZE, dilation=dilation)
        self.padding = (_KERNEL_SIZE - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        """Convolve over the positions, with zeros before the first."""
        return self.layer(nn.functional.pad(x.mT, (self.padding, 0))).mT  # type: ignore[no-any-return]


LAYER_KINDS: dict[str, Callable[[int], nn.Module]] = {  # by the index of the layer in its stack
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
    return nn.ModuleList(LAYER_KINDS[kind](number) for number in range(depth)).double()


def _gradient_norms(layers: nn.ModuleList, n: int, *, residual: bool = False) -> Tensor:
    """Return the norm of the gradient of the last output with respect to each of n inputs."""
    inputs = torch.randn(1, n, _WIDTH, dtype=torch.float64, requires_grad=True)
    x: Tensor = inputs
    for layer in layers:
        x = nn.functional.layer_norm(x + layer(x), (_WIDTH,)) if residual else layer(x)
    (gradient,) = torch.autograd.grad(x[0, -1] @ torch.randn(_WIDTH, dtype=torch.float64), inputs)
    return cast(Tensor, gradient[0].norm(dim=-1))


def layers_needed(kind: str, n: int) -> int:
    """Return the number of layers until the last of n outputs depends on the first input."""
    depth = 1
    while _gradient_norms(_random_stack(kind, depth), n)[0] == 0:
        depth += 1
    return depth


def sequential_operations(kind: str, n: int) -> int:
    """Return the length of the longest chain of dependent operations in one layer over n positions."""
    inputs = torch.randn(1, n, _WIDTH, dtype=torch.float64, requires_grad=True)
    return _longest_chain(_random_stack(kind, 1)[0](inputs).grad_fn)


def _longest_chain(last: Any) -> int:
    """Return the length of the longest path in an autograd graph that ends in `last`."""
    length: dict[Any, int] = {}
    stack = [last]
    while stack:
        node = stack[-1]
        before = [parent for parent, _ in node.next_functions if parent is not None]
        unknown = [parent for parent in before if parent not in length]
        if unknown:
            stack += unknown
        else:
            length[stack.pop()] = 1 + max((length[parent] for parent in before), default=0)
    return length[last]


def gradient_profile(kind: str, depth: int, n: int) -> list[float]:
    """Return the mean gradient norm at each distance from the last position (0 … n-1) over random layers."""
    lengths = [_gradient_norms(_random_stack(kind, depth), n, residual=depth > 1) for _ in range(_RANDOM_DRAWS)]
    return [float(value) for value in torch.stack(lengths).mean(0).flip(0)]


def gradient_half_distance(lengths: list[float]) -> float | None:
    """Return the distance over which a gradient halves, by a fit to its logarithm; None if it does not fall."""
    points = [(distance, value) for distance, value in enumerate(lengths) if distance and value > 0]
    if len(points) < 3:
        return None
    distances, norms = np.array(points).T
    slope = float(np.polyfit(distances, np.log2(norms), 1)[0])
    return -1 / slope if slope < -1e-3 else None
