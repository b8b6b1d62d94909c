"""Files that are written whole or not at all, and files of directories that somebody else made.

Whenever the program ends, an atomic write has left the old content or the new one. `open_regular` and its neighbours
open regular files only and follow no symbolic link, whatever a directory from elsewhere contains.
"""

import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any

from dragoman.errors import UserError, format_count

FILE, DIRECTORY = "a regular file", "a directory"
_KINDS = {
    stat.S_IFREG: FILE, stat.S_IFDIR: DIRECTORY, stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
# O_PATH needs no permission to list the directory.
_OPEN_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY


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


def open_regular(path: Path, *, inside: Path | None = None, max_bytes: int | None = None) -> BufferedReader:
    """Open a regular file for reading; raise UserError if it is a link, FIFO, device or larger than `max_bytes`.

    `inside` is the directory that the user has named, by default the file's own: no directory below it may be a link.
    A file that does not exist, or must not be read, raises OSError.
    """
    file = os.fdopen(_open_below(path, inside or path.parent, os.O_RDONLY), "rb")
    size = os.fstat(file.fileno()).st_size
    if max_bytes is not None and size > max_bytes:
        file.close()
        raise _too_large(path, size, max_bytes)
    return file


def read_regular(path: Path, *, max_bytes: int, inside: Path | None = None) -> bytes:
    """Return the content of a regular file; see `open_regular`."""
    with open_regular(path, inside=inside, max_bytes=max_bytes) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:  # it has grown since it was opened
        raise _too_large(path, len(content), max_bytes)
    return content


def open_for_appending(path: Path, *, inside: Path | None = None) -> BufferedWriter:
    """Open a file to write at its end, and create it if it does not exist; raise UserError as `open_regular` does."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    file = os.fdopen(_open_below(path, inside or path.parent, flags), "ab")
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        raise UserError(
            f"{path} has another name elsewhere (a hard link), which would be changed too; remove the file."
        )
    return file


def list_directory(path: Path, *, inside: Path | None = None) -> list[str]:
    """Return the names in a directory, sorted; none if it does not exist. Raise UserError as `open_regular` does."""
    _require_directories(path, inside or path.parent)
    try:
        return sorted(entry.name for entry in path.iterdir())
    except (FileNotFoundError, NotADirectoryError):  # the latter if a parent is a file
        return []


def _require_directories(path: Path, inside: Path) -> None:
    """Raise UserError if a path, or one of its parents below `inside`, exists and is not a directory, or is a link."""
    reached = inside
    for part in path.relative_to(inside).parts:
        reached = reached / part
        found = file_kind(reached)
        if found not in (None, DIRECTORY):
            raise _irregular_file_error(reached, found, DIRECTORY)


def file_kind(path: Path) -> str | None:
    """Return FILE, DIRECTORY, "a symbolic link", "a FIFO" and so on; None if there is nothing."""
    try:
        return _kind(path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _open_below(path: Path, inside: Path, flags: int) -> int:
    *parents, name = path.relative_to(inside).parts
    folder, reached = os.open(inside, _OPEN_DIRECTORY), inside
    try:
        for parent in parents:
            reached = reached / parent
            below = _open_entry(folder, reached, _OPEN_DIRECTORY, DIRECTORY)
            os.close(folder)
            folder = below
        return _open_entry(folder, reached / name, flags, FILE)
    finally:
        os.close(folder)


def _open_entry(folder: int, path: Path, flags: int, expected: str) -> int:
    try:
        with suppress(FileNotFoundError):  # first: opening a device can have effects
            _require_kind(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False), expected)
        descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=folder)
    except OSError as error:
        error.filename = os.fspath(path)
        if error.errno == errno.ELOOP:  # a link since a moment ago
            raise _irregular_file_error(path, "a symbolic link", expected) from None
        raise
    try:
        _require_kind(path, os.fstat(descriptor), expected)
    except UserError:
        os.close(descriptor)
        raise
    return descriptor


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "a special file")


def _require_kind(path: Path, status: os.stat_result, expected: str) -> None:
    if _kind(status) != expected:
        raise _irregular_file_error(path, _kind(status), expected)


def _irregular_file_error(path: Path, found: str | None, expected: str) -> UserError:
    """Return the error about a file of another kind than it should be."""
    return UserError(
        f"{path} is {found}, not {expected}. A run directory holds regular files only, without links; replace it with "
        f"{expected}, or remove it."
    )


def _too_large(path: Path, size: int, max_bytes: int) -> UserError:
    found, limit = format_count(size, "byte"), format_count(max_bytes, "byte")
    return UserError(f"{path} has {found}, more than the maximum of {limit} for this file. Restore the file.")


def make_directory(path: Path) -> None:
    """Create a directory and its parents, or raise an error that says why this is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{path}: this directory cannot be created ({error.strerror}); choose another directory."
        ) from None


def make_subdirectory(path: Path) -> None:
    """Create a directory in an existing one unless it is there; raise UserError if something else is there."""
    _require_directories(path, path.parent)
    path.mkdir(exist_ok=True)


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
