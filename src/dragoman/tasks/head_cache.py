"""Stored head reports: `heads/` in the run directory, one file for the model and one per checkpoint.

A report contains the SHA-256 of its weights and is ignored when they have changed. The report of a deleted checkpoint
is kept, since it is part of the history.
"""

import json
import os
from functools import lru_cache
from pathlib import Path
from re import fullmatch
from typing import Any

from dragoman.checkpoints import WEIGHTS_FILE, checkpoint_dirs, newest_checkpoint, validated_progress
from dragoman.errors import UserError
from dragoman.manifest import file_digest
from dragoman.run import MANIFEST_FILE, Run
from dragoman.storage import list_directory, make_subdirectory, write_atomically

REPORT_FORMAT = 1
_MODEL_NAME = "model"  # the name of the report of the weights to use

HeadReport = dict[str, Any]


def identify_weights(run: Run, checkpoint: int | None = None) -> tuple[str, str]:
    """Return the name and the SHA-256 of the weights that `load` reads: the model's, or a checkpoint's."""
    if checkpoint is None and run.weights_file.exists():
        with run.open_file(run.weights_file) as file:
            stat = os.fstat(file.fileno())
        return _MODEL_NAME, _file_sha256(run.weights_file, stat.st_mtime_ns, stat.st_size)
    path = (
        newest_checkpoint(run.checkpoints_dir)[0] if checkpoint is None else run.checkpoints_dir / f"{checkpoint:09d}"
    )
    sha256 = _checkpoint_sha256(path) if path else None
    if path is None or sha256 is None:
        raise UserError(f"{run} has no {f'checkpoint at step {checkpoint}' if checkpoint else 'weights yet'}.")
    return path.name, sha256


@lru_cache(maxsize=16)
def _file_sha256(path: Path, _changed_at: int, _size: int) -> str:
    """Return the SHA-256 of a file, cached until the file changes."""
    return str(file_digest(path)["sha256"])


def _checkpoint_sha256(path: Path) -> str | None:
    """Return the SHA-256 of a checkpoint's weights from its manifest, or None without a manifest."""
    try:
        return str(json.loads(Run(path.parent.parent).read_file(path / MANIFEST_FILE))["files"][WEIGHTS_FILE]["sha256"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_head_report(run: Run, name: str, report: HeadReport) -> None:
    """Store a report in the run directory."""
    make_subdirectory(run.head_reports_dir)
    write_atomically(
        run.head_reports_dir / f"{name}.json", (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode()
    )


def _read_head_report(path: Path) -> HeadReport | None:
    """Read a stored report; None if there is none of this format."""
    try:
        report = json.loads(Run(path.parent.parent).read_file(path))
        is_valid = (
            report["format"] == REPORT_FORMAT
            and isinstance(report["heads"], list)
            and isinstance(report["weights"], str)
        )
    except (OSError, UserError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return report if is_valid else None


def cached_head_report(run: Run, checkpoint: int | None = None) -> HeadReport | None:
    """Return the stored report of the model or of a checkpoint, if it is about the present weights."""
    try:
        name, weights = identify_weights(run, checkpoint)
    except UserError:
        return None
    report = _read_head_report(run.head_reports_dir / f"{name}.json")
    return report if report and report["weights"] == weights else None


def cached_head_history(run: Run) -> list[HeadReport]:
    """Return step, loss and heads of every measured checkpoint, the oldest first."""
    history = []
    for name in list_directory(run.head_reports_dir):
        path = run.head_reports_dir / name
        if not fullmatch(r"[0-9]+\.json", name):
            continue
        report, sha256 = _read_head_report(path), _checkpoint_sha256(run.checkpoints_dir / path.stem)
        if report and sha256 in (None, report["weights"]):
            history.append({"step": report["step"], "loss": report["loss"], "heads": report["heads"]})
    return history


def saved_checkpoints(run: Run) -> list[dict[str, Any]]:
    """Return step, validation loss and whether there is a report of every checkpoint, the oldest first."""
    checkpoints = []
    for path in reversed(checkpoint_dirs(run.checkpoints_dir)):
        if _checkpoint_sha256(path) is not None:
            progress = validated_progress(path)
            report = _read_head_report(run.head_reports_dir / f"{path.name}.json")
            measured = report is not None and report["weights"] == _checkpoint_sha256(path)
            loss = progress.loss if progress else None
            checkpoints.append({"step": int(path.name), "loss": loss, "measured": measured})
    return checkpoints
