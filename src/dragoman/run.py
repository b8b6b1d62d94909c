"""The run directory: which file is where, who is training in it, and the files that need no torch to be read.

A model is a directory; copying it copies the model, and nothing in it is ever unpickled. `checkpoints` and
`model_files` read and write what holds tensors.
"""

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import Any

from dragoman.errors import UserError, did_you_mean_path
from dragoman.recipe import Recipe
from dragoman.storage import (
    DIRECTORY,
    FILE,
    file_kind,
    list_directory,
    make_directory,
    open_for_appending,
    open_regular,
)
from dragoman.toml import MAX_BYTES, parse_toml

FORMAT_VERSION = "dragoman-1"
MANIFEST_FILE = "manifest.json"  # of a model and of a checkpoint, the file that is written last
_RECIPE_SECTIONS = ("data", "tokenizer", "model", "training", "decoding")  # of every recipe that a training has written
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MAX_LINE_BYTES = _MIB  # of metrics.jsonl and skipped.jsonl
_WALKED_LEVELS = 3  # checkpoints, a checkpoint, its files


@dataclass(frozen=True)
class _RunFile:
    """A file of a run directory, or several of one kind."""

    path: str  # below the run directory; `*` stands for part of a name
    writer: str  # the command that writes it
    max_bytes: int  # a larger file is not opened
    is_model: bool = False  # part of the model, and listed in its manifest

    @property
    def top(self) -> str:
        """The name in the run directory: of the file, or of the directory that it is in."""
        return self.path.split("/")[0]

    def matches(self, path: Path) -> bool:
        """Return whether this is about a path below the run directory."""
        return len(path.parts) == len(self.path.split("/")) and path.match(self.path)


RUN_FILES = (
    _RunFile("recipe.toml", "train", MAX_BYTES, is_model=True),
    _RunFile("tokenizer.json", "train", 96 * _MIB, is_model=True),
    _RunFile("tokenizer.source.json", "train", 96 * _MIB, is_model=True),
    _RunFile("tokenizer.target.json", "train", 96 * _MIB, is_model=True),
    _RunFile("model.safetensors", "train, average", _MEMORY_BYTES, is_model=True),
    _RunFile("shortlist.safetensors", "shortlist", _MEMORY_BYTES, is_model=True),
    _RunFile(MANIFEST_FILE, "train, average, shortlist", 64 * _KIB),
    _RunFile(f"checkpoints/*/{MANIFEST_FILE}", "train", 64 * _KIB),
    _RunFile("checkpoints/*/state.json", "train", _MIB),
    _RunFile("checkpoints/*/*.safetensors", "train", _MEMORY_BYTES),
    _RunFile("metrics.jsonl", "train", _GIB),
    _RunFile("skipped.jsonl", "train", _GIB),
    _RunFile("events/*", "train", _GIB),
    _RunFile("curves.png", "train", 64 * _MIB),
    _RunFile("README.md", "train", _MIB),
    _RunFile("heads/*.json", "heads", 64 * _MIB),
    _RunFile("corpus/*", "quickstart", _GIB),
    _RunFile("attention.html", "quickstart", 64 * _MIB),
    _RunFile("example.wav", "quickstart", 64 * _MIB),
    _RunFile("example.png", "quickstart", 64 * _MIB),
    _RunFile(".lock", "train, average", 4 * _KIB),
)


