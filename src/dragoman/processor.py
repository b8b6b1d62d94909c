"""The processor: its name and its instruction sets. Imports no torch."""

import ctypes
import platform
from functools import cache
from pathlib import Path

# Intel's processors in Macs tell only some of the names; all of those with AVX2 have the others.
_MAC_SETS = {
    "hw.optional.avx2_0": ("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"),
    "hw.optional.neon": ("asimd",),
    "hw.optional.arm64": ("asimd",),
    "hw.optional.arm.FEAT_DotProd": ("asimddp",),
}


@cache
def instruction_sets() -> frozenset[str]:
    """Return the instruction sets that all cores have, by their names in Linux's /proc/cpuinfo; empty if unknown."""
    if platform.system() == "Darwin":
        return frozenset(name for key, names in _MAC_SETS.items() if _mac_fact(key) for name in names)
    lists = [value.split() for name, value in _cpuinfo() if name in ("flags", "Features")]
    return frozenset.intersection(*map(frozenset, lists)) if lists else frozenset()


@cache
def processor_name() -> str:
    """Return the name of the processor."""
    named = next((value for name, value in _cpuinfo() if name == "model name"), "")
    return named or platform.processor() or platform.machine()


@cache
def _cpuinfo() -> tuple[tuple[str, str], ...]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    lines = (line.partition(":") for line in text.splitlines())
    return tuple((name.strip(), value.strip()) for name, _, value in lines)


def _mac_fact(name: str) -> int:
    value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
    failed = ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return 0 if failed else value.value
