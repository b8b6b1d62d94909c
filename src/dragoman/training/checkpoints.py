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

from dragoman.cache import flush_to_disk
from dragoman.errors import UserError
from dragoman.model.transducer import Network
from dragoman.model.weights import weights
from dragoman.run import FORMAT, allow_as_usual, fit, read_tensors, to_json, write_tensors, write_whole

WEIGHTS, OPTIMIZER, PROGRESS, MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"
MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Progress:
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

    def after(self, **changes: Any) -> "Progress":
        """Return the progress with some changes."""
        return replace(self, **changes)


def between(stage: str) -> None:
    """Do nothing: tests put a pause here, to end the program between any two stages of saving."""


def save(folder: Path, progress: Progress, model: Network, optimizer: torch.optim.Optimizer) -> Path:
    """Write a checkpoint of this moment, whole or not at all; if it is there already, it stays."""
    place = folder / f"{progress.step:09d}"
    if place.exists() and fault(place) is None and read_progress(place) == progress:
        return place
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".tmp-"))
    try:
        fill(temporary, progress, model, optimizer)
        if place.exists():  # damaged, or its validation was interrupted: see above
            place.rename(set_aside(place))
            between("set aside")
        temporary.rename(place)
        between("renamed")
        flush_to_disk(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    found = fault(place)
    if found:
        raise OSError(f"what was written does not read back: {found}")
    discard(set_aside(place))
    return place


def set_aside(place: Path) -> Path:
    """Return where a checkpoint waits while another takes its place."""
    return place.with_name(f".old-{place.name}")


def fill(folder: Path, progress: Progress, model: Network, optimizer: torch.optim.Optimizer) -> None:
    """Write and sync every file of a checkpoint, the manifest last."""
    between("made")
    write_tensors(folder / WEIGHTS, weights(model), {"format": FORMAT})
    between(WEIGHTS)
    write_tensors(folder / OPTIMIZER, moments(model, optimizer), {"format": FORMAT})
    between(OPTIMIZER)
    write_whole(folder / PROGRESS, to_json(asdict(progress)))
    between(PROGRESS)
    files = {name: seal(folder / name) for name in (WEIGHTS, OPTIMIZER, PROGRESS)}
    write_whole(folder / MANIFEST, to_json({"format": FORMAT, "step": progress.step, "files": files}))
    allow_as_usual(folder)
    flush_to_disk(folder)
    between(MANIFEST)


def seal(path: Path) -> dict[str, Any]:
    """Return the size and the SHA-256 sum of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def fault(place: Path) -> str | None:
    """Say what is wrong with a checkpoint, or None if it is whole."""
    try:
        written = (place / MANIFEST).read_bytes()
        sealed = json.loads(written)
        if to_json(sealed) != written:
            return f"{MANIFEST} is damaged"
        if sealed["format"] != FORMAT:
            return f"{MANIFEST} is of format {sealed['format']!r}, this version reads {FORMAT!r}"
        if f"{sealed['step']:09d}" != place.name:
            return f"{MANIFEST} belongs to step {sealed['step']}"
        for name in (WEIGHTS, OPTIMIZER, PROGRESS):
            expected = sealed["files"][name]
            if not (place / name).is_file():
                return f"{name} is missing"
            found = (place / name).stat().st_size
            if found != expected["bytes"]:
                return f"{name} has {found} bytes instead of {expected['bytes']}"
            if seal(place / name) != expected:
                return f"{name} is not what was written (its SHA-256 sum differs)"
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError):
        return f"{MANIFEST} is damaged"
    return None


def places(folder: Path) -> list[Path]:
    """Return the folders that claim to be checkpoints, the newest first."""
    return sorted((place for place in folder.glob("[0-9]*") if place.name.isdigit()), reverse=True)


def whole(folder: Path) -> Iterator[Path]:
    """Yield the checkpoints that are whole, the newest first."""
    return (place for place in places(folder) if fault(place) is None)


def newest(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the newest whole checkpoint, and what is wrong with those passed over."""
    damaged: list[str] = []
    for place in places(folder):
        found = fault(place)
        if found is None:
            return place, damaged
        damaged.append(f"{place}: {found}")
    return None, damaged


def read_progress(place: Path) -> Progress:
    """Read how far the training had come."""
    try:
        return Progress(**json.loads((place / PROGRESS).read_text(encoding="utf-8")))
    except TypeError:
        raise UserError(f"{place / PROGRESS} was written by another version of Dragoman; train again.") from None


def restore(place: Path, model: Network, optimizer: torch.optim.Optimizer) -> Progress:
    """Put a model and its optimiser back to where they were, and return how far they had come."""
    progress = read_progress(place)
    parameters = dict(model.named_parameters())
    fit(read_tensors(place / WEIGHTS)[0], weights(model), place / WEIGHTS)
    held, _ = read_tensors(place / OPTIMIZER)
    empty = {f"{name}.{moment}": torch.empty_like(p) for name, p in parameters.items() for moment in MOMENTS}
    fit({name: tensor for name, tensor in held.items() if name != "steps"}, empty, place / OPTIMIZER)
    for name, parameter in parameters.items():
        optimizer.state[parameter] = {
            "step": held["steps"].clone(),
            **{moment: empty[f"{name}.{moment}"] for moment in MOMENTS},
        }
    return progress


def moments(model: Network, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return Adam's running means by the names of their parameters, and the number of updates behind them."""
    tensors: dict[str, Tensor] = {}
    steps = torch.zeros(())
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter, {})
        steps = state.get("step", steps)
        for moment in MOMENTS:
            tensors[f"{name}.{moment}"] = state.get(moment, torch.zeros_like(parameter))
    return {**tensors, "steps": steps}


def prune(folder: Path, keep: int, best: int) -> None:
    """Delete old checkpoints, but not the newest `keep` whole ones and not the `best` ones of lowest loss.

    One that was saved only because of a stop counts for nothing once there is a newer one: a training that was never
    stopped does not have it, and must end with the same model.
    """
    good = list(whole(folder))
    regular = milestones(good)
    spared = {*good[:1], *regular[:keep], *lowest_loss(regular, best)}
    for place in good:
        if place not in spared:
            discard(place)


def discard(place: Path) -> None:
    """Delete a checkpoint, if it is there, so that a half-deleted one is never taken for a damaged one."""
    doomed = place.with_name(f".tmp-{place.name}")
    with suppress(FileNotFoundError):
        place.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def milestones(checkpoints: list[Path]) -> list[Path]:
    """Return the checkpoints that an undisturbed training would have written too."""
    return [place for place in checkpoints if not read_progress(place).interim]


def lowest_loss(checkpoints: list[Path], count: int) -> list[Path]:
    """Return those of lowest validation loss among the checkpoints that were validated."""
    known = [(progress.loss, place) for place in checkpoints if (progress := own_loss(place)) is not None]
    return [place for _, place in sorted(known)[:count]]


def own_loss(place: Path) -> Progress | None:
    """Return the progress of a checkpoint if its very step was validated."""
    progress = read_progress(place)
    return progress if progress.loss is not None and progress.validated_at == progress.step else None


def sweep(folder: Path) -> None:
    """Put right what an interrupted save left behind. Call it under the run's lock only."""
    for waiting in folder.glob(".old-*"):
        place = waiting.with_name(waiting.name.removeprefix(".old-"))
        if fault(place) is None:
            discard(waiting)
        else:
            discard(place)
            waiting.rename(place)
    for litter in folder.glob(".tmp-*"):
        shutil.rmtree(litter, ignore_errors=True)


def size(model: Network) -> int:
    """Return the bytes that a checkpoint takes: the weights, and Adam's two means of each parameter."""
    return sum(tensor.nbytes for tensor in [*weights(model).values(), *2 * list(model.parameters())])