class Run:
    """A run directory and the paths in it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.recipe_file = self.folder / "recipe.toml"
        self.weights_file = self.folder / "model.safetensors"
        self.manifest_file = self.folder / MANIFEST_FILE
        self.checkpoints_dir = self.folder / "checkpoints"
        self.metrics_file = self.folder / "metrics.jsonl"
        self.tensorboard_dir = self.folder / "events"
        self.curves_file = self.folder / "curves.png"
        self.card_file = self.folder / "README.md"
        self.skipped_file = self.folder / "skipped.jsonl"
        self.shortlist_file = self.folder / "shortlist.safetensors"
        self.head_reports_dir = self.folder / "heads"
        self.lock_file = self.folder / ".lock"
        self._locked_directory: int | None = None  # a descriptor, while this process holds the lock

    def __str__(self) -> str:
        return str(self.folder)

    def __fspath__(self) -> str:
        return str(self.folder)

    @property
    def training_files(self) -> list[Path]:
        """All files and directories that belong to a training, whether they exist or not, except its lock."""
        others = ("corpus", "attention.html", self.lock_file.name)
        return [self.folder / name for name in dict.fromkeys(file.top for file in RUN_FILES) if name not in others]

    @property
    def has_weights(self) -> bool:
        """Whether there are weights, of a model or in a checkpoint."""
        saved = (name for name in list_directory(self.checkpoints_dir) if not name.startswith(".tmp-"))
        return self.weights_file.exists() or any(saved)

    @property
    def has_started(self) -> bool:
        """Whether a training has ever started here: its lock exists, or, in a copy, its recipe and weights."""
        return self.lock_file.exists() or (self.recipe_file.exists() and self.has_weights)

    @property
    def exists(self) -> bool:
        """Whether there is a run with weights, which must not be lost."""
        return self.has_started and self.has_weights

    def open_file(self, path: Path) -> BufferedReader:
        """Open one of the run's files for reading; raise UserError if it is not a regular file or too large."""
        name = path.relative_to(self.folder)
        known = next(file for file in RUN_FILES if file.matches(name))
        return open_regular(path, inside=self.folder, max_bytes=known.max_bytes)

    def read_file(self, path: Path) -> bytes:
        """Return the content of one of the run's files; see `open_file`."""
        with self.open_file(path) as file:
            return file.read()

    def check_files(self) -> None:
        """Raise UserError if any of the run's files is a link, FIFO, device or directory instead of a regular file.

        Other files in the directory are not looked at, because no command opens them.
        """
        irregular = list(self._irregular_files())
        if irregular:
            raise UserError(
                f"{self}: {', '.join(irregular)}. A run directory has regular files only, without links; replace "
                "what is named with files, or remove it."
            )

    def _irregular_files(self) -> Iterator[str]:
        for name, expected in {file.top: FILE if file.top == file.path else DIRECTORY for file in RUN_FILES}.items():
            found = file_kind(self.folder / name)
            if found == expected == DIRECTORY:
                yield from self._irregular_below(self.folder / name, _WALKED_LEVELS)
            elif found not in (None, expected):
                yield f"{name} is {found}"

    def _irregular_below(self, folder: Path, levels: int) -> Iterator[str]:
        for name in list_directory(folder):
            found = file_kind(folder / name)
            if found == DIRECTORY and levels > 1:
                yield from self._irregular_below(folder / name, levels - 1)
            elif found not in (None, FILE, DIRECTORY):
                yield f"{(folder / name).relative_to(self.folder)} is {found}"

    def tokenizer_files(self, joint: bool) -> list[Path]:
        """Return the files of the source and the target tokenizer; with `joint` there is one for both."""
        names = ["tokenizer.json"] if joint else ["tokenizer.source.json", "tokenizer.target.json"]
        return [self.folder / name for name in names]

    def complete_checkpoints(self) -> list[int]:
        """Return the steps of the checkpoints that were written completely, the oldest first."""
        return [int(path.name) for path in self.checkpoint_dirs() if file_kind(path / MANIFEST_FILE) == FILE]

    def checkpoint_dirs(self) -> list[Path]:
        """Return all directories that are named like checkpoints, intact or not, the oldest first."""
        names = (name for name in list_directory(self.checkpoints_dir) if name.isascii() and name.isdigit())
        return [self.checkpoints_dir / name for name in sorted(names, key=int)]

    def read_recipe(self) -> Recipe:
        """Read the recipe that this run was trained with."""
        if not self.folder.is_dir():
            hint = did_you_mean_path(self.folder) or " `dragoman train` creates one."
            raise UserError(f"{self}: no such run directory.{hint}")
        self.check_files()
        if not self.recipe_file.exists():
            raise UserError(f"{self} is not a run directory: it has no recipe.toml. `dragoman train` creates one.")
        table = parse_toml(self.read_file(self.recipe_file), str(self.recipe_file))
        missing = [f"[{section}]" for section in _RECIPE_SECTIONS if section not in table]
        if missing and self.has_weights:
            raise UserError(
                f"{self.recipe_file} is damaged: it has no {' or '.join(missing)} section. Restore the file."
            )
        return Recipe.from_table(table, origin=str(self.recipe_file), is_complete=True)

    def erase(self) -> None:
        """Remove everything that a training writes, and no other file in the directory."""
        for path in self.training_files:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def remove_temporary_files(self) -> None:
        """Remove what interrupted writes left behind. The caller must hold the lock."""
        for path in self.training_files:
            for temporary in self.folder.glob(f".{path.name}.*"):
                temporary.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for this process. The system releases the lock of a process that ends."""
        make_directory(self.folder)
        self.check_files()
        with open_for_appending(self.lock_file) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self} is already being trained by {self._lock_owner()}.") from None
            file.truncate(0)
            started_at = datetime.now(UTC).isoformat(timespec="seconds")
            owner = {"process": os.getpid(), "host": socket.gethostname(), "started_at": started_at}
            file.write(json.dumps(owner).encode())
            file.flush()
            self._locked_directory = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                yield
            finally:
                os.close(self._locked_directory)
                self._locked_directory = None

    def require_in_place(self) -> None:
        """Raise UserError if the directory was moved or deleted since this process locked it."""
        if self._locked_directory is None:
            return
        with suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(self.folder.stat(), os.fstat(self._locked_directory)):
                return
        raise UserError(
            f"{self} was moved or deleted during the training, which ends here. If it was moved, move it back and "
            "continue with --resume; if it was deleted, train again."
        )

    def _lock_owner(self) -> str:
        try:
            owner = json.loads(self.read_file(self.lock_file))
            return f"process {owner['process']} on {owner['host']} since {owner['started_at']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a metrics file, except incomplete lines (a kill can cut off the last one)."""
    if not path.exists():
        return
    with Run(path.parent).open_file(path) as file:
        while line := file.readline(MAX_LINE_BYTES):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict) and type(entry.get("step")) is int and isinstance(entry.get("event"), str):
                # Early versions called the score of a validation "bleu", whatever the task.
                yield entry | {"score": entry["bleu"], "measure": "BLEU"} if "bleu" in entry else entry
