"""What most tests of trainings and commands need: a toy language, a recipe that learns it, the program, processes."""

import gc
import io
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from dragoman.recipe import Recipe

# The same examples in every run, however slow the machine is: a failure is never a matter of chance.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("suite")

# A shell starts what runs in the background with Ctrl-C ignored, nohup ignores hang-ups, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).parent
# `make check` leaves out what starts Python processes or a browser, or trains a model.
SLOW_FOLDERS = ("browser", "lab", "learning", "promises", "released", "server", "stories", "watch")
SLOW_FIXTURES = {"browser", "nursery", "other_runs", "start", "toy_recipe", "trained", "transcriber"}
ONE_GROUP = ("browser", "server")  # the tests of such a folder share servers, so one process runs all of them

TOY = {
    "tokenizer": {"kind": "words", "size": 8000},
    "data": {"held_out": 8},
    "model": {"layers": 1, "width": 16, "inner_width": 16, "heads": 2, "dropout": 0.1, "norm": "post"},
    "training": {
        "steps": 8, "batch_tokens": 64, "accumulate": 1, "schedule": "noam", "warmup": 4, "clip": 0.0, "patience": 0,
        "validate_every": 100, "validation_sample": 2, "checkpoint_every": 3, "keep": 3, "average": 2, "threads": 1,
    },
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file in one process, so that each fixture is made once, and mark those that are slow."""
    for item in items:
        folder, *_ = item.path.relative_to(ROOT).parts
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(folder if folder in ONE_GROUP else str(item.path)))
        if folder in SLOW_FOLDERS or SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of garbage collection: it lives to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep prepared data out of the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAGOMAN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_curves() -> Iterator[None]:
    """Draw no curves.png after a training: that takes longer than the training of a toy. One story draws them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dragoman.training.trainer.draw_curves", lambda _run: None)
        yield


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute with one thread: several tests run side by side, and threads that wait for each other are slow."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draw the same random numbers in a test whatever ran before it."""
    torch.default_generator.manual_seed(1)  # torch.manual_seed(1) also records a stack trace for each kind of GPU


@pytest.fixture(scope="session")
def toy_pairs() -> list[tuple[str, str]]:
    """80 pairs of a language whose translation is to shout it backwards."""
    drawn = random.Random(1)
    lines = [[drawn.choice("abcdefgh") for _ in range(drawn.randint(2, 7))] for _ in range(80)]
    return [(" ".join(line), " ".join(reversed(line)).upper()) for line in lines]


@pytest.fixture(scope="session")
def toy_files(tmp_path_factory: pytest.TempPathFactory, toy_pairs: list[tuple[str, str]]) -> tuple[Path, Path]:
    """The toy language in two files."""
    folder = tmp_path_factory.mktemp("toy")
    files = folder / "toy.source", folder / "toy.target"
    for file, lines in zip(files, zip(*toy_pairs, strict=True), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines))
    return files


@pytest.fixture(scope="session")
def toy_recipe(toy_files: tuple[Path, Path]) -> Callable[..., Recipe]:
    """Return a recipe that trains on the toy language within a second: toy_recipe(run, "training.steps=9", …)."""
    files = {"source": str(toy_files[0]), "target": str(toy_files[1])}

    def recipe(run: Path, *overrides: str) -> Recipe:
        return Recipe.from_table({"run": str(run), "data": files}, overrides, defaults=TOY)

    return recipe


