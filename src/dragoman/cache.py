"""Where prepared data is kept between runs, in folders that appear whole or not at all whenever we are stopped."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

_TEMPORARY_PREFIX = ".unfinished-"
_ABANDONED_AFTER_SECONDS = 24 * 3600


def default_cache_dir() -> Path:
    """Return a folder to keep prepared data in: the one the environment names, or the first that can be written."""
    named = os.environ.get("DRAGOMAN_CACHE")
    if named:
        return Path(named)
    return next((folder for folder in _candidate_dirs() if _is_writable(folder)), None) or _private_temporary_dir()


def _candidate_dirs() -> list[Path]:
    """List where programs keep what they can make again; relative paths are ignored, as the XDG rules ask."""
    found = []
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if Path(shared).is_absolute():
        found.append(Path(shared) / "dragoman")
    home = os.environ.get("HOME", "")
    if Path(home).is_absolute():
        found.append(Path(home) / ".cache" / "dragoman")
    return found


def _is_writable(folder: Path) -> bool:
    """Make the folder if need be, and tell whether we may write into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _private_temporary_dir() -> Path:
    """Return a folder of this user's own among the temporary files, the same one every time where possible."""
    owner = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"dragoman-{owner}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="dragoman-"))
    # Anyone may make a folder of this name; only our own, and no link to elsewhere, is safe to use.
    ours = folder.is_dir() and not folder.is_symlink() and found.st_uid == owner and found.st_mode & 0o022 == 0
    return folder if ours else Path(tempfile.mkdtemp(prefix="dragoman-"))


@contextmanager
def atomic_directory(folder: Path) -> Iterator[Path]:
    """Give a new folder to write into, and put it in its place, safely on disk, if all went well."""
    unfinished = folder.with_name(_TEMPORARY_PREFIX + token_hex(8))
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        for file in [*unfinished.iterdir(), unfinished]:
            fsync(file)
        _rename_into_place(unfinished, folder)
        fsync(folder.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _rename_into_place(unfinished: Path, folder: Path) -> None:
    """Give a finished folder its name, unless another process was quicker with the same content."""
    try:
        unfinished.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def remove_directory(folder: Path) -> None:
    """Remove a folder, if it is there, so that nobody finds half of it."""
    aside = folder.with_name(_TEMPORARY_PREFIX + token_hex(8))
    with suppress(FileNotFoundError):
        folder.rename(aside)
        shutil.rmtree(aside)


def fsync(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a power cut."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def remove_abandoned(parent: Path) -> None:
    """Remove what a killed process left behind, once it is old enough to be sure."""
    for folder in parent.glob(f"{_TEMPORARY_PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
