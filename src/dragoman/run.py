"""The run directory: what lies where, written whole or not at all.

A model is a folder; copying it copies the model, and nothing in it is ever unpickled.
"""

import fcntl
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dragoman.cache import fsync
from dragoman.errors import UserError
from dragoman.models.weights import current_name
from dragoman.recipe import Recipe
from dragoman.text.tokenizer import Tokenizer
from dragoman.toml import read_toml

FORMAT_VERSION = "dragoman-1"
_RECIPE_SECTIONS = ("data", "tokenizer", "model", "training", "decoding")  # of every recipe that a training has written


class Run:
    """One run directory and the names of what lies in it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.recipe_file = self.folder / "recipe.toml"
        self.weights_file = self.folder / "model.safetensors"
        self.checkpoints_dir = self.folder / "checkpoints"
        self.metrics_file = self.folder / "metrics.jsonl"
        self.tensorboard_dir = self.folder / "events"
        self.curves_file = self.folder / "curves.png"
        self.card_file = self.folder / "README.md"
        self.skipped_file = self.folder / "skipped.jsonl"
        self.shortlist_file = self.folder / "shortlist.safetensors"
        self.head_reports_dir = self.folder / "heads"
        self.lock_file = self.folder / ".lock"

    def __str__(self) -> str:
        return str(self.folder)

    def __fspath__(self) -> str:
        return str(self.folder)

    @property
    def training_files(self) -> list[Path]:
        """Return all that a training writes, whether it is there or not, but for its lock."""
        files = [self.recipe_file, self.weights_file, self.metrics_file, self.curves_file, self.card_file]
        tokenizers = [*self.tokenizer_files(True), *self.tokenizer_files(False)]
        return [
            *files,
            self.skipped_file,
            self.shortlist_file,
            *tokenizers,
            self.checkpoints_dir,
            self.tensorboard_dir,
            self.head_reports_dir,
        ]

    @property
    def has_weights(self) -> bool:
        """Say whether there are weights here, of a model or in a checkpoint."""
        saved = (place for place in self.checkpoints_dir.glob("*") if not place.name.startswith(".tmp-"))
        return self.weights_file.exists() or any(saved)

    @property
    def has_started(self) -> bool:
        """Say whether a training has ever begun here: then its lock is here, or, in a copy, its recipe and results."""
        return self.lock_file.exists() or (self.recipe_file.exists() and self.has_weights)

    @property
    def exists(self) -> bool:
        """Say whether a run is here that it would be a pity to lose."""
        return self.has_started and self.has_weights

    def require_inside(self, path: Path) -> Path:
        """Return the path unless it is a link that leads out: a stranger's model must not read what is not its own."""
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise UserError(
                f"{path} is a link to {path.resolve()}, outside of the run directory; put the file itself there."
            )
        return path

    def tokenizer_files(self, joint: bool) -> list[Path]:
        """Return the files of the source's and the target's tokenizer: one for both, or one each."""
        names = ["tokenizer.json"] if joint else ["tokenizer.source.json", "tokenizer.target.json"]
        return [self.folder / name for name in names]

    def read_recipe(self) -> Recipe:
        """Read the recipe this run was trained with."""
        if not self.folder.is_dir():
            raise UserError(f"{self}: no such run directory. `dragoman train` makes one.")
        if not self.recipe_file.exists():
            raise UserError(f"{self} is not a run directory: it has no recipe.toml. `dragoman train` makes one.")
        table = read_toml(self.require_inside(self.recipe_file))
        missing = [f"[{part}]" for part in _RECIPE_SECTIONS if part not in table]
        if missing and self.has_weights:
            raise UserError(
                f"{self.recipe_file} is damaged: it has no {' and no '.join(missing)}, but a training writes all. "
                "Restore the file."
            )
        return Recipe.from_table(table, origin=str(self.recipe_file), is_complete=True)

    def read_tokenizers(self, joint: bool) -> tuple[Tokenizer, Tokenizer]:
        """Read the source's and the target's tokenizer."""
        loaded = [Tokenizer.load(self.require_inside(path)) for path in self.tokenizer_files(joint)]
        return loaded[0], loaded[-1]

    def write_tokenizers(self, source: Tokenizer, target: Tokenizer, joint: bool) -> None:
        """Write the source's and the target's tokenizer."""
        for path, tokenizer in zip(self.tokenizer_files(joint), [source, target], strict=False):
            write_atomically(path, tokenizer.to_json().encode())

    def erase(self) -> None:
        """Remove what a training leaves, and nothing else that may lie in the folder."""
        for path in self.training_files:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def remove_temporary_files(self) -> None:
        """Remove what an interrupted write left behind. Call it under the lock only."""
        for path in self.training_files:
            for litter in self.folder.glob(f".{path.name}.*"):
                litter.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process alone. The system frees the lock of a process that died."""
        make_directory(self.folder)
        with self.lock_file.open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self} is being trained already, by {_lock_owner(self.lock_file)}.") from None
            file.truncate(0)
            started_at = datetime.now(UTC).isoformat(timespec="seconds")
            json.dump({"process": os.getpid(), "host": socket.gethostname(), "started_at": started_at}, file)
            file.flush()
            yield


def _lock_owner(lock_file: Path) -> str:
    """Say who holds a lock."""
    try:
        owner = json.loads(lock_file.read_text(encoding="utf-8"))
        return f"process {owner['process']} on {owner['host']} since {owner['started_at']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def make_directory(folder: Path) -> None:
    """Create a folder and those above it, or say why that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: this directory cannot be made ({error.strerror}); choose another --run.") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at every moment either the old content or the new one is there."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        apply_umask(Path(temporary))
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    fsync(path.parent)


