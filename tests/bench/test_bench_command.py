"""`dragoman bench` as a person uses it."""

import json
import os
import signal
import socket

import pytest

from dragoman.bench import workers
from dragoman.bench.benchmark import run_benchmark
from dragoman.bench.config import QUICK_WORKLOAD, BenchmarkConfig
from dragoman.processes import MessageSocket
from dragoman.training.events import StopRequest

pytestmark = pytest.mark.slow


class ForkedChild:
    """A child process that is forked, and so has imported torch already."""

    def __init__(self, _module, **_streams):
        own, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            try:
                workers.serve_turns(MessageSocket(theirs))
            finally:
                os._exit(0)
        theirs.close()
        self.channel, self.process = MessageSocket(own), self

    def terminate(self):
        os.kill(self.pid, signal.SIGKILL)

    def stop(self):
        self.channel.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture(autouse=True)
def forked_engines(monkeypatch):
    """Fork the engines instead of importing torch anew in each.

    The commands use one thread: OpenMP threads of a process that is forked hang in its child.
    """
    monkeypatch.setattr(workers, "ChildProcess", ForkedChild)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with some files of text, to be in."""
    (tmp_path / "two").write_text("a b\nc d\n")
    (tmp_path / "three").write_text("A\nB\nC\n")
    (tmp_path / "blank").write_text(" \n \n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_quick_look_writes_figures_a_table_and_a_picture(command, folder):
    pytest.importorskip("ctranslate2")
    outcome = command("bench", "--quick", "--threads", 1)
    assert outcome.code == 0, outcome.err
    figures = json.loads((folder / "bench" / "bench.json").read_text())
    assert [each["engine"] for each in figures["training"]] == [
        "dragoman", "torch.nn.Transformer float32", "torch.nn.Transformer bfloat16",
    ]  # fmt: skip
    assert [(each["engine"], each["beam"]) for each in figures["decoding"]] == [
        (engine, beam)
        for beam in (1, 4)
        for engine in ("dragoman float32", "dragoman int8", "CTranslate2 float32, 1 × 1", "CTranslate2 int8, 1 × 1")
    ]
    assert {tuple(each["output_lengths"]) for each in figures["decoding"]} == {(25, 25)}
    assert "built-in phrasebook" in outcome.out
    assert "× best CTranslate2" in outcome.out
    assert (folder / "bench" / "bench.md").read_text().count("| dragoman") == 9
    assert (folder / "bench" / "bench.png").stat().st_size > 5000
    assert "Wrote bench/bench.json" in outcome.err


def test_a_wish_to_stop_is_granted_after_a_whole_round_with_a_report(folder):
    stop, rounds = StopRequest(), []

    def listen(event):
        said = getattr(event, "description", "")
        rounds.append(said) if "round" in said else None
        if len(rounds) == 2 and not stop.requested:
            stop.request()

    plan = BenchmarkConfig(
        only="training", sizes=("tiny", "small"), repeats=5, turn_seconds=0.0, workload=QUICK_WORKLOAD
    )
    report = run_benchmark(plan, listen, stop)
    assert {result.size for result in report.training} == {"tiny"}
    assert all(len(result.speed.values) == 2 for result in report.training)
    assert "Training, tiny: stopped after round 2 of 5." in report.notes


def test_a_run_translates_with_its_own_weights_and_is_scored(command, folder, trained, toy_files):
    files = ["--source", toy_files[0], "--reference", toy_files[1]]
    outcome = command("bench", trained, *files, "--only", "decoding", "--quick", "--threads", 1, "-o", "here")
    assert outcome.code == 0, outcome.err
    figures = json.loads((folder / "here" / "bench.json").read_text())
    assert figures["training"] == []
    assert all(each["model"] == "trained" and 0 <= each["bleu"] <= 100 for each in figures["decoding"])
    assert f"trained weights; 12 sentences of {toy_files[0]}" in outcome.out


def test_a_run_is_trained_in_its_own_size_on_its_own_text(command, folder, trained, toy_files):
    outcome = command("bench", trained, "--only", "training", "--quick", "--threads", 1, "--bfloat16")
    assert outcome.code == 0, outcome.err
    figures = json.loads((folder / "bench" / "bench.json").read_text())
    assert [each["size"] for each in figures["training"]] == ["trained"] * 4
    assert f"pairs of {toy_files[0]} and {toy_files[1]}" in outcome.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "cooking"], '--only "cooking" is unknown; choose training or decoding.'),
        (["--size", "bse"], '--size "bse" is unknown; choose tiny, small, base, big, wide. Did you mean "base"?'),
        (["--target", "two"], "--target is given but --source is not; give both files of a parallel text."),
        (["--source", "two"], "--source is given but --target is not; training needs both files."),
        (["--source", "two", "--target", "three"], "two has 2 lines but three has 3"),
        (["--source", "two", "--target", "three", "--only", "decoding"], "two has 2 lines but three has 3"),
        (["--source", "blank", "--target", "blank"], "blank and blank: no pair has text on both sides"),
        (["--source", "blank", "--only", "decoding", "--threads", 1], "blank: no sentence can be translated"),
        (["--source", "missing", "--target", "two"], "missing: no such file"),
        (["missing"], "missing: no such run directory."),
        (["-o", "two"], "two: cannot create this directory (File exists); choose another --output."),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(command, folder, options, words):
    refused = command("bench", "--quick", *options)
    assert refused.code == 2
    assert words in refused.err
    assert refused.out == ""


def test_a_run_has_its_own_size(command, folder, trained):
    refused = command("bench", trained, "--only", "decoding", "--size", "tiny")
    assert refused.code == 2
    assert (
        "--size has no effect with RUN and --only decoding; remove --size, or remove RUN to decode with random weights."
        in refused.err
    )


@pytest.mark.parametrize("options", [["--repeats", 0], ["--threads", 0], ["--sentences", 0], ["--seconds", -1]])
def test_numbers_out_of_range_are_refused(command, options):
    assert command("bench", *options).code == 2
