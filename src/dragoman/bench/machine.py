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
from dragoman.kernels.build import library

FLAGS = (
    "avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8",
    "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
PACKAGES = ("torch", "ctranslate2", "transformers")
LEAST_PRODUCTS = 2  # a turn, of each kind


@dataclass(frozen=True)
class Machine:
    """What a speed must name to mean anything."""

    processor: str
    flags: tuple[str, ...]  # those that matter for matrix products
    threads: int
    cores: int
    system: str
    versions: dict[str, str]  # of what is installed
    compiled: bool  # whether our own loops could be compiled here

    def __str__(self) -> str:
        flags = ", ".join(self.flags) or "no vector extensions that we know"
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''} on {self.cores}"
        where = f"{self.processor} ({flags}), {threads} core{'s' if self.cores > 1 else ''}; {self.system}"
        return f"{where}; {versions}; dragoman's own loops {'compiled' if self.compiled else 'not compiled'}"


def this_machine(threads: int, cores: int) -> Machine:
    """Look at the machine that this runs on."""
    name, flags = processor()
    versions = {"dragoman": dragoman.__version__, "python": platform.python_version()}
    versions |= {package: found for package in PACKAGES if (found := installed(package))}
    system = f"{platform.system()} {platform.machine()}"
    return Machine(name, flags, threads, cores, system, versions, compiled=library() is not None)


def processor() -> tuple[str, tuple[str, ...]]:
    """Return the processor's name and those of its abilities that matter."""
    facts: dict[str, str] = {}
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        name, _, fact = line.partition(":")
        facts.setdefault(name.strip(), fact.strip())
    able = set((facts.get("flags") or facts.get("Features") or "").split())
    name = facts.get("model name") or platform.processor() or platform.machine()
    return name, tuple(flag for flag in FLAGS if flag in able)


def installed(package: str) -> str | None:
    """Return the version of a package, if it is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class Peak:
    """A contender that does nothing but multiply square matrices, of every kind that this machine can multiply."""

    def __init__(self, threads: int, side: int, seconds: float) -> None:
        torch.set_num_threads(threads)
        self.side, self.seconds = side, seconds
        kinds: dict[str, Callable[[], Tensor]] = {
            "float32": product(side, torch.float32, torch.mm),
            "bfloat16": product(side, torch.bfloat16, torch.mm),
            "int8": product(side, torch.int8, torch._int_mm),
        }
        self.kinds = {kind: multiply for kind, multiply in kinds.items() if works(multiply)}

    def turn(self) -> dict[str, float]:
        """Return the billions of operations a second of each kind."""
        return {kind: self.speed(multiply) for kind, multiply in self.kinds.items()}

    def speed(self, multiply: Callable[[], Tensor]) -> float:
        """Multiply for a while; return billions of operations a second."""
        products, began_at = 0, time.perf_counter()
        while products < LEAST_PRODUCTS or time.perf_counter() - began_at < self.seconds:
            multiply()
            products += 1
        return products * 2 * self.side**3 / (time.perf_counter() - began_at) / 1e9


def product(side: int, kind: torch.dtype, multiply: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], Tensor]:
    """Return a function that multiplies two random square matrices."""
    drawn = torch.Generator().manual_seed(1)
    left, right = (torch.randint(-100, 100, (side, side), generator=drawn).to(kind) for _ in range(2))
    return lambda: multiply(left, right)


def works(multiply: Callable[[], Tensor]) -> bool:
    """Say whether this machine can do it at all, and warm up."""
    try:
        multiply()
    except (RuntimeError, NotImplementedError):
        return False
    return True
