"""Where head reports are kept: `heads/` in the run directory, one file for the model and one for each checkpoint.

A report names the SHA-256 of the weights that it was made from, and is passed over when they are others by now. That of
a checkpoint that was deleted since stays: it still tells how the heads came to be.
"""

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.run import Run, make_folder, write_whole
from dragoman.training.checkpoints import MANIFEST, WEIGHTS, newest, own_loss, places

FORMAT = 1
MODEL = "model"  # the name of the report of the weights to use

Report = dict[str, Any]


def chosen_weights(run: Run, checkpoint: int | None = None) -> tuple[str, str]:
    """Return the name and the fingerprint of the weights that `load` takes: the model's, or a checkpoint's."""
    if checkpoint is None and run.weights_file.exists():
        there = run.inside(run.weights_file).stat()
        return MODEL, digest(run.weights_file, there.st_mtime_ns, there.st_size)
    place = newest(run.checkpoints)[0] if checkpoint is None else run.checkpoints / f"{checkpoint:09d}"
    sealed = seal_of(place) if place else None
    if place is None or sealed is None:
        raise UserError(f"{run} has no {f'checkpoint of step {checkpoint}' if checkpoint else 'weights yet'}.")
    return place.name, sealed


@lru_cache(maxsize=16)
def digest(path: Path, _changed_at: int, _size: int) -> str:
    """Return the SHA-256 of a file, worked out once for each time it was written."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal_of(place: Path) -> str | None:
    """Return the SHA-256 of a checkpoint's weights as its manifest has it, or None if there is no manifest."""
    try:
        return str(json.loads((place / MANIFEST).read_bytes())["files"][WEIGHTS]["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_report(run: Run, name: str, report: Report) -> None:
    """Keep a report."""
    make_folder(run.heads)
    write_whole(run.heads / f"{name}.json", (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())


def read_report(path: Path) -> Report | None:
    """Read a kept report; None if there is none, or none that this version wrote."""
    try:
        report = json.loads(path.read_bytes())
        known = report["format"] == FORMAT and isinstance(report["heads"], list) and isinstance(report["weights"], str)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return report if known else None


def cached_report(run: Run, checkpoint: int | None = None) -> Report | None:
    """Return the kept report of the run's model or of a checkpoint, if it is about the weights that are there now."""
    try:
        name, weights = chosen_weights(run, checkpoint)
    except UserError:
        return None
    report = read_report(run.heads / f"{name}.json")
    return report if report and report["weights"] == weights else None


def cached_history(run: Run) -> list[Report]:
    """Return what is known of the heads over the training: a step, its loss and its heads each, the oldest first."""
    found = []
    for path in sorted(run.heads.glob("[0-9]*.json")):
        report, seal = read_report(path), seal_of(run.checkpoints / path.stem)
        if report and seal in (None, report["weights"]):
            found.append({"step": report["step"], "loss": report["loss"], "heads": report["heads"]})
    return found


def saved_checkpoints(run: Run) -> list[dict[str, Any]]:
    """Return the checkpoints that can be looked at, the oldest first: step, own validation loss, whether measured."""
    found = []
    for place in reversed(places(run.checkpoints)):
        if seal_of(place) is not None:
            progress = own_loss(place)
            report = read_report(run.heads / f"{place.name}.json")
            measured = report is not None and report["weights"] == seal_of(place)
            loss = progress.loss if progress else None
            found.append({"step": int(place.name), "loss": loss, "measured": measured})
    return found
