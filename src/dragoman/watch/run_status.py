"""The status of a training, read from the files of its run directory."""

import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dragoman.errors import UserError
from dragoman.presets import DATA_FILE_KEYS
from dragoman.run import Run
from dragoman.toml import parse_toml

_SYSTEM_LOCKS = Path("/proc/locks")
_QUIET_SECONDS = 120.0  # without a write, after which a training on another machine counts as stopped

TrainingStatus = Literal["missing", "preparing", "training", "finished", "stopped"]


@dataclass(frozen=True)
class RunStatus:
    """The status of a run, without its metrics."""

    status: TrainingStatus
    steps: int | None  # training.steps of the recipe
    reads_recordings: bool  # whether a source is the path of a recording
    facts: dict[str, str]
    checkpoints: list[int]  # steps, the oldest first


def run_status(folder: Path) -> RunStatus:
    """Return the status of the run in a folder."""
    run = Run(folder)
    recipe = _read_recipe_table(run)
    steps = _subtable(recipe, "training").get("steps")
    return RunStatus(
        training_status(run),
        steps if type(steps) is int else None,
        "audio" in recipe,
        _recipe_facts(recipe),
        _complete_checkpoints(run),
    )


def _complete_checkpoints(run: Run) -> list[int]:
    try:
        return run.complete_checkpoints()
    except (OSError, UserError):
        return []


def training_status(run: Run) -> TrainingStatus:
    """Return whether a training is in progress, and if not, how it ended."""
    if not run.folder.is_dir():
        return "missing"
    if is_locked(run):
        return "training" if _has_content(run.metrics_file) else "preparing"
    if run.card_file.exists():
        return "finished"
    return "stopped" if _has_content(run.metrics_file) else "missing"


def is_locked(run: Run) -> bool:
    """Return whether a process holds the lock of a run, without taking the lock, which would block a new training."""
    try:
        owner = json.loads(run.read_file(run.lock_file))
        process, host = int(owner["process"]), owner["host"]
    except (OSError, UserError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return _holds_lock(process) if host == socket.gethostname() else _was_changed_recently(run.metrics_file)


def _holds_lock(process: int) -> bool:
    """Return whether a process holds a file lock, or, on systems without /proc/locks, whether it exists."""
    try:
        return any(
            " FLOCK " in line and line.split()[4] == str(process) for line in _SYSTEM_LOCKS.read_text().splitlines()
        )
    except (OSError, IndexError):
        return _is_alive(process)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _was_changed_recently(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime < _QUIET_SECONDS
    except OSError:
        return False


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _read_recipe_table(run: Run) -> dict[str, Any]:
    """Read a recipe without validating it; empty if it cannot be read."""
    try:
        return parse_toml(run.read_file(run.recipe_file), str(run.recipe_file))
    except (OSError, UserError):
        return {}


def _subtable(recipe: dict[str, Any], name: str) -> dict[str, Any]:
    table = recipe.get(name)
    return table if isinstance(table, dict) else {}


def _recipe_facts(recipe: dict[str, Any]) -> dict[str, str]:
    """Return the settings that the page shows."""
    model, data, training = (_subtable(recipe, name) for name in ("model", "data", "training"))
    if not model:
        return {}
    layers = model.get("layers")
    is_one_stack = model.get("architecture") in ("decoder_only", "joined")
    stacks = layers if is_one_stack else f"{layers} + {model.get('decoder_layers') or layers}"
    files = [data[name] for name in DATA_FILE_KEYS if isinstance(data.get(name), str) and not name.startswith("valid_")]
    corpora = data.get("corpora")
    several = corpora if isinstance(corpora, list) else []
    for corpus in several:
        if isinstance(corpus, dict):
            files += [str(corpus[name]) for name in ("file", "source", "target") if name in corpus]
    heads = f", {model['heads']} heads" if "heads" in model else ""
    return {
        "Task": str(recipe.get("task", "translate")),
        "Model": f"{stacks} layers, width {model.get('width')}{heads}",
        "Recordings" if "audio" in recipe else "Text": " and ".join(files),
        "Batch": f"{training.get('batch_tokens')} tokens × {training.get('accumulate')}",
        "Schedule": f"{training.get('schedule')}, warm-up {training.get('warmup')}",
    }
