"""Dragoman: train, evaluate, use and look inside Transformers for sequence transduction."""

from importlib import import_module

TYPE_CHECKING = False  # `typing` would be imported before `__main__` has removed the current directory from the path
if TYPE_CHECKING:
    from typing import Any

    from dragoman.errors import UserError as UserError
    from dragoman.recipe import Recipe as Recipe
    from dragoman.tasks.sequence_model import load as load
    from dragoman.training.trainer import plan as plan
    from dragoman.training.trainer import train as train

__version__ = "0.2.0"
__all__ = ["Recipe", "UserError", "__version__", "load", "plan", "train"]

_MODULE_OF_NAME = {
    "load": "tasks.sequence_model",
    "plan": "training.trainer",
    "train": "training.trainer",
    "Recipe": "recipe",
    "UserError": "errors",
}


def __getattr__(name: str) -> "Any":
    """Import a public name when it is first asked for: `dragoman --help` need not wait for torch."""
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
    return getattr(import_module(f"dragoman.{_MODULE_OF_NAME[name]}"), name)
