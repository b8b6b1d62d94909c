"""Compile the C files once per processor and compiler and cache the library."""

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
_SWITCH = "DRAGOMAN_KERNELS"  # "off" disables native code


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the compiled library, or None without a compiler or a writable cache."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if os.environ.get(_SWITCH) == "off" or compiler is None or platform.system() == "Windows":
        return None
    try:
        return ctypes.CDLL(str(_compile_library(compiler)))
    except (OSError, subprocess.SubprocessError):
        return None


def _compile_library(compiler: str) -> Path:
    """Return the path of the library for this processor; compile it if it is missing."""
    sources = sorted(Path(__file__).parent.glob("*.[ch]"))
    path = default_cache_dir() / f"kernels-{_fingerprint(compiler, sources)}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        files = [str(path) for path in sources if path.suffix == ".c"]
        with atomic_file(path) as temporary:  # several processes may compile at the same time
            subprocess.run([compiler, *_FLAGS, "-o", str(temporary), *files, "-lm"], check=True, capture_output=True)
    return path


def _fingerprint(compiler: str, sources: list[Path]) -> str:
    """Return a hash of sources, flags, compiler and processor."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True).stdout
    parts = [
        *(path.read_bytes() for path in sources),
        " ".join(_FLAGS).encode(),
        version,
        _describe_processor().encode(),
    ]
    return hashlib.blake2b(b"\0".join(parts), digest_size=12).hexdigest()


def _describe_processor() -> str:
    """Return the processor's model and instruction sets."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8", errors="replace").splitlines() if facts.exists() else []
    selected = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(selected)])
