"""No command imports a module from the current directory, however it is started and whatever it starts, and none leaves
files in the directory for temporary ones."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import dragoman
from dragoman.bench.workers import engine_spec, start_engines
from dragoman.processes import python_command
from dragoman.server.serve import bind_socket
from dragoman.watch.background import background_page

MODULES = (
    "asyncio", "dataclasses", "fastapi", "json", "multiprocessing", "numpy", "pickle", "rich", "sitecustomize",
    "socket", "torch", "typer", "typing", "usercustomize", "uvicorn",
)  # fmt: skip


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A directory to be in, whose modules leave a file behind if they are imported."""
    folder = tmp_path / "trap"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r} + ' ')\n")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.chdir(folder)
    yield folder
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()


def add_dragoman(trap: Path) -> None:
    """Set the trap for a `dragoman` too: only `python -m dragoman` would find it before this program can run."""
    (trap / "dragoman.py").write_text((trap / "torch.py").read_text())


def test_python_m_dragoman_takes_the_current_directory_out_of_its_path(trap):
    result = subprocess.run([sys.executable, "-m", "dragoman", "info", "nowhere"], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "dragoman: nowhere: no such run directory. `dragoman train` creates one.\n"


def test_children_run_the_package_that_their_parent_runs(tmp_path, monkeypatch):
    """Also if it was found in the current directory, or by a relative PYTHONPATH before the directory was changed."""
    (tmp_path / "dragoman").symlink_to(Path(dragoman.__file__).parent)
    program = (
        "import os; os.chdir('/'); from dragoman.processes import child_environment as e; print(e()['PYTHONPATH'])"
    )
    monkeypatch.setenv("PYTHONPATH", ".")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert result.stdout.strip() == f".{os.pathsep}{tmp_path}", result.stderr


def test_serve_and_its_worker(trap, trained):
    add_dragoman(trap)
    command = python_command("dragoman", "serve", trained, "--port", 0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        with urllib.request.urlopen(process.stdout.readline().strip(), timeout=120) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_the_page_of_a_training_and_the_process_that_inspects_checkpoints(trap, trained):
    add_dragoman(trap)
    listening = bind_socket("127.0.0.1", 0)
    port = listening.getsockname()[1]
    with (
        background_page(trained, listening),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/inspect?text=a", timeout=120) as answer,
    ):
        assert answer.status == 200


class Importer:
    """An engine that has imported what real ones import."""

    def __init__(self):
        import numpy
        import torch

        self.places = [torch.__file__, numpy.__file__]

    def run_turn(self):
        return self.places


@pytest.mark.long
def test_the_engines_of_a_benchmark(trap, monkeypatch):
    add_dragoman(trap)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(Path(__file__).parent), *sys.path])))
    with start_engines({"dragoman": engine_spec(Importer)}, pytest.fail) as engines:
        assert not any(str(trap) in place for place in engines["dragoman"].run_turn())


@pytest.mark.long
def test_the_trainings_of_the_laboratory(trap, tmp_path, toy_files):
    add_dragoman(trap)
    corpus = f"{toy_files[0]}:{toy_files[1]}"
    command = python_command(
        "dragoman", "lab", "schedule", "--folder", tmp_path / "lab", "--corpus", corpus, "--budget", "30s"
    )
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert list(tmp_path.glob("lab/schedule/models/*/metrics.jsonl"))
