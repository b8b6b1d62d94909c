"""The cache: prepared data and compiled code that can be made again, kept between runs."""

import json
import os
import shutil
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
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _private_temporary_dir() -> Path:
    owner = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"dragoman-{owner}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="dragoman-"))
    # Anyone may create a directory of this name; only this user's own, and no symbolic link, is safe to use.
    is_safe = folder.is_dir() and not folder.is_symlink() and status.st_uid == owner and status.st_mode & 0o022 == 0
    return folder if is_safe else Path(tempfile.mkdtemp(prefix="dragoman-"))


def find_or_build(
    key: str, build: Callable[[Path], None], files: Sequence[str], cache_dir: str | os.PathLike[str] | None = None
) -> Path:
    """Return the cached directory of a key; `build` writes it, with its header.json, if it is missing or damaged."""
    cache = Path(cache_dir) if cache_dir is not None else default_cache_dir()
    folder = cache / key
    if not _is_intact(folder, files):
        try:
            cache.mkdir(parents=True, exist_ok=True)
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
