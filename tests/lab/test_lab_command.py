"""`dragoman lab`: errors, output and continuing after an interruption."""

import os
import signal
import subprocess
import sys
import time

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["architecture"], 'Unknown experiment "architecture"; choose from'),
        (["masks", "--budget", "tomorrow"], '--budget "tomorrow" is not a duration'),
        (["masks", "--corpus", "nowhere"], '--corpus "nowhere" is neither'),
        (["heads", "--run", "nowhere"], "nowhere"),
        (["masks", "--run", "nowhere"], "masks trains its own"),
    ],
)  # fmt: skip
def test_errors_are_reported_before_anything_is_written(command, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    outcome = command("lab", *arguments, "--folder", tmp_path / "lab")
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_folder_that_cannot_be_created_is_an_error(command, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = command("lab", "schedule", "--folder", tmp_path / "file" / "lab")
    assert outcome.code == 2
    assert "this directory cannot be created" in outcome.err


def test_an_experiment_prints_its_findings_and_runs_once(command, tmp_path, toy_files, trained):
    corpus = f"{toy_files[0]}:{toy_files[1]}"
    arguments = ["lab", "alignment", "--folder", tmp_path / "lab", "--corpus", corpus, "--run", trained]
    first, again = (command(*arguments, "--budget", "60s") for _ in range(2))
    assert first.code == again.code == 0
    assert first.out == again.out
    assert first.out.startswith("Word alignment") and "have an alignment error rate of" in first.out
    assert "report.html" in first.err
    assert "already finished" in again.err and "already finished" not in first.err
    assert f"- model: {trained}" in (tmp_path / "lab" / "alignment" / "report.md").read_text()


@pytest.mark.long
def test_an_interrupted_experiment_continues(tmp_path, toy_files):
    corpus = f"{toy_files[0]}:{toy_files[1]}"
    arguments = ["lab", "schedule", "--folder", str(tmp_path / "lab"), "--corpus", corpus, "--budget", "30s"]
    line = [sys.executable, "-m", "dragoman", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(line, stderr=subprocess.PIPE, env=environment, text=True)
    until = time.monotonic() + 200
    while not list(tmp_path.glob("lab/schedule/models/*/metrics.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert "Run the same command to continue." in process.communicate(timeout=200)[1]
    assert process.returncode == 75
    done = subprocess.run(line, capture_output=True, env=environment, text=True, check=True)
    assert "report.html" in done.stderr
    assert done.stdout.strip()
    assert (tmp_path / "lab" / "schedule" / "report.md").exists()