@pytest.fixture(scope="session")
def trained(toy_recipe: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has been trained, to be read and not to be changed."""
    import dragoman

    return dragoman.train(toy_recipe(tmp_path_factory.mktemp("runs") / "trained", "training.validate_every=4")).folder


OTHER_DATA = {
    "pronounce": [f"{word}\t{' '.join(word.upper())}" for word in ("aba", "bab", "abba", "baab", "aab", "bba", "abab")],
    "inflect": [f"{word}\t{word}o\tV;PST" for word in ("aba", "bab", "abba", "baab", "aab", "bba", "abab")],
    "parse": [
        f"(TOP (S (NP (DT the) (NN {one})) (VP (VBZ sees) (NP (DT a) (NN {other})))))"
        for one in ("dog", "cat", "cow") for other in ("dog", "cat", "cow")
    ],
    "generate": [f"The {one} sees a {other}." for one in ("dog", "cat", "cow") for other in ("dog", "cat", "cow")],
}  # fmt: skip
OTHER_TOKENIZERS = {"parse": {"size": 300}, "generate": {"kind": "characters"}}


@pytest.fixture(scope="session")
def other_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each task but translation, hardly trained, to be read and not to be changed."""
    import dragoman

    folder, runs = tmp_path_factory.mktemp("tasks"), {}
    for task, lines in OTHER_DATA.items():
        files = {"file": folder / f"{task}.txt", "valid_file": folder / f"{task}.valid.txt"}
        for file in files.values():
            file.write_text("".join(f"{line}\n" for line in lines))
        table = {
            "task": task, "run": str(folder / task), "data": {name: str(file) for name, file in files.items()},
            "model": {**TOY["model"], "norm": "pre", "dropout": 0.15}, "tokenizer": OTHER_TOKENIZERS.get(task, {}),
            "training": {
                **TOY["training"], "steps": 4, "validate_every": 4, "schedule": "cosine", "rate": 0.0015, "clip": 1.0,
            },
        }  # fmt: skip
        runs[task] = dragoman.train(Recipe.from_table(table)).folder
    return runs


@pytest.fixture(scope="session")
def morse_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a few recordings of Morse code: train.tsv, valid.tsv and their archives."""
    from dragoman.corpora.morse import write_morse_corpus

    folder = tmp_path_factory.mktemp("morse")
    write_morse_corpus(folder, {"train": 16, "valid": 4})
    return folder


@pytest.fixture(scope="session")
def transcriber_recipe(morse_corpus: Path) -> Callable[..., Recipe]:
    """Return a recipe that trains on the recordings within seconds: transcriber_recipe(run, "training.steps=9", …)."""
    table = {
        "task": "transcribe",
        "data": {"file": str(morse_corpus / "train.tsv"), "valid_file": str(morse_corpus / "valid.tsv")},
        "audio": {"rate": 8000, "speeds": [0.9, 1.0]},
        "model": {
            "layers": 1, "decoder_layers": 1, "width": 16, "inner_width": 16, "heads": 2, "dropout": 0.1,
            "norm": "pre", "frame_width": 16, "ctc_weight": 0.3,
        },
        "training": {
            "steps": 4, "batch_tokens": 300, "accumulate": 1, "schedule": "linear", "rate": 0.001, "warmup": 1,
            "clip": 1.0, "validate_every": 4, "checkpoint_every": 2, "patience": 0, "threads": 1, "average": 1,
            "validation_sample": 2,
        },
        "decoding": {"beam": 2},
    }  # fmt: skip

    def recipe(run: Path, *overrides: str) -> Recipe:
        return Recipe.from_table({**table, "run": str(run)}, overrides)

    return recipe


@pytest.fixture(scope="session")
def transcriber(transcriber_recipe: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a transcriber, hardly trained, to be read and not to be changed."""
    pytest.importorskip("soundfile", reason="needs soundfile")
    import dragoman

    return dragoman.train(transcriber_recipe(tmp_path_factory.mktemp("runs") / "transcriber")).folder


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run `dragoman` with these arguments in this process; an exception that it does not expect fails the test."""
    from dragoman.cli.main import main

    def called(*arguments: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dragoman", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Outcome(left.value.code, said.out, said.err)

    return called


class Nursery:
    """Starts real `dragoman` processes without importing torch anew for each: see nursery.py."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("nursery.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def ask(self, **request: Any) -> int:
        """Send a request and return the number that answers it."""
        assert self.process.stdin and self.process.stdout, "both are pipes"
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def start(self, *arguments: object, err: Path, **options: Any) -> int:
        """Start a process whose messages go to a file, and return its number."""
        return self.ask(arguments=[*map(str, arguments)], err=str(err), **options)

    def wait(self, number: int) -> int:
        """Wait for a process; return its exit code, or minus the signal that ended it."""
        return self.ask(wait=number)

    def run(self, *arguments: object, err: Path, **options: Any) -> int:
        """Start a process and wait for it."""
        return self.wait(self.start(*arguments, err=err, **options))


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Something that starts processes."""
    nursery = Nursery()
    yield nursery
    assert nursery.process.stdin, "it is a pipe"
    nursery.process.stdin.close()
    nursery.process.wait(60)
