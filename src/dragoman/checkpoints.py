"""Checkpoints: everything that is needed to resume a training exactly, in a directory that is complete or not there.

A checkpoint is written into a temporary directory, every file synced, its manifest (sizes and SHA-256 digests) last,
and then renamed; the newest directory whose manifest is right is the one to resume from. There is no pointer file that
could become stale. The order of the data and the dropout masks are functions of seed and step; no generator is saved.

The tensors of a checkpoint are in named parts, one safetensors file each: "model" has the weights, "optimizer" the
state of the optimiser by parameter name. A training may add parts of its own, such as a moving average of the weights.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.manifest import file_digest, find_file_damage, replace_model_files
from dragoman.model_files import copy_weights, read_tensors, read_tokenizers, write_tensors, write_weights
from dragoman.models.transducer import Transducer
from dragoman.models.weights import named_weights
from dragoman.run import FORMAT_VERSION, MANIFEST_FILE, Run
from dragoman.storage import (
    apply_umask,
    fsync,
    list_directory,
    make_subdirectory,
    remove_directory,
    to_json,
    write_atomically,
)
from dragoman.tensor_header import StoredTensor, check_tensors_match

WEIGHTS_FILE, OPTIMIZER_FILE, PROGRESS_FILE = "model.safetensors", "optimizer.safetensors", "state.json"
_REQUIRED_FILES = (WEIGHTS_FILE, OPTIMIZER_FILE, PROGRESS_FILE)
_FILE_NAME = re.compile(r"[a-z_]+\.safetensors|state\.json")
_MAX_NUMBER = 10**15  # of a count, a duration or a loss
_SHARED_STEP = "steps"  # in 0.1.0: one step count of Adam for all parameters


@dataclass(frozen=True)
class TrainingProgress:
    """How far a training has come. The fields are the keys of state.json."""

    step: int = 0
    validated_at: int = 0  # the last step that was validated
    loss: float | None = None  # its validation loss
    best_step: int = 0
    best_loss: float | None = None
    best_score: float | None = None  # by the task's metric, of any validation
    stale: int = 0  # validations since the last one with a better loss or score than all before
    skipped: int = 0  # consecutive steps up to now that were skipped: loss or gradient norm was not finite
    skipped_ever: int = 0
    seconds: float = 0.0  # spent training
    elapsed: float = 0.0  # seconds since the start of the command, of all commands if it was resumed
    replanned_at: int = 0  # the step at which an earlier last step was planned, because the machine was too slow
    last_step: int = 0  # that last step; 0: the recipe's
    data: str = ""  # fingerprint of the training data
    origin: dict[str, str] = field(default_factory=dict)  # recipe and fingerprints that the training started with
    interim: bool = False  # saved only because the training was stopped here
    longest: int = 0  # source of the training data, in tokens
    paragraph_share: float = 0.0  # of the sources of the training data, those with several sentences


def save_hook(stage: str) -> None:
    """Do nothing; tests replace this to end the program between two stages of saving."""


def save_checkpoint(
    folder: Path,
    progress: TrainingProgress,
    model: Transducer,
    optimizer: torch.optim.Optimizer,
    parts: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> Path:
    """Write a checkpoint of this step atomically and return its directory; an equal one that exists is kept.

    `parts` are further named tensors, such as {"average": {...}}; `read_part` reads them back.
    """
    path = folder / f"{progress.step:09d}"
    if path.exists() and find_damage(path) is None and read_progress(path) == progress:
        return path
    make_subdirectory(folder)
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".tmp-"))
    tensors = {"model": named_weights(model), "optimizer": _optimizer_tensors(model, optimizer), **(parts or {})}
    try:
        _write_files(temporary, progress, tensors)
        if path.exists():  # damaged, or saved before its validation was complete
            path.rename(backup_path(path))
            save_hook("set aside")
        temporary.rename(path)
        save_hook("renamed")
        fsync(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    damage = find_damage(path)
    if damage:
        raise OSError(f"the checkpoint is damaged after writing: {damage}")
    _remove_checkpoint(backup_path(path))
    return path


def backup_path(path: Path) -> Path:
    """Return the path of a checkpoint while another one replaces it."""
    return path.with_name(f".old-{path.name}")


def _write_files(folder: Path, progress: TrainingProgress, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
    save_hook("made")
    for name, tensors in parts.items():
        write_tensors(folder / f"{name}.safetensors", tensors, {"format": FORMAT_VERSION})
        save_hook(f"{name}.safetensors")
    write_atomically(folder / PROGRESS_FILE, to_json(asdict(progress)))
    save_hook(PROGRESS_FILE)
    names = [*(f"{name}.safetensors" for name in parts), PROGRESS_FILE]
    files = {name: file_digest(folder / name) for name in names}
    write_atomically(folder / MANIFEST_FILE, to_json({"format": FORMAT_VERSION, "step": progress.step, "files": files}))
    apply_umask(folder)
    fsync(folder)
    save_hook(MANIFEST_FILE)


def find_damage(path: Path) -> str | None:
    """Return what is wrong with a checkpoint, or None if it is intact."""
    run = Run(path.parent.parent)
    try:
        content = run.read_file(path / MANIFEST_FILE)
        manifest = json.loads(content)
        if to_json(manifest) != content:
            return f"{MANIFEST_FILE} is damaged"
        if manifest["format"] != FORMAT_VERSION:
            return f"{MANIFEST_FILE} has format {manifest['format']!r}, this version reads {FORMAT_VERSION!r}"
        if f"{manifest['step']:09d}" != path.name:
            return f"{MANIFEST_FILE} belongs to step {manifest['step']}"
        for name in dict.fromkeys([*_REQUIRED_FILES, *manifest["files"]]):
            if not _FILE_NAME.fullmatch(name):
                return f"{MANIFEST_FILE} lists {name!r}, which is not a file of a checkpoint"
            damage = find_file_damage(run, path / name, manifest["files"][name])
            if damage:
                return damage
    except FileNotFoundError:
        return f"{MANIFEST_FILE} is missing"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    except UserError as error:
        return str(error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{MANIFEST_FILE} is damaged"
    return None


def checkpoint_dirs(folder: Path) -> list[Path]:
    """Return all directories that are named like checkpoints, intact or not, the newest first."""
    return Run(folder.parent).checkpoint_dirs()[::-1]


def intact_checkpoints(folder: Path) -> Iterator[Path]:
    """Yield the intact checkpoints, the newest first."""
    return (path for path in checkpoint_dirs(folder) if find_damage(path) is None)


def newest_checkpoint(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the newest intact checkpoint, and what is wrong with newer ones."""
    damaged: list[str] = []
    for path in checkpoint_dirs(folder):
        damage = find_damage(path)
        if damage is None:
            return path, damaged
        damaged.append(f"{path}: {damage}")
    return None, damaged


