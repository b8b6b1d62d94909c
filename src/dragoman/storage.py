"""Writing files and directories atomically: whenever the program ends, either the old content is there or the new."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dragoman.errors import UserError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file; a reader sees the old content or the new content and nothing in between."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path` to write into; rename it to `path` once it is on disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        apply_umask(temporary)
        fsync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync(path.parent)


@contextmanager
def atomic_directory(path: Path, *, overwrite: bool = False, prefix: str | None = None) -> Iterator[Path]:
    """Yield a temporary directory beside `path` to write files into; rename it to `path` once they are on disk.

    If `path` exists by then, it is replaced with `overwrite` and kept otherwise. `prefix` begins the temporary name.
    """
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=prefix or f".{path.name}."))
    try:
        yield temporary
        for entry in [*temporary.iterdir(), temporary]:
            apply_umask(entry)
            fsync(entry)
        if overwrite and path.exists():
            _replace_directory(temporary, path)
        else:
            _rename_unless_exists(temporary, path)
        fsync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace_directory(temporary: Path, path: Path) -> None:
    backup = temporary.with_name(f"{temporary.name}.old")
    path.rename(backup)
    try:
        temporary.rename(path)
    except BaseException:
        backup.rename(path)
        raise
    shutil.rmtree(backup, ignore_errors=True)


def _rename_unless_exists(temporary: Path, path: Path) -> None:
    # Another process may have been faster with the same content.
    try:
        temporary.rename(path)
    except OSError:
        if not path.is_dir():
            raise


def remove_directory(path: Path, temporary: Path) -> None:
    """Remove a directory if it exists, by renaming it to `temporary` first, so that nobody finds half of it."""
    with suppress(FileNotFoundError):
        path.rename(temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def fsync(path: Path) -> None:
    """Wait until a file, or the entries of a directory, would survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def apply_umask(path: Path) -> None:
    """Give a file or directory the permissions of new ones; temporary ones are created private."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


def make_directory(path: Path) -> None:
    """Create a directory and its parents, or raise an error that says why this is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{path}: this directory cannot be created ({error.strerror}); choose another directory."
        ) from None


def write_error_advice(error: OSError, folder: Path) -> str:
    """Return what the user can do about an error of writing into a directory, without a full stop."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some disk space"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"Make {folder} writable"
    return "Fix the cause"


def to_json(content: Mapping[str, Any]) -> bytes:
    """Return a dictionary as one line of JSON."""
    return (json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n").encode()
