"""Files and directories are written completely or not at all."""

import errno
from pathlib import Path

import pytest

from dragoman.storage import atomic_directory, atomic_file, write_atomically, write_error_advice


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
