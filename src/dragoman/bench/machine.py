"""The machine: what it is, and the speed of its matrix products, which no model can exceed."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch import Tensor

import dragoman
from dragoman.native.build import load_library

_CPU_FLAGS = (
    "avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8",
    "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
_REPORTED_PACKAGES = ("torch", "ctranslate2", "transformers")
_MIN_PRODUCTS = 2  # a turn, of each kind


@dataclass(frozen=True)
class Machine:
    """What a speed must name to mean anything."""

    processor: str
    cpu_flags: tuple[str, ...]  # those that matter for matrix products
    threads: int
    cores: int
    system: str
    versions: dict[str, str]  # of what is installed
    has_native_kernels: bool  # whether our own loops could be compiled here

    def __str__(self) -> str:
        flags = ", ".join(self.cpu_flags) or "no vector extensions that we know"
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''} on {self.cores}"
        where = f"{self.processor} ({flags}), {threads} core{'s' if self.cores > 1 else ''}; {self.system}"
        return f"{where}; {versions}; dragoman's own loops {'compiled' if self.has_native_kernels else 'not compiled'}"


def describe_machine(threads: int, cores: int) -> Machine:
    """Look at the machine that this runs on."""
    name, flags = _cpu_info()
    versions = {"dragoman": dragoman.__version__, "python": platform.python_version()}
    versions |= {package: found for package in _REPORTED_PACKAGES if (found := installed_version(package))}
    system = f"{platform.system()} {platform.machine()}"
    return Machine(name, flags, threads, cores, system, versions, has_native_kernels=load_library() is not None)


def _cpu_info() -> tuple[str, tuple[str, ...]]:
    """Return the processor's name and those of its abilities that matter."""
    facts: dict[str, str] = {}
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        name, _, fact = line.partition(":")
        facts.setdefault(name.strip(), fact.strip())
    able = set((facts.get("flags") or facts.get("Features") or "").split())
    name = facts.get("model name") or platform.processor() or platform.machine()
    return name, tuple(flag for flag in _CPU_FLAGS if flag in able)


def installed_version(package: str) -> str | None:
    """Return the version of a package, if it is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class MatmulPeak:
    """A contender that does nothing but multiply square matrices, of every kind that this machine can multiply."""

    def __init__(self, threads: int, matrix_size: int, seconds: float) -> None:
        torch.set_num_threads(threads)
        self.matrix_size, self.seconds = matrix_size, seconds
        kinds: dict[str, Callable[[], Tensor]] = {
            "float32": _matrix_product(matrix_size, torch.float32, torch.mm),
            "bfloat16": _matrix_product(matrix_size, torch.bfloat16, torch.mm),
            "int8": _matrix_product(matrix_size, torch.int8, torch._int_mm),
        }
        self.kinds = {kind: multiply for kind, multiply in kinds.items() if _is_supported(multiply)}

    def run_turn(self) -> dict[str, float]:
        """Return the billions of operations a second of each kind."""
        return {kind: self.gigaflops(multiply) for kind, multiply in self.kinds.items()}

    def gigaflops(self, multiply: Callable[[], Tensor]) -> float:
        """Multiply for a while; return billions of operations a second."""
        products, began_at = 0, time.perf_counter()
        while products < _MIN_PRODUCTS or time.perf_counter() - began_at < self.seconds:
            multiply()
            products += 1
        return products * 2 * self.matrix_size**3 / (time.perf_counter() - began_at) / 1e9


def _matrix_product(
    matrix_size: int, dtype: torch.dtype, multiply: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[], Tensor]:
    """Return a function that multiplies two random square matrices."""
    drawn = torch.Generator().manual_seed(1)
    left, right = (torch.randint(-100, 100, (matrix_size, matrix_size), generator=drawn).to(dtype) for _ in range(2))
    return lambda: multiply(left, right)


def _is_supported(multiply: Callable[[], Tensor]) -> bool:
    """Say whether this machine can do it at all, and warm up."""
    try:
        multiply()
    except (RuntimeError, NotImplementedError):
        return False
    return True
