"""What a layer costs (table 1): the layers to be compared, their time, their memory, and the exponents fitted to it.

Every layer maps one sequence of n vectors of width d to another; B is 1 and there is one head, so that the score
matrix of the longest sequence still fits into memory.
"""

import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.models.attention import MultiHeadAttention, attend
from dragoman.models.local_attention import WindowPattern, attend_pattern

WINDOW_SIZE = 128  # neighbours that restricted self-attention looks at (r)
_KERNEL_SIZE = 3  # places that a convolution reads (k)
_DILATION = 16  # of the dilated convolution: every 16th place
_MIN_TIMED_SECONDS = 0.02  # shorter work is timed several times in a row
_LONG_SECONDS = 1.0  # longer work is timed the first time
_ATTENTION_MATRICES = 5  # of n × n numbers, that explicit attention holds at most while it goes back

_LayerFunction = Callable[..., Tensor]


@dataclass(frozen=True)
class LayerWorkload:
    """One layer with its input: what is timed."""

    compute: _LayerFunction
    inputs: tuple[Tensor, ...]
    parameters: tuple[nn.Parameter, ...] = ()

    @torch.no_grad()
    def forward(self) -> None:
        """Compute the output."""
        self.compute(*self.inputs)

    def forward_backward(self) -> None:
        """Compute the output, then the gradient of its sum with respect to input and parameters."""
        output = self.compute(*self.inputs)
        torch.autograd.grad(output, (*self.inputs, *self.parameters), torch.ones_like(output))


@dataclass(frozen=True)
class MeasuredLayer:
    """A row of table 1: its cost as the paper writes it, with the exponents of n and d in it."""

    cost: str
    length_exponent: int
    width_exponent: int
    make: Callable[[int, int], LayerWorkload]  # of n and d


def _explicit_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Equation 1 with its n × n matrices."""
    return attend(query, key, value, None, record=True)[0]


def _fused_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Equation 1 by torch's kernel, which holds a few rows of the matrices at a time."""
    return F.scaled_dot_product_attention(query, key, value)


def _window_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Look at r neighbours only."""
    return attend_pattern(query, key, value, WindowPattern(WINDOW_SIZE), None, causal=False)


def _attention_only(compute: _LayerFunction) -> Callable[[int, int], LayerWorkload]:
    """Return what makes the attention proper, without projections."""
    return lambda n, d: LayerWorkload(compute, tuple(torch.randn(1, 1, n, d, requires_grad=True) for _ in range(3)))


def _whole_layer(compute: _LayerFunction) -> Callable[[int, int], LayerWorkload]:
    """Return what makes the layer with its four projections around the attention."""

    def make(n: int, d: int) -> LayerWorkload:
        layer = MultiHeadAttention(d, 1, d, d)

        def run(x: Tensor) -> Tensor:
            seen = compute(layer.split_heads(layer.query(x)), *layer.project_keys_values(x))  # 1 1 T K
            projected: Tensor = layer.output(seen.transpose(1, 2).flatten(2))
            return projected

        return LayerWorkload(run, (torch.randn(1, n, d, requires_grad=True),), tuple(layer.parameters()))

    return make


def _lstm_layer(n: int, d: int) -> LayerWorkload:
    """Make an LSTM layer."""
    layer = nn.LSTM(d, d, batch_first=True)
    x = torch.randn(1, n, d, requires_grad=True)
    return LayerWorkload(lambda x: layer(x)[0], (x,), tuple(layer.parameters()))


def _convolution_layer(dilation: int) -> Callable[[int, int], LayerWorkload]:
    """Return what makes a convolution over k places, so far apart."""

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
_RECURRENT, _CONVOLUTIONAL, _DILATED = "recurrent (LSTM)", "convolutional (k = 3)", "dilated convolutional (k = 3)"
LAYERS: dict[str, MeasuredLayer] = {
    SELF_ATTENTION: MeasuredLayer("n²·d", 2, 1, _attention_only(_explicit_attention)),
    FUSED: MeasuredLayer("n²·d", 2, 1, _attention_only(_fused_attention)),
    RESTRICTED: MeasuredLayer("r·n·d", 1, 1, _attention_only(_window_attention)),
    _RECURRENT: MeasuredLayer("n·d²", 1, 2, _lstm_layer),
    _CONVOLUTIONAL: MeasuredLayer("k·n·d²", 1, 2, _convolution_layer(1)),
    _DILATED: MeasuredLayer("k·n·d²", 1, 2, _convolution_layer(_DILATION)),
    WHOLE: MeasuredLayer("n²·d + 4·n·d²", 2, 1, _whole_layer(_explicit_attention)),
    WHOLE_RESTRICTED: MeasuredLayer("r·n·d + 4·n·d²", 1, 1, _whole_layer(_window_attention)),
}


def _measure_seconds(work: Callable[[], object]) -> float:
    """Return how long a piece of work takes; all but the longest warms up, and short work is done many times."""
    first = _mean_seconds(work, 1)
    return (
        first
        if first > _LONG_SECONDS
        else _mean_seconds(work, max(1, math.ceil(_MIN_TIMED_SECONDS / max(first, 1e-6))))
    )


def _mean_seconds(work: Callable[[], object], count: int) -> float:
    """Return the mean seconds of so many calls in a row."""
    began_at = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - began_at) / count


def warm_up() -> None:
    """Let every layer do all its work once: the very first time, torch loads and chooses what it computes with."""
    for layer in LAYERS.values():
        layer.make(8, 8).forward_backward()


def time_layers(n: int, d: int) -> dict[str, dict[str, float]]:
    """Time every layer at one size: forward, and forward with backward."""
    found: dict[str, dict[str, float]] = {}
    for name, layer in LAYERS.items():
        work = layer.make(n, d)
        found[name] = {"forward": _measure_seconds(work.forward), "both": _measure_seconds(work.forward_backward)}
    return found


def peak_bytes(work: Callable[[], object]) -> int:
    """Return how much memory torch had allocated at the worst moment of a piece of work, beyond what it began with."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or else the profiler tells the terminal when it starts and stops
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_bytes())["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    held = highest = 0
    for event in sorted(changes, key=lambda event: (event["ts"], event["args"].get("Ev Idx", 0))):
        held += event["args"]["Bytes"]
        highest = max(highest, held)
    return highest


def fit_exponent(points: Sequence[tuple[float, float]]) -> float:
    """Fit y = c·xᵃ by least squares of the logarithms and return a."""
    across = [math.log(x) for x, _ in points]
    up = [math.log(y) for _, y in points]
    middle, height = sum(across) / len(across), sum(up) / len(up)
    slope = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True))
    return slope / sum((x - middle) ** 2 for x in across)


def fits_memory(n: int) -> bool:
    """Say whether explicit attention over n places needs less than a third of the machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    return _ATTENTION_MATRICES * 4 * n * n < memory / 3
