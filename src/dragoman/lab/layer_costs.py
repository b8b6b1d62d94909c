"""The layers of table 1, and measurements of their time, memory, sequential operations and path lengths.

Every layer maps one sequence of n vectors of width d to another. The batch size is 1 and there is one head, so that the
score matrix of the longest sequence fits into memory. Paths are measured by autograd in small random causal layers in
double precision: where a gradient is exactly zero, there is no path.
"""

import json
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from timeit import timeit
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.models.attention import MultiHeadAttention, attend
from dragoman.models.local_attention import WindowPattern

WINDOW_SIZE = 128  # r, neighbours that restricted self-attention attends to
_KERNEL_SIZE = 3  # k
_DILATION = 16  # of the dilated convolution
_MIN_TIMED_SECONDS = 0.02  # shorter calls are repeated
_LONG_SECONDS = 1.0  # for longer calls, the first one counts
_ATTENTION_MATRICES = 5  # of n × n numbers, held by explicit attention in the backward pass

_LayerFunction = Callable[..., Tensor]


@dataclass(frozen=True)
class LayerWorkload:
    """A layer with its input."""

    compute: _LayerFunction
    inputs: tuple[Tensor, ...]
    parameters: tuple[nn.Parameter, ...] = ()

    @torch.no_grad()
    def forward(self) -> None:
        """Compute the output."""
        self.compute(*self.inputs)

    def forward_backward(self) -> None:
        """Compute the output, then the gradients of its sum with respect to inputs and parameters."""
        output = self.compute(*self.inputs)
        torch.autograd.grad(output, (*self.inputs, *self.parameters), torch.ones_like(output))


@dataclass(frozen=True)
class MeasuredLayer:
    """A row of table 1: the cost as in the paper, and its exponents of n and d."""

    cost: str
    length_exponent: int
    width_exponent: int
    make: Callable[[int, int], LayerWorkload]  # of n and d


def _explicit_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Equation 1 with its n × n matrices."""
    return attend(query, key, value, None, record=True)[0]


def _window_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Equation 1 over r neighbours."""
    return WindowPattern(WINDOW_SIZE).attend(query, key, value, None, causal=False)


def _attention_only(compute: _LayerFunction) -> Callable[[int, int], LayerWorkload]:
    """Return a factory of the attention alone, without projections."""
    return lambda n, d: LayerWorkload(compute, tuple(torch.randn(1, 1, n, d, requires_grad=True) for _ in range(3)))


def _whole_layer(pattern: WindowPattern | None = None) -> Callable[[int, int], LayerWorkload]:
    """Return a factory of the attention with its four projections; without a pattern, with its n × n matrices."""

    def make(n: int, d: int) -> LayerWorkload:
        layer = MultiHeadAttention(d, 1, d, d, pattern=pattern)
        x = torch.randn(1, n, d, requires_grad=True)
        return LayerWorkload(lambda x: layer(x, x, None, record=pattern is None)[0], (x,), tuple(layer.parameters()))

    return make


def _lstm_layer(n: int, d: int) -> LayerWorkload:
    layer = nn.LSTM(d, d, batch_first=True)
    x = torch.randn(1, n, d, requires_grad=True)
    return LayerWorkload(lambda x: layer(x)[0], (x,), tuple(layer.parameters()))


