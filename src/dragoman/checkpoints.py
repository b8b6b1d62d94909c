"""Checkpoints: all that is needed to go on exactly, in a folder that is there whole or not at all.

A checkpoint is written into a temporary folder, each file synced, its manifest (sizes and SHA-256 sums) last, and then
renamed into place; the newest folder whose manifest holds true is the one to resume from. There is no pointer file that
could go stale. The order of the data and the dropout masks are functions of seed and step, so no generator is saved.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman.cache import fsync
from dragoman.errors import UserError
from dragoman.models.transducer import Transducer
from dragoman.models.weights import named_weights
from dragoman.run import (
    FORMAT_VERSION,
    apply_umask,
    copy_weights,
    read_tensors,
    to_json,
    write_atomically,
    write_tensors,
)

WEIGHTS_FILE, OPTIMIZER_FILE, PROGRESS_FILE, MANIFEST_FILE = (
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "manifest.json",
)
_ADAM_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class TrainingProgress:
    """How far a training has come."""

    step: int = 0
    validated_at: int = 0  # the last step that was validated
    loss: float | None = None  # the validation loss then
    best_step: int = 0
    best_loss: float | None = None
    stale: int = 0  # validations since the best one
    skipped: int = 0  # steps skipped because the loss was not finite, in a row up to now
    skipped_ever: int = 0
    seconds: float = 0.0  # spent training
    data: str = ""  # fingerprint of the training data
    origin: dict[str, str] = field(default_factory=dict)  # what the training began with, by name
    interim: bool = False  # saved only because the training was stopped here
    longest: int = 0  # source in the training data, in pieces

    def with_changes(self, **changes: Any) -> "TrainingProgress":
        """Return the progress with some changes."""
        return replace(self, **changes)


def save_hook(stage: str) -> None:
    """Do nothing: tests put a pause here, to end the program between any two stages of saving."""


def save_checkpoint(
    folder: Path, progress: TrainingProgress, model: Transducer, optimizer: torch.optim.Optimizer
) -> Path:
    """Write a checkpoint of this moment, whole or not at all; if it is there already, it stays."""
    place = folder / f"{progress.step:09d}"
    if place.exists() and find_damage(place) is None and read_progress(place) == progress:
        return place
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".tmp-"))
    try:
        _write_files(temporary, progress, model, optimizer)
        if place.exists():  # damaged, or its validation was interrupted: see above
            place.rename(backup_path(place))
            save_hook("set aside")
        temporary.rename(place)
        save_hook("renamed")
        fsync(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    found = find_damage(place)
    if found:
        raise OSError(f"what was written does not read back: {found}")
    _remove_checkpoint(backup_path(place))
    return place


def backup_path(path: Path) -> Path:
    """Return where a checkpoint waits while another takes its place."""
    return path.with_name(f".old-{path.name}")


def _write_files(folder: Path, progress: TrainingProgress, model: Transducer, optimizer: torch.optim.Optimizer) -> None:
    """Write and sync every file of a checkpoint, the manifest last."""
    save_hook("made")
    write_tensors(folder / WEIGHTS_FILE, named_weights(model), {"format": FORMAT_VERSION})
    save_hook(WEIGHTS_FILE)
    write_tensors(folder / OPTIMIZER_FILE, _optimizer_tensors(model, optimizer), {"format": FORMAT_VERSION})
    save_hook(OPTIMIZER_FILE)
    write_atomically(folder / PROGRESS_FILE, to_json(asdict(progress)))
    save_hook(PROGRESS_FILE)
    files = {name: file_digest(folder / name) for name in (WEIGHTS_FILE, OPTIMIZER_FILE, PROGRESS_FILE)}
    write_atomically(folder / MANIFEST_FILE, to_json({"format": FORMAT_VERSION, "step": progress.step, "files": files}))
    apply_umask(folder)
    fsync(folder)
    save_hook(MANIFEST_FILE)


def file_digest(path: Path) -> dict[str, Any]:
    """Return the size and the SHA-256 sum of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def find_damage(path: Path) -> str | None:
    """Say what is wrong with a checkpoint, or None if it is whole."""
    try:
        written = (path / MANIFEST_FILE).read_bytes()
        sealed = json.loads(written)
        if to_json(sealed) != written:
            return f"{MANIFEST_FILE} is damaged"
        if sealed["format"] != FORMAT_VERSION:
            return f"{MANIFEST_FILE} is of format {sealed['format']!r}, this version reads {FORMAT_VERSION!r}"
        if f"{sealed['step']:09d}" != path.name:
            return f"{MANIFEST_FILE} belongs to step {sealed['step']}"
        for name in (WEIGHTS_FILE, OPTIMIZER_FILE, PROGRESS_FILE):
            expected = sealed["files"][name]
            if not (path / name).is_file():
                return f"{name} is missing"
            found = (path / name).stat().st_size
            if found != expected["bytes"]:
                return f"{name} has {found} bytes instead of {expected['bytes']}"
            if file_digest(path / name) != expected:
                return f"{name} is not what was written (its SHA-256 sum differs)"
    except FileNotFoundError:
        return f"{MANIFEST_FILE} is missing"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError):
        return f"{MANIFEST_FILE} is damaged"
    return None