def apply_umask(path: Path) -> None:
    """Give a file or folder the permissions that new ones usually have here: temporary ones are private."""
    withheld = os.umask(0)
    os.umask(withheld)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~withheld)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors with some facts about them; readable for whoever may read new files here."""
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path, dict(metadata))
    except SafetensorError as error:  # a full disk, as a rule
        raise OSError(f"{path} could not be written: {error}") from None
    apply_umask(path)
    fsync(path)


def write_weights(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write the weights to use, whole or not at all; the same weights and facts make the same bytes."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        one = json.dumps({"format": FORMAT_VERSION, **metadata})  # safetensors writes several facts in any order
        write_tensors(temporary, tensors, {"dragoman": one})
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync(path.parent)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and the facts beside them, or say what is wrong with the file."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; the training has not written its weights yet, or it was removed.")
    if not _is_utf8(path):
        raise UserError(f"{path}: the safetensors library opens only what has a name in UTF-8; rename the directory.")
    try:
        with safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            own = json.loads(facts.pop("dragoman", "{}"))
            facts |= {str(name): str(fact) for name, fact in own.items()}
            tensors = {current_name(name): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged or not a safetensors file ({error}); restore it or train again.") from None
    if facts.get("format", FORMAT_VERSION) != FORMAT_VERSION:
        raise UserError(f"{path} is of format {facts['format']!r}; this version of Dragoman reads {FORMAT_VERSION!r}.")
    return tensors, facts


def _is_utf8(path: Path) -> bool:
    """Say whether the bytes of a whole path are UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def copy_weights(tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor], where: Path) -> None:
    """Copy tensors from a file into a model's weights, after checking that they belong there."""
    check_weights_match(tensors, weights, where)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(tensors[name])


def check_weights_match(tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor], where: Path) -> None:
    """Refuse tensors from a file that differ from a model's weights in name or shape, or are not finite."""
    missing, foreign = sorted(weights.keys() - tensors.keys()), sorted(tensors.keys() - weights.keys())
    if missing or foreign:
        raise UserError(
            f"{where} does not fit the model of recipe.toml: {len(missing)} tensors are "
            f"missing{_first_in_parentheses(missing)}, "
            f"{len(foreign)} are unknown{_first_in_parentheses(foreign)}. Restore the file, or train again."
        )
    for name, weight in weights.items():
        if tensors[name].shape != weight.shape:
            raise UserError(
                f"{where}: {name} has the shape {list(tensors[name].shape)}, but the model of recipe.toml needs "
                f"{list(weight.shape)}. Restore the file or the recipe."
            )
        if tensors[name].dtype != weight.dtype:
            raise UserError(
                f"{where}: {name} is of type {tensors[name].dtype}, but the model needs {weight.dtype}. "
                "Restore the file."
            )
        if not torch.isfinite(tensors[name]).all():
            raise UserError(f"{where}: {name} holds numbers that are not finite; restore the file, or train again.")


def _first_in_parentheses(names: list[str]) -> str:
    """Return the first of some names in brackets, or nothing."""
    return f" ({names[0]})" if names else ""


def to_json(content: Mapping[str, Any]) -> bytes:
    """Write a dictionary as a JSON line."""
    return (json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a metrics file, except lines that are not whole (a kill can cut off the last one)."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("step"), int) and isinstance(entry.get("event"), str):
            # Early versions called the score of a validation "bleu", whatever the task.
            yield entry | {"score": entry["bleu"], "measure": "BLEU"} if "bleu" in entry else entry
