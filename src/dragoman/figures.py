"""Matplotlib with its own defaults, whatever a `matplotlibrc` says: the only module that imports it.

Matplotlib reads `matplotlibrc` of the current directory when it is imported, and keeps its font cache in the user's
home directory, or in a new temporary directory each time if it cannot write there.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from dragoman.cache import default_cache_dir

_SETTINGS_FILE = "matplotlibrc"
_logger = logging.getLogger("matplotlib")


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide what matplotlib logs about settings that do not matter here, and about its caches."""
    level = _logger.level
    _logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _logger.setLevel(level)


def _import_matplotlib() -> None:
    """Import matplotlib without the settings of the current directory, which are the first that it looks for."""
    needs_directory = not _has_own_directory()
    if needs_directory:
        os.environ["MPLCONFIGDIR"] = str(default_cache_dir() / "matplotlib")
    exists = os.path.exists
    os.path.exists = lambda path: path != _SETTINGS_FILE and exists(path)
    try:
        with _without_warnings():
            matplotlib = import_module("matplotlib")
            matplotlib.get_cachedir()  # it remembers the directories
            matplotlib.get_configdir()
    finally:
        os.path.exists = exists
        if needs_directory:
            del os.environ["MPLCONFIGDIR"]


def _has_own_directory() -> bool:
    """Return whether matplotlib has directories that it can write to."""
    if os.environ.get("MPLCONFIGDIR"):
        return True
    try:
        parents = [
            Path(os.environ.get(variable) or Path.home() / name)
            for variable, name in (("XDG_CONFIG_HOME", ".config"), ("XDG_CACHE_HOME", ".cache"))
        ]
        for parent in parents:
            (parent / "matplotlib").mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # there is no home directory
        return False
    return all(os.access(parent / "matplotlib", os.W_OK) for parent in parents)


if "matplotlib" not in sys.modules:
    _import_matplotlib()

from matplotlib import colormaps as colormaps  # noqa: E402
from matplotlib import rc_context, rcdefaults  # noqa: E402
from matplotlib.axes import Axes as Axes  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.colors import PowerNorm as PowerNorm  # noqa: E402
from matplotlib.colors import to_rgba as to_rgba  # noqa: E402
from matplotlib.figure import Figure as Figure  # noqa: E402
from matplotlib.image import AxesImage as AxesImage  # noqa: E402
from matplotlib.lines import Line2D as Line2D  # noqa: E402
from matplotlib.patches import Patch as Patch  # noqa: E402


@contextmanager
def default_style() -> Iterator[None]:
    """Draw and save with the default settings of matplotlib; also a decorator of functions that do so."""
    with _without_warnings(), rc_context():
        rcdefaults()
        yield


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """Return an empty figure of this size in inches, for files only."""
    figure = Figure(figsize=(width, height), **options)
    FigureCanvasAgg(figure)
    return figure


def font_names() -> list[str]:
    """Return the names of the installed fonts."""
    from matplotlib.font_manager import get_font_names

    return get_font_names()
