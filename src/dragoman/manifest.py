"""Manifests: the size and the SHA-256 digest of every file of a model and of a checkpoint.

A checkpoint's manifest is written with it (see `checkpoints`). The model's is `manifest.json` in the run directory: it
is removed before one of its files is replaced and written afterwards, so that it never describes another model than
the one that is there. It tells damage and changes by mistake; whoever can change a model can change its manifest too.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.run import FORMAT_VERSION, RUN_FILES, Run
from dragoman.storage import file_kind, open_regular, to_json, write_atomically

FileDigest = dict[str, Any]  # bytes, sha256


def file_digest(path: Path) -> FileDigest:
    """Return the size and the SHA-256 digest of a file."""
    with open_regular(path) as file:
        return _digest(file)


def find_file_damage(run: Run, path: Path, expected: FileDigest) -> str | None:
    """Return how a file differs from its entry in a manifest, or None; the digest is compared only if the size fits."""
    if file_kind(path) is None:
        return f"{path.name} is missing"
    with run.open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != expected["bytes"]:
            return f"{path.name} has {size} bytes instead of {expected['bytes']}"
        if _digest(file) != expected:
            return f"{path.name} was changed after it was written (its SHA-256 digest differs)"
    return None


def _digest(file: BufferedReader) -> FileDigest:
    return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def model_files(run: Run) -> list[Path]:
    """Return the files that the model of a run consists of, those that exist."""
    paths = [run.folder / file.path for file in RUN_FILES if file.is_model]
    return [path for path in paths if file_kind(path) is not None]


def read_model_manifest(run: Run) -> dict[str, FileDigest] | None:
    """Return the entries of the manifest of a model by file name, or None if it has no manifest."""
    try:
        content = run.read_file(run.manifest_file)
    except FileNotFoundError:
        return None
    try:
        manifest = json.loads(content)
        files = {str(name): dict(digest) for name, digest in manifest["files"].items()}
        is_known = to_json(manifest) == content and manifest["format"] == FORMAT_VERSION
        is_valid = is_known and all(digest.keys() == {"bytes", "sha256"} for digest in files.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise UserError(f"{run.manifest_file} is damaged, or was written by another version. Restore the file.")
    return files


@contextmanager
def replace_model_files(run: Run, *paths: Path) -> Iterator[None]:
    """Let the caller write some files of the model, and their entries in its manifest afterwards.

    The entries of other files stay what they were. A run without model.safetensors has no manifest yet.
    """
    before = _valid_entries(run)
    run.manifest_file.unlink(missing_ok=True)
    yield
    if run.weights_file.exists():
        unchanged = {name: digest for name, digest in before.items() if run.folder / name not in paths}
        files = {path.name: unchanged.get(path.name) or file_digest(path) for path in model_files(run)}
        write_atomically(run.manifest_file, to_json({"format": FORMAT_VERSION, "files": files}))


def _valid_entries(run: Run) -> dict[str, FileDigest]:
    try:
        return read_model_manifest(run) or {}
    except UserError:
        return {}
