"""Checks before a training writes into a run directory: no run is lost by accident, and none is resumed inexactly."""

import tomllib
from collections.abc import Mapping

from dragoman.checkpoints import TrainingProgress
from dragoman.errors import UserError
from dragoman.recipe import Recipe, recipe_differences
from dragoman.run import Run

_OPEN_ENDED_SCHEDULES = ("noam", "constant")  # whose learning rates do not depend on the number of steps
_CHANGEABLE_SETTINGS = {"run", "training.steps", "training.minutes", "training.patience", "training.keep"}


def check_run_directory(run: Run, recipe: Recipe, resume: bool, overwrite: bool) -> None:
    """Raise unless a training may write into the directory: it is new, or `resume` or `overwrite` allow it."""
    if run.folder.exists() and not run.folder.is_dir():
        raise UserError(f"{run} is a file; a run needs a directory of its own.")
    if resume and overwrite:
        raise UserError("--resume continues a run, --overwrite replaces it; give only one of them.")
    _check_no_foreign_files(run)
    if overwrite or not run.exists:
        return
    if not resume:
        raise UserError(
            f"{run} already contains a run. Continue it with --resume, replace it with --overwrite, or choose another "
            "--run."
        )
    if not any(run.checkpoints_dir.glob("*")):
        raise UserError(
            f"{run} has a model but no checkpoint to continue from; --overwrite trains it from the beginning."
        )
    if run.recipe_file.exists():
        _check_same_recipe(run, run.read_recipe(), recipe)


def _check_no_foreign_files(run: Run) -> None:
    foreign = [path.name for path in run.training_files if path.exists()]
    if foreign and not run.has_started:
        raise UserError(
            f"{run} contains {' and '.join(foreign)}, but no run; a training would overwrite files that it did not "
            "write. Move them elsewhere, or choose another --run."
        )


def _check_same_recipe(run: Run, before: Recipe, now: Recipe) -> None:
    is_open_ended = before.training.schedule in _OPEN_ENDED_SCHEDULES
    changeable = _CHANGEABLE_SETTINGS if is_open_ended else _CHANGEABLE_SETTINGS - {"training.steps"}
    _raise_if_changed(run, [line for line in recipe_differences(before, now) if line.split(":")[0] not in changeable])


def check_same_origin(run: Run, progress: TrainingProgress, recipe: Recipe, origin: Mapping[str, str]) -> None:
    """Raise if the recipe, the text or the vocabulary has changed since the checkpoint's training started."""
    if "recipe" in progress.origin:
        recorded = Recipe.from_table(tomllib.loads(progress.origin["recipe"]), origin=str(run), is_complete=True)
        _check_same_recipe(run, recorded, recipe)
    changed = [name for name in origin if name != "recipe" and progress.origin.get(name, origin[name]) != origin[name]]
    _raise_if_changed(run, [f"{name}: differs from the one that the training started with" for name in changed])


def _raise_if_changed(run: Run, changed: list[str]) -> None:
    if changed:
        raise UserError(
            f"{run} cannot be resumed exactly, because this has changed since it started:\n  "
            + "\n  ".join(changed)
            + "\nUndo the change, or train into another directory with --run."
        )
