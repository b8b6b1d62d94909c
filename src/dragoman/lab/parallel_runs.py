"""Several small trainings at once, each in a process with one core: together they are faster than one after the other.

Each process is `dragoman train` itself, so what it leaves is a run like any other, and a signal makes it save and stop.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dragoman.errors import TrainingDiverged, TrainingStopped, UserError
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.storage import make_directory
from dragoman.training.events import StopRequest

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 60.0  # for a training that was asked to stop to save


@dataclass(frozen=True)
class _TrainingProcess:
    """A training in another process."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path


def train_in_parallel(recipes: Mapping[str, Recipe], stop: StopRequest, processes: int) -> Iterator[tuple[str, int]]:
    """Train all, so many at a time; yield the name and the exit code of each that has ended well or diverged."""
    waiting, running = list(recipes), list[_TrainingProcess]()
    stop.deferred = True
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                running.append(_start_training(waiting[0], recipes[waiting.pop(0)]))
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                yield each.name, _check_exit_code(each)
            if stop.requested:
                raise TrainingStopped("Stopped; all is saved.")
            time.sleep(_POLL_SECONDS)
    finally:
        stop.deferred = False
        _stop_trainings(running)


def _start_training(name: str, recipe: Recipe) -> _TrainingProcess:
    """Start a training, or let one go on that was begun."""
    folder = Path(recipe.run)
    make_directory(folder.parent)
    file, log = folder.with_suffix(".toml"), folder.with_suffix(".log")
    file.write_text(recipe.to_toml(), encoding="utf-8")
    how = "--resume" if can_resume(recipe) else "--overwrite"
    command = [sys.executable, "-m", "dragoman", "train", str(file), how]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
    return _TrainingProcess(name, process, log)


def can_resume(recipe: Recipe) -> bool:
    """Say whether a training with this recipe has left a checkpoint to go on from."""
    place = Run(recipe.run)
    try:
        return any(place.checkpoints_dir.glob("*")) and place.read_recipe() == recipe
    except UserError:
        return False


def _check_exit_code(ended: _TrainingProcess) -> int:
    """Return the exit code of a training that has ended; one that failed says why."""
    code = ended.process.returncode
    if code not in (0, TrainingDiverged.exit_code):
        last = ended.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        said = last[0].removeprefix("dragoman: ") if last else f"it ended with {code} and said nothing"
        raise UserError(f"The training of {ended.name} failed: {said} (all it said is in {ended.log})")
    return code


def _stop_trainings(running: list[_TrainingProcess]) -> None:
    """Have trainings save and stop."""
    for each in running:
        each.process.send_signal(signal.SIGTERM)
    for each in running:
        try:
            each.process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.process.wait()
