"""Where a training stands, as far as the files of its run directory tell."""

import json
import os
import socket
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dragoman.presets import DATA_FILE_KEYS

RECIPE_FILE, METRICS_FILE, LOCK_FILE, CARD_FILE, CHECKPOINTS_FOLDER = (
    "recipe.toml",
    "metrics.jsonl",
    ".lock",
    "README.md",
    "checkpoints",
)
MANIFEST_FILE = "manifest.json"  # the last file of a checkpoint to be written
_SYSTEM_LOCKS = Path("/proc/locks")
_QUIET_SECONDS = 120.0  # after which a training on another machine counts as stopped

TrainingStatus = Literal["missing", "preparing", "training", "finished", "stopped"]


@dataclass(frozen=True)
class RunStatus:
    """What a run directory says, apart from its numbers."""

    status: TrainingStatus
    steps: int | None  # that the recipe plans
    facts: dict[str, str]
    checkpoints: list[int]  # steps, the oldest first


def run_status(folder: Path) -> RunStatus:
    """Look at a run directory."""
    recipe = _read_recipe_table(folder / RECIPE_FILE)
    steps = _subtable(recipe, "training").get("steps")
    return RunStatus(
        training_status(folder),
        steps if type(steps) is int else None,
        _recipe_facts(recipe),
        _saved_steps(folder / CHECKPOINTS_FOLDER),
    )


def training_status(folder: Path) -> TrainingStatus:
    """Say whether a training goes on, and if not, how it ended."""
    if not folder.is_dir():
        return "missing"
    if is_held(folder):
        return "training" if _has_content(folder / METRICS_FILE) else "preparing"
    if (folder / CARD_FILE).exists():
        return "finished"
    return "stopped" if _has_content(folder / METRICS_FILE) else "missing"


def is_held(folder: Path) -> bool:
    """Say whether a process holds the run, without taking the lock: a training that begins just then must get it."""
    try:
        owner = json.loads((folder / LOCK_FILE).read_text(encoding="utf-8"))
        process, host = int(owner["process"]), owner["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return _holds_lock(process) if host == socket.gethostname() else _was_changed_recently(folder / METRICS_FILE)


def _holds_lock(process: int) -> bool:
    """Say whether a process is there and, where the system tells, holds a lock: numbers of processes come again."""
    try:
        return any(
            " FLOCK " in line and line.split()[4] == str(process) for line in _SYSTEM_LOCKS.read_text().splitlines()
        )
    except (OSError, IndexError):
        return _is_alive(process)


def _is_alive(process: int) -> bool:
    """Say whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _was_changed_recently(path: Path) -> bool:
    """Say whether a file was written to lately."""
    try:
        return time.time() - path.stat().st_mtime < _QUIET_SECONDS
    except OSError:
        return False


def _has_content(path: Path) -> bool:
    """Say whether a file is there and not empty."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _read_recipe_table(path: Path) -> dict[str, Any]:
    """Read a recipe as it stands, without insisting on anything."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _subtable(recipe: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of a recipe, empty if it is not there."""
    part = recipe.get(name)
    return part if isinstance(part, dict) else {}


def _recipe_facts(recipe: dict[str, Any]) -> dict[str, str]:
    """Return what one wants to know of a training besides its numbers."""
    model, data, training = (_subtable(recipe, name) for name in ("model", "data", "training"))
    if not model:
        return {}
    layers = model.get("layers")
    is_one_stack = model.get("architecture") in ("decoder_only", "joined")
    stacks = layers if is_one_stack else f"{layers} + {model.get('decoder_layers') or layers}"
    files = [data[name] for name in DATA_FILE_KEYS if isinstance(data.get(name), str) and not name.startswith("valid_")]
    corpora = data.get("corpora")
    several = corpora if isinstance(corpora, list) else []
    texts = [*files, *(str(corpus.get("file")) for corpus in several if isinstance(corpus, dict))]
    return {
        "Task": str(recipe.get("task", "translate")),
        "Model": f"{stacks} layers, width {model.get('width')}, {model.get('heads')} heads",
        "Text": " and ".join(texts),
        "Batch": f"{training.get('batch_tokens')} tokens × {training.get('accumulate')}",
        "Schedule": f"{training.get('schedule')}, warm-up {training.get('warmup')}",
    }


def _saved_steps(folder: Path) -> list[int]:
    """Return the steps of the checkpoints that are there whole, the oldest first."""
    return sorted(
        int(place.parent.name) for place in folder.glob(f"[0-9]*/{MANIFEST_FILE}") if place.parent.name.isdigit()
    )
