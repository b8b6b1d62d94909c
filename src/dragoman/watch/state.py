"""Where a training stands, as far as the files of its run directory tell."""

import json
import os
import socket
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dragoman.presets import FILES

RECIPE, METRICS, LOCK, CARD, CHECKPOINTS = "recipe.toml", "metrics.jsonl", ".lock", "README.md", "checkpoints"
MANIFEST = "manifest.json"  # the last file of a checkpoint to be written
LOCKS = Path("/proc/locks")
QUIET_SECONDS = 120.0  # after which a training on another machine counts as stopped

Situation = Literal["missing", "preparing", "training", "finished", "stopped"]


@dataclass(frozen=True)
class State:
    """What a run directory says, apart from its numbers."""

    situation: Situation
    steps: int | None  # that the recipe plans
    facts: dict[str, str]
    checkpoints: list[int]  # steps, the oldest first


def state(folder: Path) -> State:
    """Look at a run directory."""
    recipe = read_recipe(folder / RECIPE)
    steps = table(recipe, "training").get("steps")
    return State(situation(folder), steps if type(steps) is int else None, facts(recipe), saved(folder / CHECKPOINTS))


def situation(folder: Path) -> Situation:
    """Say whether a training goes on, and if not, how it ended."""
    if not folder.is_dir():
        return "missing"
    if is_held(folder):
        return "training" if has_content(folder / METRICS) else "preparing"
    if (folder / CARD).exists():
        return "finished"
    return "stopped" if has_content(folder / METRICS) else "missing"


def is_held(folder: Path) -> bool:
    """Say whether a process holds the run, without taking the lock: a training that begins just then must get it."""
    try:
        owner = json.loads((folder / LOCK).read_text(encoding="utf-8"))
        process, host = int(owner["process"]), owner["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return holds_lock(process) if host == socket.gethostname() else was_changed(folder / METRICS)


def holds_lock(process: int) -> bool:
    """Say whether a process is there and, where the system tells, holds a lock: numbers of processes come again."""
    try:
        return any(" FLOCK " in line and line.split()[4] == str(process) for line in LOCKS.read_text().splitlines())
    except (OSError, IndexError):
        return is_alive(process)


def is_alive(process: int) -> bool:
    """Say whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def was_changed(path: Path) -> bool:
    """Say whether a file was written to lately."""
    try:
        return time.time() - path.stat().st_mtime < QUIET_SECONDS
    except OSError:
        return False


def has_content(path: Path) -> bool:
    """Say whether a file is there and not empty."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def read_recipe(path: Path) -> dict[str, Any]:
    """Read a recipe as it stands, without insisting on anything."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def table(recipe: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of a recipe, empty if it is not there."""
    part = recipe.get(name)
    return part if isinstance(part, dict) else {}


def facts(recipe: dict[str, Any]) -> dict[str, str]:
    """Return what one wants to know of a training besides its numbers."""
    model, data, training = (table(recipe, name) for name in ("model", "data", "training"))
    if not model:
        return {}
    layers = model.get("layers")
    stacks = layers if model.get("architecture") == "joined" else f"{layers} + {model.get('decoder_layers') or layers}"
    named = [data[name] for name in FILES if data.get(name) and not name.startswith("valid_")]
    texts = [str(file) for some in named for file in (some if isinstance(some, list) else [some])]
    return {
        "Task": str(recipe.get("task", "translate")),
        "Model": f"{stacks} layers, width {model.get('width')}, {model.get('heads')} heads",
        "Text": " and ".join(texts),
        "Batch": f"{training.get('batch_tokens')} tokens × {training.get('accumulate')}",
        "Schedule": f"{training.get('schedule')}, warm-up {training.get('warmup')}",
    }


def saved(folder: Path) -> list[int]:
    """Return the steps of the checkpoints that are there whole, the oldest first."""
    return sorted(int(place.parent.name) for place in folder.glob(f"[0-9]*/{MANIFEST}") if place.parent.name.isdigit())
