"""The package can be built with a compiler and without, and is the same whenever it is built from the same sources."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from dragoman import kernels

ROOT = Path(__file__).parent.parent
PARTS = ("LICENSE", "README.md", "pyproject.toml", "setup.py", "src")
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
MACHINE = sysconfig.get_platform().replace("-", "_")
EXPECTED = {"linux_x86_64": {"x86-64-v3", "x86-64-v4", "x86-64-v4-vnni"}, "linux_aarch64": {"armv8", "armv8.2-dotprod"}}
LIBRARIES = "dragoman/native/libraries/"

pytestmark = pytest.mark.slow


def copy_of_the_tree(folder: Path) -> Path:
    """What the package is built from, without what was compiled here."""
    folder.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("libraries", "__pycache__", "*.egg-info", ".libraries-*")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(tree: Path, command: list[str], umask: int = 0o022, **variables: str) -> Path:
    """Build a wheel and return it."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "PYTHONPATH")}
    finished = subprocess.run(
        [sys.executable, "-m", *command], cwd=tree, env={**environment, **variables}, umask=umask, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout
    (wheel,) = (tree / "dist").glob("*.whl")
    return wheel


QUIET = ("--quiet", "--disable-pip-version-check")
WITH_PIP = ["pip", "wheel", *QUIET, "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", "."]


def libraries(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {Path(name).name: archive.read(name) for name in archive.namelist() if name.startswith(LIBRARIES)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("no C compiler here")
    return build(copy_of_the_tree(tmp_path_factory.mktemp("one") / "tree"), WITH_PIP)


def test_a_wheel_has_a_library_for_every_kind_of_processor(wheel: Path) -> None:
    found = libraries(wheel)
    listed = json.loads(found.pop(kernels.LIST_NAME))
    assert {variant["name"] for variant in listed["variants"]} == EXPECTED.get(
        MACHINE, set()
    ) or MACHINE not in EXPECTED
    assert found.keys() == {variant["file"] for variant in listed["variants"]}
    assert {name: len(content) for name, content in found.items()} == {
        variant["file"]: variant["bytes"] for variant in listed["variants"]
    }
    assert wheel.name.endswith(f"-py3-none-{MACHINE}.whl")


def test_a_library_does_not_tell_where_it_was_built(wheel: Path) -> None:
    for content in libraries(wheel).values():
        assert str(wheel.parent.parent).encode() not in content
        assert b"/tmp/" not in content


def test_a_wheel_that_is_built_twice_has_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """From another directory, with another umask, and by way of a source distribution."""
    pytest.importorskip("build", reason="`python -m build` is not installed")
    tree = copy_of_the_tree(tmp_path / "another tree")
    again = build(tree, ["build", "--no-isolation"], umask=0o077)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
    (source,) = (tree / "dist").glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {path.name for path in kernels.SOURCES.glob("*.[ch]")} | {"setup.py", "pyproject.toml"} <= names
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.parametrize("compiler", ["false", "/does/not/exist"])
def test_without_a_working_compiler_the_wheel_has_no_libraries(tmp_path: Path, compiler: str) -> None:
    wheel = build(copy_of_the_tree(tmp_path / "tree"), WITH_PIP, CC=compiler)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert libraries(wheel) == {}
    with zipfile.ZipFile(wheel) as archive:
        assert "dragoman/kernels.py" in archive.namelist()


@pytest.mark.long
@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
def test_the_kernels_can_be_compiled_into_a_checkout(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "tree")
    subprocess.run([sys.executable, "setup.py", "--quiet", "build_kernels", "--inplace"], cwd=tree, check=True)
    look = "from dragoman import kernels; print(kernels.built_variants()[0].path.is_file(), kernels.SOURCES)"
    seen = subprocess.run(
        [sys.executable, "-c", look], env={**os.environ, "PYTHONPATH": str(tree / "src")}, cwd=tmp_path, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert seen.stdout == f"True {tree / 'src/dragoman/native'}\n"
