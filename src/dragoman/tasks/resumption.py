"""What must be true before a training touches a run directory: nothing is lost unasked, nothing goes on inexactly."""

import tomllib
from collections.abc import Mapping

from dragoman.checkpoints import TrainingProgress
from dragoman.errors import UserError
from dragoman.recipe import Recipe, recipe_differences
from dragoman.run import Run

_OPEN_ENDED_SCHEDULES = ("noam", "constant")  # schedules whose rates do not depend on the number of steps
# between a run and its resumption
_CHANGEABLE_SETTINGS = ("run", "training.steps", "training.minutes", "training.patience", "training.keep")


def check_run_directory(run: Run, recipe: Recipe, resume: bool, overwrite: bool) -> None:
    """Never train over a run, or over a folder that is something else, unless asked to."""
    if run.folder.exists() and not run.folder.is_dir():
        raise UserError(f"{run} is a file; a run needs a directory of its own.")
    if resume and overwrite:
        raise UserError("--resume goes on with a run, --overwrite replaces it; choose one of them.")
    _check_no_foreign_files(run)
    if overwrite or not run.exists:
        return
    if not resume:
        raise UserError(
            f"{run} holds a run already. Go on with it by --resume, replace it by --overwrite, or choose another --run."
        )
    if not any(run.checkpoints_dir.glob("*")):
        raise UserError(f"{run} has a model but no checkpoint to go on from; --overwrite trains it from the beginning.")
    if run.recipe_file.exists():
        _check_same_recipe(run, run.read_recipe(), recipe)


def _check_no_foreign_files(run: Run) -> None:
    """Object to files that a training would replace in a folder where none has ever begun: they are somebody's own."""
    foreign = [path.name for path in run.training_files if path.exists()]
    if foreign and not run.has_started:
        raise UserError(
            f"{run} holds {' and '.join(foreign)}, but no run; a training would replace what is not its own. "
            "Move it elsewhere, or choose another --run."
        )


def _check_same_recipe(run: Run, before: Recipe, now: Recipe) -> None:
    """Object to settings that have changed since the run began."""
    may_change = (
        set(_CHANGEABLE_SETTINGS)
        if before.training.schedule in _OPEN_ENDED_SCHEDULES
        else set(_CHANGEABLE_SETTINGS) - {"training.steps"}
    )
    _raise_if_changed(run, [line for line in recipe_differences(before, now) if line.split(":")[0] not in may_change])


def check_same_origin(run: Run, progress: TrainingProgress, recipe: Recipe, origin: Mapping[str, str]) -> None:
    """Object to whatever has changed since the checkpoint's training began, also in the run directory itself."""
    if "recipe" in progress.origin:
        _check_same_recipe(run, Recipe.from_table(tomllib.loads(progress.origin["recipe"]), origin=str(run)), recipe)
    others = [name for name in origin if name != "recipe" and progress.origin.get(name, origin[name]) != origin[name]]
    _raise_if_changed(run, [f"{name}: is not what it was when the training began" for name in others])


def _raise_if_changed(run: Run, changed: list[str]) -> None:
    """Say what has changed, if anything has."""
    if changed:
        raise UserError(
            f"{run} cannot go on exactly, because this has changed since it began:\n  "
            + "\n  ".join(changed)
            + "\nUndo the change, or train into another directory with --run."
        )