def read_progress(path: Path) -> TrainingProgress:
    """Read the progress of a checkpoint."""
    file = path / PROGRESS_FILE
    try:
        progress = TrainingProgress(**json.loads(Run(path.parent.parent).read_file(file)))
    except TypeError:
        raise UserError(f"{file} was written by another version of Dragoman; train again.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not valid JSON ({error}); restore it or train again.") from None
    for entry in fields(progress):
        value = getattr(progress, entry.name)
        if not _ENTRY_CHECKS[entry.type](value):
            raise UserError(f"{file}: {entry.name} is {str(value)[:40]!r}, which no training writes. Restore the file.")
    return progress


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MAX_NUMBER


_ENTRY_CHECKS: dict[Any, Callable[[Any], bool]] = {  # by the type of a field of TrainingProgress
    int: lambda value: type(value) is int and 0 <= value <= _MAX_NUMBER,
    float: _is_number,
    float | None: lambda value: value is None or (type(value) in (int, float) and abs(value) <= _MAX_NUMBER),
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    dict[str, str]: lambda value: isinstance(value, dict) and all(isinstance(text, str) for text in value.values()),
}


def load_checkpoint(path: Path, model: Transducer, optimizer: torch.optim.Optimizer) -> TrainingProgress:
    """Restore a model and its optimiser, and return the progress."""
    progress = read_progress(path)
    copy_weights(read_tensors(path / WEIGHTS_FILE)[0], named_weights(model), path / WEIGHTS_FILE)
    _restore_optimizer(read_part(path, "optimizer"), model, optimizer, path / OPTIMIZER_FILE)
    return progress


