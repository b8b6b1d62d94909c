"""What do restricted and full attention cost? Time and memory over the length n.

    python benchmarks/restricted_attention.py [--heads 8 --width 64 --window 128 --longest 16384]

Compares full attention (explicit, with its n×n matrix, and torch's fused kernel) with every pattern of
models/local_attention.py, forward and backward. Each measurement runs in its own process. The time is the best of
several turns; the memory is the growth of the resident memory (VmHWM, Linux only) after queries, keys and values were
created, so that it includes what a kernel allocates without torch. Sizes that exceed half of the memory are left out.
Prints a table, the exponents fitted over n ≥ 1024, the ratios at 8192, and writes one JSON record.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.nn import functional as F

from dragoman.bench.workers import peak_memory_bytes
from dragoman.models.attention import attend
from dragoman.models.local_attention import PATTERNS

FITTED_FROM, COMPARED_AT, FIRST = 1024, 8192, 512
ENOUGH_SECONDS, MOST_TURNS = 2.0, 20  # of one measurement
MATRICES = 4  # n×n, a head: what the explicit way back holds at once
LAYER = 2  # of the dilated and the sparse pattern: a gap of 4; the blocks stand at the beginning

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def attention_functions(window: int) -> dict[str, Attend]:
    """Return what is compared, by name."""
    patterns = {name: make(window, LAYER) for name, make in PATTERNS.items() if name != "full"}
    return {
        "explicit": lambda *parts: attend(*parts, None, record=True)[0],
        "fused": F.scaled_dot_product_attention,
        **{name: lambda *parts, p=pattern: p.attend(*parts, None, causal=False) for name, pattern in patterns.items()},
    }


def measure(name: str, length: int, heads: int, width: int, window: int) -> dict[str, Any]:
    """Measure one way at one length: forward, then forward and back."""
    for work in workloads(attention_functions(window)[name], parts_of(256, heads, width)).values():
        work()  # libraries are loaded, kernels compiled
    measured = workloads(attention_functions(window)[name], parts_of(length, heads, width))
    grown = {what: growth(work) for what, work in measured.items()}  # before any turn leaves memory to be used again
    return {what: {"seconds": best_of(work), "bytes": grown[what]} for what, work in measured.items()}


def workloads(way: Attend, parts: list[Tensor]) -> dict[str, Callable[[], None]]:
    """Return what is to be done, by name."""

    def forward() -> None:
        with torch.no_grad():
            way(*parts)

    def both() -> None:
        seen = way(*parts)
        torch.autograd.grad(seen, parts, torch.ones_like(seen))

    return {"forward": forward, "both": both}


def growth(work: Callable[[], None]) -> int:
    """Return by how many bytes the resident memory grew at the worst moment of some work."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak so far is forgotten
    before = resident_memory()
    work()
    return max(peak_memory_bytes() - before, 0)


def parts_of(length: int, heads: int, width: int) -> list[Tensor]:
    """Return queries, keys and values as projections leave them."""
    return [torch.randn(1, length, heads, width).transpose(1, 2).requires_grad_() for _ in range(3)]


def resident_memory() -> int:
    """Return the bytes of this process that are resident now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def best_of(work: Callable[[], None]) -> float:
    """Return the seconds of the fastest of some turns: other work on the machine only ever adds."""
    seconds: list[float] = []
    while sum(seconds) < ENOUGH_SECONDS and len(seconds) < MOST_TURNS:
        began_at = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began_at)
    return min(seconds)


def exponent(points: dict[int, float]) -> float:
    """Fit seconds = c·nᵃ by least squares of the logarithms and return a."""
    across, up = [math.log(n) for n in points], [math.log(value) for value in points.values()]
    middle, height = sum(across) / len(across), sum(up) / len(up)
    slope = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True))
    return slope / sum((x - middle) ** 2 for x in across)


def in_a_process(name: str, length: int, heads: int, width: int, window: int) -> dict[str, Any]:
    """Measure in a process of its own."""
    options = ["--heads", str(heads), "--width", str(width), "--window", str(window)]
    command = [sys.executable, __file__, *options, "--one", f"{name}:{length}"]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main(
    heads: Annotated[int, typer.Option(help="Heads.")] = 8,
    width: Annotated[int, typer.Option(help="Width of one head.")] = 64,
    window: Annotated[int, typer.Option(help="Places that a pattern looks at (r).")] = 128,
    longest: Annotated[int, typer.Option(help="The longest sequence; the first has 512 places.")] = 16384,
    output: Annotated[Path, typer.Option(help="Where to write the record.")] = Path("restricted_attention.json"),
    one: Annotated[str, typer.Option(help="Used by this script itself: one measurement.")] = "",
) -> None:
    """Measure every way at every length and compare."""
    if one:
        name, length = one.split(":")
        print(json.dumps(measure(name, int(length), heads, width, window)))
        return
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    rows: dict[str, dict[int, Any]] = {}
    print("             n   forward ms         MB      both ms         MB")
    for name in attention_functions(window):
        length = FIRST
        while length <= longest and (name != "explicit" or 4 * MATRICES * heads * length**2 < room):
            row = rows.setdefault(name, {})[length] = in_a_process(name, length, heads, width, window)
            cells = [f"{row[w]['seconds'] * 1e3:10.1f} {row[w]['bytes'] / 1e6:10.1f}" for w in ("forward", "both")]
            print(f"{name:>8} {length:>5}  {'  '.join(cells)}", flush=True)
            length *= 2
    exponents = {name: fit_exponents(row) for name, row in rows.items()}
    ratios = {name: ratios_to_full(rows, name) for name in rows if name not in ("explicit", "fused")}
    for name, found in exponents.items():
        print(f"{name:>8}  time grows with n to the power {found}")
    for name, found in ratios.items():
        print(f"{name:>8}  at n = {COMPARED_AT}, times cheaper: {found}")
    about = {"heads": heads, "width": width, "window": window, "threads": torch.get_num_threads()}
    record = {**about, "torch": torch.__version__, "rows": rows, "exponents": exponents, "ratios": ratios}
    output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def fit_exponents(row: dict[int, Any]) -> dict[str, float]:
    """Return the exponents of forward, and of forward and back."""
    points = [n for n in row if n >= FITTED_FROM]
    if len(points) < 2:
        return {}
    return {way: round(exponent({n: row[n][way]["seconds"] for n in points}), 2) for way in ("forward", "both")}


def ratios_to_full(rows: dict[str, dict[int, Any]], name: str) -> dict[str, float]:
    """Return how many times the time and the memory of a pattern full attention takes."""
    own = rows[name].get(COMPARED_AT)
    return {
        f"{full} {way} {what}": round(rows[full][COMPARED_AT][way][what] / max(own[way][what], 1e-9), 1)
        for full in ("explicit", "fused") if own and COMPARED_AT in rows.get(full, {})
        for way in ("forward", "both")
        for what in ("seconds", "bytes")
    }  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
