"""Compile the C files once for each processor and compiler, and keep the result in the user's cache."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

from dragoman.cache import default_cache_dir
from dragoman.storage import atomic_file

_FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_COMPILERS = ("cc", "gcc", "clang")
_SWITCH = "DRAGOMAN_KERNELS"  # "off" does without


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the compiled functions, or nothing where they cannot be had: no compiler, no place to keep them."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if os.environ.get(_SWITCH) == "off" or compiler is None or platform.system() == "Windows":
        return None
    try:
        return ctypes.CDLL(str(compile_library(compiler)))
    except (OSError, subprocess.SubprocessError):
        return None


def compile_library(compiler: str) -> Path:
    """Return the shared library for this processor, made now unless it is there."""
    sources = sorted(Path(__file__).parent.glob("*.[ch]"))
    place = default_cache_dir() / f"kernels-{_fingerprint(compiler, sources)}.so"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        files = [str(path) for path in sources if path.suffix == ".c"]
        with atomic_file(place) as temporary:  # several processes may compile at the same time
            subprocess.run([compiler, *_FLAGS, "-o", str(temporary), *files, "-lm"], check=True, capture_output=True)
    return place


def _fingerprint(compiler: str, sources: list[Path]) -> str:
    """Return a name for what the compiler would make of these files here: another processor needs another library."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True).stdout
    parts = [
        *(path.read_bytes() for path in sources),
        " ".join(_FLAGS).encode(),
        version,
        _describe_processor().encode(),
    ]
    return hashlib.blake2b(b"\0".join(parts), digest_size=12).hexdigest()


def _describe_processor() -> str:
    """Describe the processor down to the instructions it has."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8", errors="replace").splitlines() if facts.exists() else []
    kept = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(kept)])
