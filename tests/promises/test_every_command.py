"""Every command as it is used: without a network (D14, E7), without a trace of secrets in what it writes (E8), and
with nothing written into a run but what the table of its files says."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from dragoman.cli.main import app
from dragoman.run import RUN_FILES

SLOW = {"bench", "quickstart"}
COMMANDS = [
    pytest.param(name, marks=[pytest.mark.long] if name in SLOW else [])
    for name in sorted(typer.main.get_command(app).commands)
]
RELEASED = Path(__file__).parents[1] / "released" / "0.1.0"
CANARY = "k4n4r13nv0g3l"
SECRETS = {
    name: f"{CANARY}-{name}"
    for name in ("AWS_SECRET_ACCESS_KEY", "DRAGOMAN_TOKEN", "GITHUB_TOKEN", "HF_TOKEN", "OPENAI_API_KEY")
}
TINY = ["training.steps=2", "training.validate_every=2", "training.checkpoint_every=1"]
# How a command is used, if not as `dragoman COMMAND RUN`. `{run}` is a copy of a trained run, `{out}` a new directory.
USES = {
    "attention": ["{run}", "a b", "-o", "{out}/page.html"],
    "average": ["{run}", "--last", "2"],
    "bench": ["{run}", "--only", "decoding", "--quick", "--threads", "1", "-o", "{out}/bench"],
    "check": ["--source", "{source}", "--target", "{target}"],
    "evaluate": ["{run}", "--source", "{source}", "--reference", "{target}", "-o", "{out}/translations"],
    "export": ["{run}", "-o", "{out}/exported"],
    "generate": [f"{RELEASED}/generate", "The", "--length", "3"],
    "heads": ["{run}", "--sentences", "8"],
    "inflect": [f"{RELEASED}/inflect", "aba", "--tags", "V;PST"],
    "info": ["{run}"],
    "init": ["parse"],
    "lab": ["alignment", "--folder", "{out}/lab", "--corpus", "{source}:{target}", "--run", "{run}", "--budget", "60s"],
    "parse": [f"{RELEASED}/parse", "the dog sees a cat"],
    "plan": ["--source", "{source}", "--target", "{target}", "--run", "{out}/planned", "--steps", "9"],
    "pronounce": [f"{RELEASED}/pronounce", "aba"],
    "quickstart": ["--run", "{out}/quickstart"],
    "serve": ["{run}", "--port", "0"],
    "shortlist": ["{run}"],
    "train": ["{recipe}"],
    "transcribe": ["{transcriber}", "{recordings}/valid.zip/valid-00000.wav"],
    "translate": ["{run}", "a b"],
    "watch": ["{run}", "--port", "0"],
}
# For those that do not end by themselves within seconds: the file and the words that show that one works, and its exit
# codes when it is asked to end.
SIGNS = {
    "quickstart": ("quickstart/metrics.jsonl", "loss", [75]),
    "serve": ("messages", "parameters", [0]),
    "watch": ("messages", "http://127.0.0.1:", [0, 128 + signal.SIGTERM]),
}


def wait_for_words(words, file):
    """Wait until a process has written these words."""
    until = time.monotonic() + 240
    while not file.exists() or words not in file.read_text():
        assert time.monotonic() < until, f"{file} has no {words!r}"
        time.sleep(0.02)


def files_below(folder):
    """The content of every file below a directory, if there is one."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def writers(path):
    """The commands that write this file of a run; what `train` writes is written by the quick start too."""
    found = {name for file in RUN_FILES if file.matches(path) for name in file.writer.split(", ")}
    return found | {"quickstart"} if "train" in found else found


@pytest.fixture
def names(trained, transcriber, morse_corpus, toy_files, toy_recipe, tmp_path):
    """What the words in braces stand for."""
    (tmp_path / "out").mkdir()
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(toy_recipe(tmp_path / "out" / "run", *TINY).to_toml())
    run = shutil.copytree(trained, tmp_path / "out" / "copy")
    source, target = toy_files
    speech = {"transcriber": transcriber, "recordings": morse_corpus}
    return {**speech, "run": run, "out": tmp_path / "out", "source": source, "target": target, "recipe": recipe}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_needs_no_network_and_writes_no_secret_and_no_other_file(name, names, nursery, tmp_path):
    messages, attempts = tmp_path / "out" / "messages", tmp_path / "attempts"
    arguments = [word.format(**names) for word in USES.get(name, ["{run}"])]
    before = files_below(names["run"])
    process = nursery.start(name, *arguments, err=messages, set=SECRETS, network=str(attempts))
    file, words, codes = SIGNS.get(name, ("", "", [0]))
    try:
        if words:
            wait_for_words(words, tmp_path / "out" / file)
    finally:
        if words:
            os.kill(process, signal.SIGTERM)
    assert nursery.wait(process) in codes, messages.read_text()
    assert not attempts.exists(), attempts.read_text()
    everything = files_below(tmp_path / "out")
    assert [path for path, content in everything.items() if CANARY.encode() in content] == []
    changed = [path for path, content in files_below(names["run"]).items() if before.get(path) != content]
    created = [path for folder in ("run", "quickstart") for path in files_below(tmp_path / "out" / folder)]
    assert [path for path in changed + created if name not in writers(path)] == []
    assert before.keys() <= files_below(names["run"]).keys()


def test_an_attempt_to_reach_another_machine_would_be_noticed(names, nursery, tmp_path):
    refused = ["serve", names["run"], "--host", "nowhere.invalid", "--without-token", "--open-to-all"]
    assert nursery.run(*refused, err=tmp_path / "err", network=str(tmp_path / "attempts")) == 2
    assert "getaddrinfo ('nowhere.invalid'" in (tmp_path / "attempts").read_text()


def test_importing_every_module_opens_no_connection():
    modules = """
import importlib, pkgutil, sys
def hear(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.bind"):
        sys.exit(f"{event} {arguments}")
sys.addaudithook(hear)
import dragoman
for module in pkgutil.walk_packages(dragoman.__path__, "dragoman."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(len(sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", modules], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 1000
