"""The compiled kernels: choose the library for this processor, check it and load it. Imports no torch.

`setup.py` compiles the C files of `native/` when the package is built, once for each of a few groups of instruction
sets, and writes the libraries and a list of them, `kernels.json`, to `native/libraries/`. Nothing is compiled at run
time, and nothing is loaded from another directory: whoever can write there can change the Python code too.
"""

import ctypes
import hashlib
import json
import logging
import os
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dragoman.errors import UserError, did_you_mean
from dragoman.processor import instruction_sets

SETTING = "DRAGOMAN_KERNELS"
LIST_NAME = "kernels.json"
SOURCES = Path(__file__).parent / "native"
LIBRARIES = SOURCES / "libraries"
_OFF = ("0", "off", "none", "false", "no")
_AUTOMATIC = ("", "1", "on", "auto", "true", "yes")
# By benchmarks/kernel_variants.py.
_COST = "training takes up to 1.8 times as long, translating 2.6 times, with int8 weights 6 times"

_logger = logging.getLogger("dragoman")
_load_lock = threading.Lock()


@dataclass(frozen=True)
class KernelVariant:
    """One compiled library: an entry of kernels.json."""

    name: str
    file: str
    bytes: int
    sha256: str
    needs: tuple[str, ...]  # instruction sets, by their names in /proc/cpuinfo

    @property
    def path(self) -> Path:
        """The library."""
        return LIBRARIES / self.file

    def missing_sets(self) -> list[str]:
        """Return the instruction sets that this processor does not have."""
        return [name for name in self.needs if name not in instruction_sets()]


@dataclass(frozen=True)
class KernelChoice:
    """The kernels that this process uses, or None, and why."""

    variant: KernelVariant | None
    reason: str
    advice: str | None = None  # what to do if they are missing and nobody switched them off


def choose_kernels() -> KernelChoice:
    """Return the first variant of kernels.json that this processor runs, or what DRAGOMAN_KERNELS asks for."""
    setting = os.environ.get(SETTING, "").strip().lower()
    if setting in _OFF:
        return KernelChoice(None, f"{SETTING}={setting}")
    variants = built_variants()
    if setting not in _AUTOMATIC:
        return KernelChoice(_named_variant(setting, variants), f"{SETTING}={setting}")
    if not variants:
        advice = "Install a C compiler (gcc 12 or clang) and install Dragoman again"
        return KernelChoice(None, "none were compiled when Dragoman was installed", advice)
    best = next((variant for variant in variants if not variant.missing_sets()), None)
    if best is None:
        missing = ", ".join(variants[-1].missing_sets())
        return KernelChoice(None, f"this processor does not have {missing}", "Use another machine")
    return KernelChoice(best, "the fastest that this processor runs")


def _named_variant(setting: str, variants: list[KernelVariant]) -> KernelVariant:
    named = {variant.name: variant for variant in variants}
    if setting not in named:
        known = [*named, "off", "auto"]
        built = "" if named else " No kernels were compiled when Dragoman was installed."
        raise UserError(
            f"{SETTING}={setting}: expected one of {', '.join(known)}.{built}{did_you_mean(setting, known)}"
        )
    if missing := named[setting].missing_sets():
        raise UserError(
            f"{SETTING}={setting}: this processor does not have {', '.join(missing)}. Unset {SETTING} to use the "
            "kernels that it runs."
        )
    return named[setting]


@cache
def built_variants() -> list[KernelVariant]:
    """Return the variants that were compiled with the package, the fastest first; a UserError if they are stale."""
    listed = _read_list()
    if listed is None:
        return []
    if listed.get("sources") != source_digest():
        raise UserError(
            f"{LIBRARIES}: the compiled kernels do not belong to the C files in {SOURCES}. Run `make kernels`, or "
            f"install Dragoman again; {SETTING}=off does without them."
        )
    try:
        return [KernelVariant(**{**entry, "needs": tuple(entry["needs"])}) for entry in listed["variants"]]
    except (KeyError, TypeError):
        raise _damaged(LIBRARIES / LIST_NAME) from None


def describe_kernels() -> str:
    """Return the variant that runs, why, and its compiler, or why there is none; this loads the library."""
    try:
        library, choice = load_library(), choose_kernels()
    except UserError as error:
        return f"none: {error}"
    if library is None or choice.variant is None:
        return f"none: {choice.reason}"
    return f"{choice.variant.name}: {choice.reason}; compiled by {(_read_list() or {}).get('compiler')}"


def kernel_name() -> str:
    """Return the name of the variant that this process uses, or "none"."""
    return describe_kernels().partition(":")[0]


def _read_list() -> dict[str, Any] | None:
    path = LIBRARIES / LIST_NAME
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise _damaged(path) from None
    if not isinstance(listed, dict):
        raise _damaged(path)
    return listed


def source_digest() -> str:
    """Return a hash of the C files."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.glob("*.[ch]")):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def check_setting() -> None:
    """Raise a UserError if DRAGOMAN_KERNELS asks for something that there is not."""
    if os.environ.get(SETTING):
        choose_kernels()


def load_library() -> ctypes.CDLL | None:
    """Return the library for this processor, or None without one; then a warning is logged, once, that says why."""
    with _load_lock:
        return _load_chosen()


@cache
def _load_chosen() -> ctypes.CDLL | None:
    choice = choose_kernels()
    if choice.variant is None:
        if choice.advice:
            _logger.warning(
                f"Dragoman runs without its compiled kernels, since {choice.reason}: {_COST}. {choice.advice}; "
                f"{SETTING}=off hides this message."
            )
        return None
    path = choice.variant.path
    try:
        content = path.read_bytes()  # a damaged library would end the process without a message
        if (len(content), hashlib.sha256(content).hexdigest()) != (choice.variant.bytes, choice.variant.sha256):
            raise _damaged(path)
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise UserError(
            f"{path}: the compiled kernels cannot be loaded ({error}). Install Dragoman again, or set {SETTING}=off."
        ) from None


def _damaged(path: Path) -> UserError:
    return UserError(
        f"{path}: this file of the compiled kernels is damaged. Install Dragoman again, or set {SETTING}=off to do "
        "without them."
    )
