"""What `dragoman verify` checks: that a run would be opened, and that its files are those that were written."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.checkpoints import checkpoint_dirs, find_damage
from dragoman.errors import UserError
from dragoman.manifest import FileDigest, find_file_damage, model_files, read_model_manifest
from dragoman.run import MANIFEST_FILE, RUN_FILES, Run
from dragoman.storage import DIRECTORY, file_kind, list_directory
from dragoman.tasks.sequence_model import load

_UNLISTED = f"{MANIFEST_FILE} does not list it, so it was added later"


@dataclass(frozen=True)
class CheckedFile:
    """A file of the model, a checkpoint or an unknown file, and what is wrong with it."""

    path: str  # below the run directory
    bytes: int
    has_digest: bool  # whether a manifest says what it should be
    problem: str | None


@dataclass(frozen=True)
class Verification:
    """The result of verifying a run."""

    run: str
    has_manifest: bool  # of the model
    files: list[CheckedFile]
    problems: list[str]  # of files and of the run; a run without any is opened by every command

    def to_json(self) -> dict[str, Any]:
        """Return what `dragoman verify --json` prints."""
        return {
            "run": self.run, "verified": not self.problems, "has_manifest": self.has_manifest,
            "files": [vars(file) for file in self.files], "problems": self.problems,
        }  # fmt: skip


def verify_run(folder: str | os.PathLike[str]) -> Verification:
    """Compare the files of a run with its manifests, and load its model; nothing is written."""
    run = Run(folder)
    try:
        run.read_recipe()
        manifest = read_model_manifest(run)
    except UserError as error:
        return Verification(str(run), False, [], [str(error)])
    files = [
        *_check_model_files(run, manifest),
        *(_check_checkpoint(run, path) for path in reversed(checkpoint_dirs(run.checkpoints_dir))),
        *(_unknown_file(run, path) for path in _unknown_paths(run, run.folder)),
    ]
    problems = [f"{file.path}: {file.problem}" for file in files if file.problem]
    try:
        load(run, device="cpu")
    except UserError as error:
        problems.append(str(error))
    return Verification(str(run), manifest is not None, files, problems)


def _check_model_files(run: Run, manifest: dict[str, FileDigest] | None) -> list[CheckedFile]:
    present = {path.name: path for path in model_files(run)}
    known = {file.path for file in RUN_FILES if file.is_model}
    checked = []
    for name in dict.fromkeys([*present, *(manifest or {})]):
        expected = manifest.get(name) if manifest else None
        if manifest is None:
            problem = None
        elif name not in known:
            problem = f"{MANIFEST_FILE} lists it, but it is not a file of a model"
        else:
            problem = _find_damage(run, run.folder / name, expected) if expected else _UNLISTED
        size = present[name].stat().st_size if name in present else 0
        checked.append(CheckedFile(name, size, expected is not None, problem))
    return checked


def _find_damage(run: Run, path: Path, expected: FileDigest) -> str | None:
    try:
        return find_file_damage(run, path, expected)
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"


def _check_checkpoint(run: Run, path: Path) -> CheckedFile:
    names = list_directory(path, inside=run.folder)
    problem = find_damage(path)
    if problem is None:
        listed = json.loads(run.read_file(path / MANIFEST_FILE))["files"]
        unlisted = [name for name in names if name not in (*listed, MANIFEST_FILE)]
        problem = f"{unlisted[0]}: {_UNLISTED}" if unlisted else None
    size = sum((path / name).lstat().st_size for name in names)
    return CheckedFile(str(path.relative_to(run.folder)), size, True, problem)


def _unknown_file(run: Run, path: Path) -> CheckedFile:
    problem = "not a file of a run, and no command opens it; move it elsewhere"
    return CheckedFile(str(path.relative_to(run.folder)), path.lstat().st_size, False, problem)


def _unknown_paths(run: Run, folder: Path) -> list[Path]:
    """Return what no entry in the table of files matches; of a directory that is unknown as a whole, only itself."""
    unknown = []
    for path in (folder / name for name in list_directory(folder)):
        parts = path.relative_to(run.folder).parts
        begins = any(Path(*parts).match("/".join(file.path.split("/")[: len(parts)])) for file in RUN_FILES)
        if file_kind(path) == DIRECTORY and begins:
            unknown += _unknown_paths(run, path)
        elif not any(file.matches(Path(*parts)) for file in RUN_FILES):
            unknown.append(path)
    return unknown
