"""Engines in their own processes."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from dragoman.bench.workers import EngineError, engine_spec, peak_memory_bytes, start_engines
from dragoman.errors import UserError

pytestmark = pytest.mark.slow


class Echo:
    """An engine that says what it was made with and asked, and who it is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run_turn(self, question: str) -> tuple[str, str, int]:
        return self.name, question, os.getpid()


class Broken:
    """An engine that cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no such engine")


class Fragile:
    """An engine that ends its process, or fails, when it is asked."""

    def run_turn(self, action: str) -> None:
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("I cannot")


class Interrupting:
    """An engine that interrupts the process that started it, and then would take ten minutes."""

    def run_turn(self) -> None:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)


class Memory:
    """An engine that says how much memory it has had."""

    def run_turn(self) -> int:
        return peak_memory_bytes()


@pytest.fixture(autouse=True)
def importable_engines(monkeypatch):
    """Let the processes of the engines import this file."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


def nobody(note: str) -> None:
    pytest.fail(f"nothing was to be said, but: {note}")


def test_every_engine_answers_from_a_process_of_its_own():
    with start_engines({"a": engine_spec(Echo, "A"), "b": engine_spec(Echo, "B")}, nobody) as workers:
        first, second, again = workers["a"].run_turn("1"), workers["b"].run_turn("2"), workers["a"].run_turn("3")
    assert (first[:2], second[:2], again[:2]) == (["A", "1"], ["B", "2"], ["A", "3"])
    assert first[2] == again[2] != second[2]
    assert os.getpid() not in (first[2], second[2])


def test_afterwards_no_process_is_left():
    with start_engines({"a": engine_spec(Echo, "A")}, nobody) as workers:
        process = workers["a"].child.process
        assert process.poll() is None
    assert process.poll() is not None


def test_an_interruption_ends_a_worker_in_the_middle_of_its_turn():
    started_here = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever other tests have left
    with pytest.raises(KeyboardInterrupt), start_engines({"a": engine_spec(Interrupting)}, nobody) as workers:
        started_here.append(workers["a"].child.process)
        workers["a"].run_turn()
    signal.signal(signal.SIGINT, before)
    assert started_here[0].poll() is not None


def test_the_memory_of_a_worker_is_its_own_and_not_inherited():
    """`getrusage` gave every engine the peak of the process that had started it."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells the peak of one program apart")
    much = b"x" * (300 << 20)
    with start_engines({"a": engine_spec(Memory)}, nobody) as workers:
        assert workers["a"].run_turn() < len(much) < peak_memory_bytes()


def test_a_rival_that_cannot_start_is_left_out_with_its_reason():
    notes: list[str] = []
    with start_engines({"rival": engine_spec(Broken), "a": engine_spec(Echo, "A")}, notes.append) as workers:
        assert list(workers) == ["a"]
    assert notes == ["rival is skipped: RuntimeError: no such engine"]


def test_without_us_there_is_nothing_to_compare():
    with pytest.raises(EngineError, match="no such engine"), start_engines({"dragoman": engine_spec(Broken)}, nobody):
        pytest.fail("it must not come so far")


def test_a_process_that_dies_is_named():
    with (
        start_engines({"rival": engine_spec(Fragile)}, nobody) as workers,
        pytest.raises(UserError, match="rival process exited with code -9"),
    ):
        workers["rival"].run_turn("die")


def test_an_exception_in_a_turn_brings_its_traceback_along():
    with (
        start_engines({"rival": engine_spec(Fragile)}, nobody) as workers,
        pytest.raises(EngineError, match="ValueError: I cannot"),
    ):
        workers["rival"].run_turn("fail")
