"""The cache: what others wrote into it is not read, and nothing of it is executed."""

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dragoman.cache import find_or_build
from dragoman.data.arrays import open_arrays
from dragoman.errors import UserError

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def writer(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "data").write_text(text)
        (folder / "header.json").write_text(json.dumps({"bytes": {"data": len(text)}}))

    return write


def cached(cache: Path, text: str = "mine") -> Path:
    """The file of a key, which is built with this text if it is not found."""
    return find_or_build("key", writer(text), ["data"], cache) / "data"


def plant(cache: Path) -> None:
    (cache / "key").mkdir(parents=True)
    writer("evil")(cache / "key")


def test_a_cache_is_for_its_user_alone_whatever_the_umask_is(tmp_path: Path, no_umask: None) -> None:
    made = cached(tmp_path / "cache")
    assert made == tmp_path / "cache" / "key" / "data"
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_in_a_directory_that_others_may_write_to_each_user_has_one_of_their_own(tmp_path: Path, mode: int) -> None:
    """Row S1 of issue 17 in what is left of the cache: the numbers that another user put there were trained on."""
    plant(tmp_path / "shared")
    (tmp_path / "shared").chmod(mode)
    made = cached(tmp_path / "shared")
    assert made == tmp_path / "shared" / f"user-{os.getuid()}" / "key" / "data"
    assert made.read_text() == "mine"
    assert stat.S_IMODE(made.parent.parent.stat().st_mode) == 0o700
    assert cached(tmp_path / "shared", "again").read_text() == "mine"  # it is found the next time


@as_root
def test_what_belongs_to_another_user_is_not_read(tmp_path: Path) -> None:
    plant(tmp_path / "theirs")
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    assert cached(tmp_path / "theirs").read_text() == "mine"
    os.chown(tmp_path / "theirs" / "user-0", NOBODY, NOBODY)
    with pytest.raises(
        UserError, match=r"user-0: .* belongs to another user, or others may write to it. Remove it, or"
    ):
        cached(tmp_path / "theirs")


def test_a_link_in_the_place_of_ones_own_directory_is_refused(tmp_path: Path) -> None:
    plant(tmp_path / "elsewhere")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "shared" / f"user-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="belongs to another user, or others may write to it"):
        cached(tmp_path / "shared")


def test_libraries_that_dragoman_0_2_compiled_are_removed(tmp_path: Path) -> None:
    library = tmp_path / "kernels-0123.so"
    library.write_bytes(b"")
    cached(tmp_path)
    assert not library.exists()


def test_arrays_hold_numbers_whatever_their_header_says(tmp_path: Path) -> None:
    for name in ("source.tokens", "target.tokens", "source.offsets", "target.offsets", "lines"):
        (tmp_path / name).write_bytes(bytes(16))
    (tmp_path / "header.json").write_text(json.dumps({"tokens": "O", "dropped_empty": 0, "dropped_long": 0}))
    pairs = open_arrays(tmp_path)
    assert {pairs.source_tokens.dtype, pairs.target_tokens.dtype} == {np.dtype("<u2")}
