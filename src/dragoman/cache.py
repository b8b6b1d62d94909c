"""The cache: prepared data that can be made again, kept between runs.

It has token arrays and their headers, nothing that is executed or unpickled; compiled kernels come with the package.
What is read must come from this user or from root, since a training believes its numbers. A cache is therefore created
with mode 0700, and in a directory that others may write to, or that belongs to another user, each user gets one of
their own.
"""

import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from dragoman.errors import UserError
from dragoman.storage import atomic_directory, remove_directory, write_error_advice

_TEMPORARY_PREFIX = ".unfinished-"
_ABANDONED_AFTER_SECONDS = 24 * 3600
_OLD_LIBRARIES = "kernels-*.so"  # of Dragoman 0.2, which compiled them at run time


def default_cache_dir() -> Path:
    """Return the directory of DRAGOMAN_CACHE, or else the first usual cache directory that is writable."""
    configured = os.environ.get("DRAGOMAN_CACHE")
    if configured:
        return Path(configured)
    return next((folder for folder in _candidate_dirs() if _is_writable(folder)), None) or _private_temporary_dir()


def _candidate_dirs() -> list[Path]:
    # The XDG specification ignores relative paths.
    candidates = (Path(os.environ.get("XDG_CACHE_HOME", "")), Path(os.environ.get("HOME", "")) / ".cache")
    return [folder / "dragoman" for folder in candidates if folder.is_absolute()]


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _private_temporary_dir() -> Path:
    folder = Path(tempfile.gettempdir()) / f"dragoman-{_user()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="dragoman-"))
    return folder if _is_private(folder) else Path(tempfile.mkdtemp(prefix="dragoman-"))


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _is_private(folder: Path) -> bool:
    """Return whether a directory belongs to this user or root, and nobody else may write to it."""
    status = folder.lstat()
    is_directory = stat.S_ISDIR(status.st_mode)
    return is_directory and (os.name == "nt" or (status.st_uid in (_user(), 0) and not status.st_mode & 0o022))


def _private_part(cache: Path) -> Path:
    """Return the directory of a cache that only this user or root can write to; create it if it is missing."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_private(cache.resolve()):
        return cache
    own = cache / f"user-{_user()}"
    own.mkdir(mode=0o700, exist_ok=True)
    if not _is_private(own):
        raise UserError(
            f"{own}: this directory of the cache belongs to another user, or others may write to it. Remove it, or set "
            "DRAGOMAN_CACHE to another directory."
        )
    return own


def find_or_build(
    key: str, build: Callable[[Path], None], files: Sequence[str], cache_dir: str | os.PathLike[str] | None = None
) -> Path:
    """Return the cached directory of a key; `build` writes it, with its header.json, if it is missing or damaged."""
    cache = Path(cache_dir) if cache_dir is not None else default_cache_dir()
    try:
        cache = _private_part(cache)
        folder = cache / key
        if not _is_intact(folder, files):
            _remove_abandoned(cache)
            if not _is_intact(folder, files):
                remove_directory(folder, cache / f"{_TEMPORARY_PREFIX}{token_hex(8)}")
            with atomic_directory(folder, prefix=_TEMPORARY_PREFIX) as temporary:
                build(temporary)
    except OSError as error:
        raise UserError(
            f"{cache}: cannot write prepared data ({error.strerror or error}). "
            f"{write_error_advice(error, cache)}, or set DRAGOMAN_CACHE to another directory."
        ) from None
    return folder


def _is_intact(folder: Path, files: Sequence[str]) -> bool:
    # The header has the sizes of the files.
    try:
        header = json.loads((folder / "header.json").read_text())
        return all((folder / name).stat().st_size == header["bytes"][name] for name in files)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _remove_abandoned(cache: Path) -> None:
    # Left behind by a killed process; younger ones may belong to a running one.
    for folder in cache.glob(f"{_TEMPORARY_PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
    for library in cache.glob(_OLD_LIBRARIES):
        with suppress(OSError):
            library.unlink()
