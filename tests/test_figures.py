"""Pictures are drawn with the defaults of matplotlib, whatever its settings say, and leave nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dragoman
from dragoman.figures import default_style, new_figure

DRAW = """
import sys
from dragoman.figures import default_style, new_figure
with default_style():
    figure = new_figure(2, 1)
    figure.subplots().set_title("a_b")
    figure.savefig(sys.argv[1])
"""


def draw(path: Path, **options) -> str:
    """Draw a picture in a process of its own, and return what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", DRAW, str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("plain") / "plain.png"
    draw(path)
    return path.read_bytes()


SETTINGS = b"text.usetex: True\nfigure.facecolor: red\nnonsense: 7\nfont.size: \xff\n"


@pytest.mark.slow
def test_the_settings_of_the_current_directory_are_not_read(tmp_path, plain):
    (tmp_path / "matplotlibrc").write_bytes(SETTINGS)
    assert draw(tmp_path / "a.png", cwd=tmp_path) == ""
    assert (tmp_path / "a.png").read_bytes() == plain


@pytest.mark.slow
def test_a_pipe_in_the_current_directory_does_not_stop_the_program(tmp_path, plain):
    os.mkfifo(tmp_path / "matplotlibrc")
    assert draw(tmp_path / "a.png", cwd=tmp_path, timeout=120) == ""
    assert (tmp_path / "a.png").read_bytes() == plain


@pytest.mark.slow
def test_settings_of_the_user_do_not_change_the_picture(tmp_path, plain):
    (tmp_path / "mine").write_bytes(SETTINGS.replace(b"\xff", b"10"))
    assert draw(tmp_path / "a.png", env={**os.environ, "MATPLOTLIBRC": str(tmp_path / "mine")}) == ""
    assert (tmp_path / "a.png").read_bytes() == plain


@pytest.mark.slow
def test_without_a_home_directory_the_cache_keeps_the_fonts_and_nothing_is_left_behind(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    places = {"HOME": tmp_path / "file", "TMPDIR": tmp_path / "tmp", "DRAGOMAN_CACHE": tmp_path / "cache"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG", "MPL"))}
    assert draw(tmp_path / "a.png", env={**kept, **places}) == ""
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "cache" / "matplotlib").glob("fontlist*"))


def test_settings_that_a_program_has_made_are_kept_for_its_own_pictures(tmp_path):
    import matplotlib

    with matplotlib.rc_context({"figure.facecolor": "red"}):
        with default_style():
            assert new_figure(1, 1).get_facecolor() == (1.0, 1.0, 1.0, 1.0)
        assert matplotlib.rcParams["figure.facecolor"] == "red"


def test_matplotlib_is_imported_in_one_place():
    package = Path(dragoman.__file__).parent
    importing = [path.name for path in package.rglob("*.py") if "import matplotlib" in path.read_text()]
    importing += [path.name for path in package.rglob("*.py") if "from matplotlib" in path.read_text()]
    assert set(importing) == {"figures.py"}
