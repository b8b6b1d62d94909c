"""Files and directories are written completely or not at all, and only regular files are opened."""

import errno
import os
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dragoman.errors import UserError
from dragoman.storage import (
    atomic_directory,
    atomic_file,
    list_directory,
    open_for_appending,
    open_regular,
    read_regular,
    write_atomically,
    write_error_advice,
)


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_file_has_the_new_content_and_the_usual_permissions(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    usual = tmp_path / "usual"
    usual.write_bytes(b"")
    assert path.stat().st_mode == usual.stat().st_mode


def test_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as temporary:
        temporary.write_bytes(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def write_directory(path, content, **options):
    with atomic_directory(path, **options) as temporary:
        assert not (path / content).exists()
        (temporary / content).write_text(content)


def test_a_directory_is_kept_or_replaced_as_asked(tmp_path):
    path = tmp_path / "directory"
    write_directory(path, "first")
    write_directory(path, "second")
    assert names(path) == ["first"]
    write_directory(path, "third", overwrite=True)
    assert names(path) == ["third"]
    assert names(tmp_path) == ["directory"]


def test_a_directory_that_fails_half_way_does_not_appear(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_directory(tmp_path / "directory") as temporary:
        (temporary / "half").touch()
        raise ZeroDivisionError
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.ENOSPC, "Free some disk space"), (errno.EDQUOT, "Free some disk space"), (errno.EIO, "Fix the cause"),
     (errno.EACCES, "Make runs/a writable"), (errno.EROFS, "Make runs/a writable"), (None, "Fix the cause")],
)  # fmt: skip
def test_the_advice_about_a_failed_write_fits_its_cause(code, advice):
    error = OSError(code, "a message") if code else OSError("a message")
    assert write_error_advice(error, Path("runs/a")) == advice


def link(path, target):
    path.symlink_to(target)


def fifo(path, _target):
    os.mkfifo(path)


def socket_file(path, _target):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(path))


def directory(path, _target):
    path.mkdir()


IRREGULAR = {"a symbolic link": link, "a FIFO": fifo, "a socket": socket_file, "a directory": directory}
OPENERS = {
    "open": open_regular, "read": lambda path, **options: read_regular(path, max_bytes=9, **options),
    "append": open_for_appending,
}  # fmt: skip


@pytest.fixture
def short_folder():
    """A directory with a path that is short enough for a socket."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS.keys())
@pytest.mark.parametrize(("kind", "make"), IRREGULAR.items())
def test_only_regular_files_are_opened(short_folder, opener, kind, make):
    target = short_folder / "outside"
    target.write_bytes(b"untouched")
    make(short_folder / "file", target)
    with pytest.raises(UserError, match=rf"file is {kind}, not a regular file\. .* remove it\."):
        opener(short_folder / "file")
    assert target.read_bytes() == b"untouched"


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS.keys())
def test_a_directory_below_the_named_one_must_not_be_a_link_but_the_named_one_may(tmp_path, opener):
    (tmp_path / "real" / "below").mkdir(parents=True)
    (tmp_path / "real" / "below" / "file").write_bytes(b"text")
    (tmp_path / "named").symlink_to("real")
    (tmp_path / "real" / "linked").symlink_to("below")
    opener(tmp_path / "named" / "below" / "file", inside=tmp_path / "named")
    with pytest.raises(UserError, match="linked is a symbolic link, not a directory"):
        opener(tmp_path / "named" / "linked" / "file", inside=tmp_path / "named")
    with pytest.raises(UserError, match="linked is a symbolic link, not a directory"):
        list_directory(tmp_path / "named" / "linked", inside=tmp_path / "named")


def test_a_device_is_not_opened():
    with pytest.raises(UserError, match="/dev/zero is a device, not a regular file"):
        open_regular(Path("/dev/zero"))


def test_a_large_file_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(40 << 30)  # sparse: it takes no space
    with pytest.raises(UserError, match="has 42,949,672,960 bytes, more than the maximum of 1,000 bytes"):
        read_regular(tmp_path / "file", max_bytes=1000)


def test_a_missing_file_is_named_with_its_whole_path(tmp_path):
    with pytest.raises(FileNotFoundError, match="run/checkpoints/file"):
        (tmp_path / "run" / "checkpoints").mkdir(parents=True)
        open_regular(tmp_path / "run" / "checkpoints" / "file", inside=tmp_path / "run")
    assert list_directory(tmp_path / "run" / "heads", inside=tmp_path / "run") == []


def test_a_file_with_a_second_name_is_not_appended_to(tmp_path):
    (tmp_path / "outside").write_bytes(b"untouched")
    (tmp_path / "file").hardlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="has another name elsewhere"):
        open_for_appending(tmp_path / "file")
