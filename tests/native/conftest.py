"""The kernels of every variant that this processor runs."""

import ctypes
from collections.abc import Iterator

import pytest

from dragoman import kernels
from dragoman.native import functions, stack

RUNNABLE = [variant for variant in kernels.built_variants() if not variant.missing_sets()]


@pytest.fixture(params=RUNNABLE, ids=lambda variant: variant.name)
def each_variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Compute with one variant after another instead of the one that was chosen for this processor."""
    monkeypatch.setattr(functions, "load_library", lambda: ctypes.CDLL(str(request.param.path)))
    for cached in (functions.native_library, stack.stack_library):
        cached.cache_clear()
    yield request.param.name
    for cached in (functions.native_library, stack.stack_library):
        cached.cache_clear()