def _convolution_layer(dilation: int) -> Callable[[int, int], LayerWorkload]:
    """Return a factory of a convolution over k positions with a dilation."""

    def make(n: int, d: int) -> LayerWorkload:
        layer = nn.Conv1d(d, d, _KERNEL_SIZE, padding=dilation * (_KERNEL_SIZE // 2), dilation=dilation)
        return LayerWorkload(layer, (torch.randn(1, d, n, requires_grad=True),), tuple(layer.parameters()))

    return make


SELF_ATTENTION, RESTRICTED, FUSED = (
    "self-attention",
    f"restricted self-attention (r = {WINDOW_SIZE})",
    "self-attention, fused kernel",
)
WHOLE, WHOLE_RESTRICTED = "whole self-attention layer", "whole restricted layer"
RECURRENT, CONVOLUTIONAL, DILATED = "recurrent (LSTM)", "convolutional (k = 3)", "dilated convolutional (k = 3)"
LAYERS: dict[str, MeasuredLayer] = {
    SELF_ATTENTION: MeasuredLayer("n²·d", 2, 1, _attention_only(_explicit_attention)),
    FUSED: MeasuredLayer("n²·d", 2, 1, _attention_only(F.scaled_dot_product_attention)),
    RESTRICTED: MeasuredLayer("r·n·d", 1, 1, _attention_only(_window_attention)),
    RECURRENT: MeasuredLayer("n·d²", 1, 2, _lstm_layer),
    CONVOLUTIONAL: MeasuredLayer("k·n·d²", 1, 2, _convolution_layer(1)),
    DILATED: MeasuredLayer("k·n·d²", 1, 2, _convolution_layer(_DILATION)),
    WHOLE: MeasuredLayer("n²·d + 4·n·d²", 2, 1, _whole_layer()),
    WHOLE_RESTRICTED: MeasuredLayer("r·n·d + 4·n·d²", 1, 1, _whole_layer(WindowPattern(WINDOW_SIZE))),
}


def _measure_seconds(work: Callable[[], object]) -> float:
    """Return the seconds of a call; short calls are repeated, and all but long ones are warmed up first."""
    first = timeit(work, number=1)
    if first > _LONG_SECONDS:
        return first
    count = max(1, math.ceil(_MIN_TIMED_SECONDS / max(first, 1e-6)))
    return timeit(work, number=count) / count


def warm_up() -> None:
    """Run every layer once, since the first call loads and selects kernels."""
    for layer in LAYERS.values():
        layer.make(8, 8).forward_backward()


def time_layers(n: int, d: int) -> dict[str, dict[str, float]]:
    """Time every layer at one size: forward, and forward with backward."""
    times: dict[str, dict[str, float]] = {}
    for name, layer in LAYERS.items():
        work = layer.make(n, d)
        times[name] = {"forward": _measure_seconds(work.forward), "both": _measure_seconds(work.forward_backward)}
    return times


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the peak memory that torch allocates during a call, in addition to what was allocated before."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would print to the terminal
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_bytes())["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    allocated = peak = 0
    for event in sorted(changes, key=lambda event: (event["ts"], event["args"].get("Ev Idx", 0))):
        allocated += event["args"]["Bytes"]
        peak = max(peak, allocated)
    return peak


def fit_exponent(points: Sequence[tuple[float, float]]) -> float:
    """Fit y = c·xᵃ by least squares of the logarithms and return a."""
    x, y = np.log(points).T
    return float(np.polyfit(x, y, 1)[0])


def fits_memory(n: int) -> bool:
    """Return whether explicit attention over n positions needs less than a third of the memory of the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    return _ATTENTION_MATRICES * 4 * n * n < memory / 3


# Paths

_PATH_WIDTH = 16  # of the layers whose paths are measured
PATH_WINDOW = 8  # r of their restricted attention
STACK_DEPTH = 6  # layers of a deep stack, as in the paper
_RANDOM_DRAWS = 12  # over which a gradient profile is averaged
PATH_RESTRICTED = f"restricted self-attention (r = {PATH_WINDOW})"


class _CausalSelfAttention(nn.Module):
    """One head over all earlier positions or over a window."""

    def __init__(self, pattern: WindowPattern | None = None) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(_PATH_WIDTH, 1, _PATH_WIDTH, _PATH_WIDTH, pattern=pattern, causal=True)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from every position."""
        return self.attention(x, x, None, record=self.attention.pattern is None)[0]  # type: ignore[no-any-return]


class _StepwiseLSTM(nn.Module):
    """An LSTM as a loop of cells, so that its operations can be counted."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(_PATH_WIDTH, _PATH_WIDTH)

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
        self.layer = nn.Conv1d(_PATH_WIDTH, _PATH_WIDTH, _KERNEL_SIZE, dilation=dilation)
        self.padding = (_KERNEL_SIZE - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        """Convolve over the positions, with zeros before the first."""
        return self.layer(nn.functional.pad(x.mT, (self.padding, 0))).mT  # type: ignore[no-any-return]


LAYER_KINDS: dict[str, Callable[[int], nn.Module]] = {  # by the index of the layer in its stack
    SELF_ATTENTION: lambda _: _CausalSelfAttention(),
    PATH_RESTRICTED: lambda _: _CausalSelfAttention(WindowPattern(PATH_WINDOW)),
    RECURRENT: lambda _: _StepwiseLSTM(),
    CONVOLUTIONAL: lambda _: _CausalConvolution(),
    DILATED: lambda number: _CausalConvolution(_KERNEL_SIZE**number),
}
PATH_FORMULAS: dict[str, tuple[str, str]] = {  # sequential operations, maximum path length
    SELF_ATTENTION: ("O(1)", "O(1)"),
    PATH_RESTRICTED: ("O(1)", "O(n/r)"),
    RECURRENT: ("O(n)", "O(n)"),
    CONVOLUTIONAL: ("O(1)", "O(n/k)"),
    DILATED: ("O(1)", "O(log_k(n))"),
}


def _random_stack(kind: str, depth: int) -> nn.ModuleList:
    return nn.ModuleList(LAYER_KINDS[kind](number) for number in range(depth)).double()


def _gradient_norms(layers: nn.ModuleList, n: int, *, residual: bool = False) -> Tensor:
    """Return the norm of the gradient of the last output with respect to each of n inputs."""
    inputs = torch.randn(1, n, _PATH_WIDTH, dtype=torch.float64, requires_grad=True)
    x: Tensor = inputs
    for layer in layers:
        x = nn.functional.layer_norm(x + layer(x), (_PATH_WIDTH,)) if residual else layer(x)
    (gradient,) = torch.autograd.grad(x[0, -1] @ torch.randn(_PATH_WIDTH, dtype=torch.float64), inputs)
    return cast(Tensor, gradient[0].norm(dim=-1))


def layers_needed(kind: str, n: int) -> int:
    """Return the number of layers until the last of n outputs depends on the first input."""
    depth = 1
    while _gradient_norms(_random_stack(kind, depth), n)[0] == 0:
        depth += 1
    return depth


def sequential_operations(kind: str, n: int) -> int:
    """Return the length of the longest chain of dependent operations in one layer over n positions."""
    inputs = torch.randn(1, n, _PATH_WIDTH, dtype=torch.float64, requires_grad=True)
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