def checkpoint_dirs(folder: Path) -> list[Path]:
    """Return the folders that claim to be checkpoints, the newest first."""
    return sorted((place for place in folder.glob("[0-9]*") if place.name.isdigit()), reverse=True)


def intact_checkpoints(folder: Path) -> Iterator[Path]:
    """Yield the checkpoints that are whole, the newest first."""
    return (place for place in checkpoint_dirs(folder) if find_damage(place) is None)


def newest_checkpoint(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the newest whole checkpoint, and what is wrong with those passed over."""
    damaged: list[str] = []
    for place in checkpoint_dirs(folder):
        found = find_damage(place)
        if found is None:
            return place, damaged
        damaged.append(f"{place}: {found}")
    return None, damaged


def read_progress(path: Path) -> TrainingProgress:
    """Read how far the training had come."""
    try:
        return TrainingProgress(**json.loads((path / PROGRESS_FILE).read_text(encoding="utf-8")))
    except TypeError:
        raise UserError(f"{path / PROGRESS_FILE} was written by another version of Dragoman; train again.") from None


def load_checkpoint(path: Path, model: Transducer, optimizer: torch.optim.Optimizer) -> TrainingProgress:
    """Put a model and its optimiser back to where they were, and return how far they had come."""
    progress = read_progress(path)
    parameters = dict(model.named_parameters())
    copy_weights(read_tensors(path / WEIGHTS_FILE)[0], named_weights(model), path / WEIGHTS_FILE)
    held, _ = read_tensors(path / OPTIMIZER_FILE)
    empty = {f"{name}.{moment}": torch.empty_like(p) for name, p in parameters.items() for moment in _ADAM_MOMENTS}
    copy_weights({name: tensor for name, tensor in held.items() if name != "steps"}, empty, path / OPTIMIZER_FILE)
    for name, parameter in parameters.items():
        optimizer.state[parameter] = {
            "step": held["steps"].clone(),
            **{moment: empty[f"{name}.{moment}"] for moment in _ADAM_MOMENTS},
        }
    return progress


def _optimizer_tensors(model: Transducer, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return Adam's running means by the names of their parameters, and the number of updates behind them."""
    tensors: dict[str, Tensor] = {}
    steps = torch.zeros(())
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter, {})
        steps = state.get("step", steps)
        for moment in _ADAM_MOMENTS:
            tensors[f"{name}.{moment}"] = state.get(moment, torch.zeros_like(parameter))
    return {**tensors, "steps": steps}


def prune_checkpoints(folder: Path, keep: int, best: int) -> None:
    """Delete old checkpoints, but not the newest `keep` whole ones and not the `best` ones of lowest loss.

    One that was saved only because of a stop counts for nothing once there is a newer one: a training that was never
    stopped does not have it, and must end with the same model.
    """
    good = list(intact_checkpoints(folder))
    regular = scheduled_checkpoints(good)
    spared = {*good[:1], *regular[:keep], *best_checkpoints(regular, best)}
    for place in good:
        if place not in spared:
            _remove_checkpoint(place)


def _remove_checkpoint(path: Path) -> None:
    """Delete a checkpoint, if it is there, so that a half-deleted one is never taken for a damaged one."""
    doomed = path.with_name(f".tmp-{path.name}")
    with suppress(FileNotFoundError):
        path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def scheduled_checkpoints(checkpoints: list[Path]) -> list[Path]:
    """Return the checkpoints that an undisturbed training would have written too."""
    return [place for place in checkpoints if not read_progress(place).interim]


def best_checkpoints(checkpoints: list[Path], count: int) -> list[Path]:
    """Return those of lowest validation loss among the checkpoints that were validated."""
    known = [(progress.loss, place) for place in checkpoints if (progress := validated_progress(place)) is not None]
    return [place for _, place in sorted(known)[:count]]


def validated_progress(path: Path) -> TrainingProgress | None:
    """Return the progress of a checkpoint if its very step was validated."""
    progress = read_progress(path)
    return progress if progress.loss is not None and progress.validated_at == progress.step else None


def clean_up_interrupted_saves(folder: Path) -> None:
    """Put right what an interrupted save left behind. Call it under the run's lock only."""
    for waiting in folder.glob(".old-*"):
        place = waiting.with_name(waiting.name.removeprefix(".old-"))
        if find_damage(place) is None:
            _remove_checkpoint(waiting)
        else:
            _remove_checkpoint(place)
            waiting.rename(place)
    for litter in folder.glob(".tmp-*"):
        shutil.rmtree(litter, ignore_errors=True)


def checkpoint_bytes(model: Transducer) -> int:
    """Return the bytes that a checkpoint takes: the weights, and Adam's two means of each parameter."""
    return sum(tensor.nbytes for tensor in [*named_weights(model).values(), *2 * list(model.parameters())])