def read_part(path: Path, name: str) -> dict[str, Tensor]:
    """Read the tensors of one part of a checkpoint."""
    return read_tensors(path / f"{name}.safetensors")[0]


def _optimizer_tensors(model: Transducer, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    # "{parameter}.{key}" for every entry of the state of any optimiser; numbers become scalar tensors.
    return {
        f"{name}.{key}": torch.as_tensor(value)
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if value is not None  # SGD without momentum
    }


def _restore_optimizer(
    tensors: dict[str, Tensor], model: Transducer, optimizer: torch.optim.Optimizer, path: Path
) -> None:
    shared_step = tensors.pop(_SHARED_STEP, None)
    states: dict[str, dict[str, Tensor]] = {name: {} for name, _ in model.named_parameters()}
    for entry, tensor in tensors.items():
        name, _, key = entry.rpartition(".")
        if name not in states:
            raise UserError(f"{path}: {entry} does not belong to a parameter of the model. Restore the file.")
        states[name][key] = tensor
    missing = _missing_entry(states, model)
    if missing:
        raise UserError(f"{path}: {missing} is missing. Restore the file.")
    for name, parameter in model.named_parameters():
        for key, tensor in states[name].items():
            sizes = zip(tensor.shape, parameter.shape, strict=False)
            if tensor.dim() == parameter.dim() and any(size not in (1, expected) for size, expected in sizes):
                raise UserError(
                    f"{path}: {name}.{key} has the shape {list(tensor.shape)}, but the parameter has "
                    f"{list(parameter.shape)}. Restore the file or the recipe."
                )
            if not torch.isfinite(tensor).all():
                raise UserError(f"{path}: {name}.{key} contains non-finite values. Restore the file.")
        if shared_step is not None:
            states[name]["step"] = shared_step.clone()
        if isinstance(optimizer, torch.optim.Adam) and states[name]:
            _check_adam_state(optimizer, states[name], name, parameter, path)
    # load_state_dict knows the device of each entry; it numbers the parameters in the order of the groups.
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    ordered = [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
    content = optimizer.state_dict()
    content["state"] = {index: states[name] for index, name in enumerate(ordered) if states[name]}
    optimizer.load_state_dict(content)


def _check_adam_state(
    optimizer: torch.optim.Adam, state: dict[str, Tensor], name: str, parameter: Tensor, path: Path
) -> None:
    # The fused Adam computes with whatever it is given, also beyond the end of a tensor that is too small.
    moment = StoredTensor(tuple(parameter.shape), torch.float32)
    expected = {"step": StoredTensor((), torch.float32), "exp_avg": moment, "exp_avg_sq": moment}
    if optimizer.defaults["amsgrad"]:
        expected["max_exp_avg_sq"] = moment
    for key in expected.keys() | state.keys():
        found = state.get(key)
        if key not in expected or found is None or StoredTensor(tuple(found.shape), found.dtype) != expected[key]:
            raise UserError(f"{path}: {name}.{key} is not what Adam keeps of this parameter. Restore the file.")


def _missing_entry(states: dict[str, dict[str, Tensor]], model: Transducer) -> str | None:
    # Parameters of one dimensionality have the same entries, except those that were never updated.
    keys: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters():
        keys.setdefault(parameter.dim(), set()).update(states[name])
    for name, parameter in model.named_parameters():
        if states[name] and keys[parameter.dim()] - states[name].keys():
            return f"{name}.{min(keys[parameter.dim()] - states[name].keys())}"
    return None


def prune_checkpoints(folder: Path, keep: int, best: int) -> None:
    """Delete old checkpoints, except the newest `keep` intact ones and the `best` ones of lowest loss.

    One that was saved only because of a stop is deleted once there is a newer one: a training that was never stopped
    does not have it, and both must end with the same model.
    """
    intact = list(intact_checkpoints(folder))
    scheduled = _scheduled_checkpoints(intact)
    retained = {*intact[:1], *scheduled[:keep], *_best_checkpoints(scheduled, best)}
    for path in intact:
        if path not in retained:
            _remove_checkpoint(path)


def _remove_checkpoint(path: Path) -> None:
    remove_directory(path, path.with_name(f".tmp-{path.name}"))


def _scheduled_checkpoints(paths: list[Path]) -> list[Path]:
    """Return the checkpoints that an uninterrupted training would have written too."""
    return [path for path in paths if not read_progress(path).interim]


def _best_checkpoints(paths: list[Path], count: int) -> list[Path]:
    """Return the checkpoints of lowest validation loss among those that were validated."""
    known = [(progress.loss, path) for path in paths if (progress := validated_progress(path)) is not None]
    return [path for _, path in sorted(known)[:count]]


def validated_progress(path: Path) -> TrainingProgress | None:
    """Return the progress of a checkpoint if its own step was validated."""
    progress = read_progress(path)
    return progress if progress.loss is not None and progress.validated_at == progress.step else None


def clean_up_interrupted_saves(folder: Path) -> None:
    """Finish or undo saves that were interrupted. The caller must hold the lock of the run."""
    for backup in (folder / name for name in list_directory(folder) if re.fullmatch(r"\.old-[0-9]+", name)):
        path = backup.with_name(backup.name.removeprefix(".old-"))
        if find_damage(path) is None:
            _remove_checkpoint(backup)
        else:
            _remove_checkpoint(path)
            backup.rename(path)
    for name in list_directory(folder):
        if name.startswith(".tmp-"):
            shutil.rmtree(folder / name, ignore_errors=True)


def checkpoint_bytes(model: Transducer) -> int:
    """Return the size of a checkpoint: the weights, and Adam's two moments of every parameter."""
    return sum(tensor.nbytes for tensor in [*named_weights(model).values(), *2 * list(model.parameters())])


# Averaging (section 6.1): the mean of the last checkpoints translates better than any one of them


def select_checkpoints(folder: Path, count: int, average_of: str) -> list[Path]:
    """Return the newest `count` intact checkpoints ("last"), or those of lowest validation loss ("best")."""
    intact = list(intact_checkpoints(folder))
    intact = _scheduled_checkpoints(intact) or intact
    selected = intact[:count] if average_of == "last" else _best_checkpoints(intact, count)
    if not selected:
        raise UserError(f"{folder} has no intact checkpoint to average; create one with `dragoman train`.")
    return selected


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of some checkpoints, summed in double precision."""
    sums: dict[str, Tensor] = {}
    for path in paths:
        tensors = read_tensors(path / WEIGHTS_FILE)[0]
        expected = {
            name: StoredTensor(tuple(tensor.shape), torch.float32) for name, tensor in (sums or tensors).items()
        }
        check_tensors_match(tensors, expected, path / WEIGHTS_FILE)
        for name, tensor in tensors.items():
            sums[name] = sums.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in sums.items()}


def candidate_averages(folder: Path, count: int, average_of: str) -> list[list[Path]]:
    """Return checkpoints whose means may become the model: `count` and half as many, the last one and the best one."""
    numbers = [(count, average_of), (-(-count // 2), average_of), (1, "last"), (1, "best")]
    candidates = [select_checkpoints(folder, number, kind) for number, kind in numbers]
    return list({tuple(paths): paths for paths in candidates}.values())


def write_averaged_weights(run: Run, paths: list[Path]) -> list[int]:
    """Write the mean of some checkpoints as the weights of the run; return the steps of the checkpoints."""
    source, target = read_tokenizers(run, run.read_recipe().tokenizer.joint)
    steps, progress = [int(path.name) for path in paths], read_progress(paths[0])
    metadata = {
        "steps": " ".join(map(str, steps)),
        "source_tokenizer": source.fingerprint,
        "target_tokenizer": target.fingerprint,
        "source_vocabulary": str(len(source)),
        "target_vocabulary": str(len(target)),
        "longest_source": str(progress.longest),
        "paragraph_share": f"{progress.paragraph_share:.4f}",
    }
    weights = average_checkpoints(paths)
    with replace_model_files(run, run.weights_file):
        write_weights(run.weights_file, weights, metadata)
    return steps
