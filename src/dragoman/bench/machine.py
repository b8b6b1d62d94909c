"""Describe the machine, and measure its matrix products, which bound the speed of any model."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

import dragoman
from dragoman.kernels import kernel_name
from dragoman.processor import instruction_sets, processor_name

_CPU_FLAGS = (
    "avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8",
    "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
_REPORTED_PACKAGES = ("torch", "ctranslate2", "transformers")
_MIN_PRODUCTS = 2  # per turn and data type


@dataclass(frozen=True)
class Machine:
    """What a speed depends on."""

    processor: str
    cpu_flags: tuple[str, ...]  # those that matter for matrix products
    threads: int
    cores: int
    system: str
    versions: dict[str, str]  # of installed packages
    kernels: str  # the variant of the native kernels, or "none"

    def __str__(self) -> str:
        flags = ", ".join(self.cpu_flags) or "no known vector extensions"
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''} on {self.cores}"
        hardware = f"{self.processor} ({flags}), {threads} core{'s' if self.cores > 1 else ''}; {self.system}"
        return f"{hardware}; {versions}; native kernels {self.kernels}"


def describe_machine(threads: int, cores: int) -> Machine:
    """Return a description of this machine."""
    flags = tuple(flag for flag in _CPU_FLAGS if flag in instruction_sets())
    versions = {"dragoman": dragoman.__version__, "python": platform.python_version()}
    versions |= {package: number for package in _REPORTED_PACKAGES if (number := installed_version(package))}
    system = f"{platform.system()} {platform.machine()}"
    return Machine(processor_name(), flags, threads, cores, system, versions, kernel_name())


def installed_version(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class MatmulPeak:
    """An engine that multiplies square matrices of every data type that the machine supports."""

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
        """Return the billions of operations per second of each data type."""
        return {kind: self.gigaflops(multiply) for kind, multiply in self.kinds.items()}

    def gigaflops(self, multiply: Callable[[], Tensor]) -> float:
        """Multiply for some time and return the billions of operations per second."""
        products, began_at = 0, time.perf_counter()
        while products < _MIN_PRODUCTS or time.perf_counter() - began_at < self.seconds:
            multiply()
            products += 1
        return products * 2 * self.matrix_size**3 / (time.perf_counter() - began_at) / 1e9


def _matrix_product(
    matrix_size: int, dtype: torch.dtype, multiply: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[], Tensor]:
    """Return a function that multiplies two random square matrices."""
    generator = torch.Generator().manual_seed(1)
    left, right = (
        torch.randint(-100, 100, (matrix_size, matrix_size), generator=generator).to(dtype) for _ in range(2)
    )
    return lambda: multiply(left, right)


def _is_supported(multiply: Callable[[], Tensor]) -> bool:
    """Return whether the machine supports this product; this also warms up."""
    try:
        multiply()
    except (RuntimeError, NotImplementedError):
        return False
    return True
