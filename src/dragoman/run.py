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
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dragoman.errors import UserError, did_you_mean_path
from dragoman.recipe import Recipe
from dragoman.storage import make_directory
from dragoman.toml import read_toml

FORMAT_VERSION = "dragoman-1"
MANIFEST_FILE = "manifest.json"  # of a checkpoint, the file that is written last
_RECIPE_SECTIONS = ("data", "tokenizer", "model", "training", "decoding")  # of every recipe that a training has written


class Run:
    """A run directory and the paths in it."""

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
        """All files and directories that a training writes, whether they exist or not, except its lock."""
        return [
            self.recipe_file, self.weights_file, self.metrics_file, self.curves_file, self.card_file, self.skipped_file,
            self.shortlist_file, *self.tokenizer_files(True), *self.tokenizer_files(False),
            self.checkpoints_dir, self.tensorboard_dir, self.head_reports_dir,
        ]  # fmt: skip

    @property
    def has_weights(self) -> bool:
        """Whether there are weights, of a model or in a checkpoint."""
        saved = (path for path in self.checkpoints_dir.glob("*") if not path.name.startswith(".tmp-"))
        return self.weights_file.exists() or any(saved)

    @property
    def has_started(self) -> bool:
        """Whether a training has ever started here: its lock exists, or, in a copy, its recipe and weights."""
        return self.lock_file.exists() or (self.recipe_file.exists() and self.has_weights)

    @property
    def exists(self) -> bool:
        """Whether there is a run with weights, which must not be lost."""
        return self.has_started and self.has_weights

    def require_inside(self, path: Path) -> Path:
        """Return the path; raise if it is a link to a file outside of the run directory."""
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise UserError(
                f"{path} is a link to {path.resolve()}, outside of the run directory; replace the link with the file."
            )
        return path

    def tokenizer_files(self, joint: bool) -> list[Path]:
        """Return the files of the source and the target tokenizer; with `joint` there is one for both."""
        names = ["tokenizer.json"] if joint else ["tokenizer.source.json", "tokenizer.target.json"]
        return [self.folder / name for name in names]

    def complete_checkpoints(self) -> list[int]:
        """Return the steps of the checkpoints that were written completely, the oldest first."""
        manifests = self.checkpoints_dir.glob(f"[0-9]*/{MANIFEST_FILE}")
        return sorted(int(path.parent.name) for path in manifests if path.parent.name.isdigit())

    def read_recipe(self) -> Recipe:
        """Read the recipe that this run was trained with."""
        if not self.folder.is_dir():
            hint = did_you_mean_path(self.folder) or " `dragoman train` creates one."
            raise UserError(f"{self}: no such run directory.{hint}")
        if not self.recipe_file.exists():
            raise UserError(f"{self} is not a run directory: it has no recipe.toml. `dragoman train` creates one.")
        table = read_toml(self.require_inside(self.recipe_file))
        missing = [f"[{section}]" for section in _RECIPE_SECTIONS if section not in table]
        if missing and self.has_weights:
            raise UserError(
                f"{self.recipe_file} is damaged: it has no {' or '.join(missing)} section. Restore the file."
            )
        return Recipe.from_table(table, origin=str(self.recipe_file), is_complete=True)

    def erase(self) -> None:
        """Remove everything that a training writes, and no other file in the directory."""
        for path in self.training_files:
            if path.is_dir():
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
        with self.lock_file.open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self} is already being trained by {self._lock_owner()}.") from None
            file.truncate(0)
            started_at = datetime.now(UTC).isoformat(timespec="seconds")
            json.dump({"process": os.getpid(), "host": socket.gethostname(), "started_at": started_at}, file)
            file.flush()
            yield

    def _lock_owner(self) -> str:
        try:
            owner = json.loads(self.lock_file.read_text(encoding="utf-8"))
            return f"process {owner['process']} on {owner['host']} since {owner['started_at']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a metrics file, except incomplete lines (a kill can cut off the last one)."""
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
