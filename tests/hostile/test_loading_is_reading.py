"""Loading a run reads its files and nothing else (E1): a process listens to audit events while it loads others."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from mutations import FILES, Bomb, add_files, make_hostile

import dragoman

LOADER = Path(__file__).with_name("listening_loader.py")
RELEASED = Path(__file__).parents[1] / "released" / "0.1.0"


BASES = sorted(path.parent for path in RELEASED.glob("*/recipe.toml"))


def listen(place, runs):
    """Return what loading the runs does besides reading their files, after all good runs have been loaded."""
    good = [place / "good", place / "misspelt", *BASES]
    command = [sys.executable, str(LOADER), *map(str, [*good, "--", *runs])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(dragoman.__file__).parents[1])}
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place, env=environment)
    assert result.returncode == 0, result.stderr
    *events, last = result.stdout.splitlines()
    assert last == f"listened to {len(runs)}"
    return events


@pytest.fixture
def place(trained, tmp_path):
    """A directory with a good run, one with a misspelt setting, and a secret outside of both."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("a secret\n")
    shutil.copytree(trained, tmp_path / "good")
    misspelt = Path(shutil.copytree(trained, tmp_path / "misspelt"))
    (misspelt / "recipe.toml").write_text((misspelt / "recipe.toml").read_text().replace("heads = 2", "hats = 2"))
    return tmp_path


def link(run, name, target):
    (run / name).unlink()
    (run / name).symlink_to(target)


def hostile_corpus(place):
    """Yield hostile runs that were thought of; the generated ones come on top of them."""

    def copy(name):
        return Path(shutil.copytree(place / "good", place / name))

    for name in ("recipe.toml", "tokenizer.json", "model.safetensors"):
        run = copy(f"pickled {name}")
        (run / name).write_bytes(pickle.dumps(Bomb()))
        yield run
        run = copy(f"linked {name}")
        shutil.copy(run / name, place / "outside" / name)
        link(run, name, place / "outside" / name)
        yield run
        run = copy(f"fifo {name}")
        (run / name).unlink()
        os.mkfifo(run / name)
        yield run
    run = copy("class paths")
    (run / "config.json").write_text('{"auto_map": {"AutoModel": "evil.Model"}, "architectures": ["os.system"]}')
    (run / "recipe.toml").write_text('class = "os.system"\n' + (run / "recipe.toml").read_text())
    yield run
    run = copy("modules")
    for seed in range(5):
        add_files(run, Random(seed))
    yield run
    run = copy("task")
    (run / "recipe.toml").write_text((run / "recipe.toml").read_text().replace('"translate"', '"os.system"'))
    yield run
    run = copy("paths of other files")
    text = (run / "recipe.toml").read_text().split("\n")
    secret = json.dumps(str(place / "outside" / "secret"))
    lines = [
        f"{line.split(' = ')[0]} = {secret}" if line.startswith(("source =", "target =")) else line for line in text
    ]
    (run / "recipe.toml").write_text("\n".join(lines))
    yield run
    run = copy("linked checkpoints")
    (run / "model.safetensors").unlink()
    (run / "checkpoints").rename(place / "outside" / "checkpoints")
    (run / "checkpoints").symlink_to(place / "outside" / "checkpoints")
    yield run


def generated_runs(place, count, first=0):
    """Yield runs of all kinds that are changed at random."""
    for seed in range(first, first + count):
        random = Random(seed)
        run = Path(shutil.copytree(random.choice([place / "good", *BASES]), place / f"generated {seed}", symlinks=True))
        make_hostile(run, random)
        yield run


def test_loading_a_hostile_run_opens_nothing_outside_starts_nothing_and_imports_nothing(place):
    runs = [*hostile_corpus(place), *generated_runs(place, 25)]
    assert listen(place, runs) == []
    assert not list(place.glob("**/owned"))
    assert set(FILES) & {path.name for path in (place / "outside").iterdir()} == {
        "recipe.toml", "tokenizer.json", "model.safetensors",
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 2000, 200))
def test_loading_many_hostile_runs_does_nothing_else(place, first):
    assert listen(place, [*generated_runs(place, 200, first=1000 + first)]) == []


def test_what_must_not_happen_would_be_heard(place):
    """Without the checks of a run directory this is what loading a linked file would be heard as."""
    listener = """
import sys; sys.argv[1:] = []
from listening_loader import Listener
listener = Listener()
listener.run = "/nowhere"
open("/etc/passwd").close()
import wave, subprocess
eval("1 + 1")
listener.run = None
print([event.split()[0] for event in listener.heard])
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(LOADER.parent), *sys.path])}
    result = subprocess.run(
        [sys.executable, "-c", listener], env=environment, capture_output=True, text=True, check=True
    )
    assert {"'open',", "'import',"} <= set(result.stdout.replace("[", "").split()), result.stdout
    assert "exec" in result.stdout
