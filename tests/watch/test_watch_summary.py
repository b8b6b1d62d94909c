"""What the page is told, at every moment of a run's life."""

import json
import os
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest

from dragoman.run import Run
from dragoman.watch import run_status
from dragoman.watch.summary import MAX_POINTS, WatchedRun, downsample


def test_a_finished_run_is_told_whole(trained):
    summary = WatchedRun(trained).summary()
    assert (summary["run"], summary["status"], summary["step"], summary["steps"]) == ("trained", "finished", 8, 8)
    assert summary["checkpoints"] == [4, 6, 8]
    assert summary["validations"] == [4, 8]
    assert [step for step, _ in summary["curves"]["loss"]["training"]] == list(range(1, 9))
    assert [step for step, _ in summary["curves"]["score"]["validation"]] == [4, 8]
    assert set(summary["curves"]) == {"loss", "perplexity", "score", "rate", "speed"}
    assert summary["measure"] == "BLEU"
    assert summary["best_validation"]["step"] in (4, 8)
    assert set(summary["samples"][0]) == {"source", "reference", "translation"}
    assert summary["facts"]["Model"] == "1 + 1 layers, width 16, 2 heads"
    assert summary["seconds_left"] is None
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize(
    ("recipe", "facts"),
    [
        ('task = "parse"\n[data]\nfile = "trees"\nvalid_file = "more"', {"Task": "parse", "Text": "trees"}),
        (
            'task = "inflect"\n[data]\ncorpora = [{file = "b"}, {file = "d"}]',
            {"Task": "inflect", "Text": "b and d"},
        ),
        ('[data]\nsource = "a.de"\ntarget = "a.en"', {"Task": "translate", "Text": "a.de and a.en"}),
    ],
)
def test_the_facts_name_the_task_and_its_files(tmp_path, recipe, facts):
    (tmp_path / "recipe.toml").write_text(recipe + "\n[model]\nlayers = 2\n")
    shown = WatchedRun(tmp_path).summary()["facts"]
    assert {name: shown[name] for name in facts} == facts


def test_a_model_of_one_stack_has_its_layers_counted_once(tmp_path):
    (tmp_path / "recipe.toml").write_text('[model]\narchitecture = "decoder_only"\nlayers = 3\nwidth = 8\nheads = 2\n')
    assert WatchedRun(tmp_path).summary()["facts"]["Model"] == "3 layers, width 8, 2 heads"


def test_a_decoder_of_its_own_depth_is_told(tmp_path):
    (tmp_path / "recipe.toml").write_text("[model]\nlayers = 3\ndecoder_layers = 1\nwidth = 8\nheads = 2\n")
    assert WatchedRun(tmp_path).summary()["facts"]["Model"] == "3 + 1 layers, width 8, 2 heads"


def test_samples_of_every_validation_can_be_asked_for(trained):
    watched = WatchedRun(trained)
    watched.summary()
    assert watched.samples(4) and watched.samples(8)
    assert watched.samples(5) is None


@pytest.mark.parametrize("content", [None, "", "not toml [", "training = 7", "[training]\nsteps = 'x'"])
def test_a_run_that_is_not_there_or_half_written_is_waited_for(tmp_path, content):
    if content is not None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "recipe.toml").write_text(content)
    summary = WatchedRun(tmp_path / "run").summary()
    assert (summary["status"], summary["step"], summary["steps"], summary["checkpoints"]) == ("missing", 0, None, [])
    assert summary["curves"]["loss"] == {"training": [], "validation": []}


def test_a_run_that_is_erased_and_begun_anew_is_followed(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    watched = WatchedRun(run)
    assert watched.summary()["step"] == 8
    Run(run).erase()
    summary = watched.summary()
    assert (summary["status"], summary["step"]) == ("missing", 0)
    (run / "metrics.jsonl").write_text('{"event": "train", "step": 1, "nll": 3.0}\n')
    assert watched.summary()["step"] == 1


HOLD = """
import sys
from dragoman.run import Run
with Run(sys.argv[1]).lock():
    print(flush=True)
    sys.stdin.read()  # until it is killed
"""


def test_a_training_that_holds_its_lock_is_going_on_until_it_dies(tmp_path):
    run = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout
    holder.stdout.readline()
    assert run_status.training_status(Run(run)) == "preparing"
    (run / "metrics.jsonl").write_text('{"event": "train", "step": 1}\n')
    assert run_status.training_status(Run(run)) == "training"
    holder.kill()
    holder.wait()
    assert run_status.training_status(Run(run)) == "stopped"
    (run / "README.md").write_text("done")
    assert run_status.training_status(Run(run)) == "finished"


def test_a_process_that_only_has_the_number_of_the_trainer_is_none(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    (tmp_path / ".lock").write_text(json.dumps({"process": os.getpid(), "host": socket.gethostname()}))
    assert run_status.training_status(Run(tmp_path)) == "stopped"


def test_looking_never_takes_the_lock(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    with Run(run).lock():
        run_status.training_status(Run(run))
    before = (run / ".lock").read_bytes()
    run_status.training_status(Run(run))
    assert (run / ".lock").read_bytes() == before


def test_a_training_on_another_machine_is_known_by_its_writing(tmp_path):
    (tmp_path / ".lock").write_text(json.dumps({"process": 1, "host": "elsewhere"}))
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    assert run_status.training_status(Run(tmp_path)) == "training"
    os.utime(tmp_path / "metrics.jsonl", (1, 1))
    assert run_status.training_status(Run(tmp_path)) == "stopped"


def test_the_time_left_is_that_of_the_steps_left(tmp_path, monkeypatch):
    monkeypatch.setattr(run_status, "is_locked", lambda _: True)
    (tmp_path / "recipe.toml").write_text("[training]\nsteps = 100\n")
    lines = [json.dumps({"event": "train", "step": step, "seconds": 2.0 * step}) + "\n" for step in range(1, 61)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    assert WatchedRun(tmp_path).summary()["seconds_left"] == pytest.approx(80)


def test_an_end_that_was_planned_again_replaces_the_recipes(tmp_path, monkeypatch):
    monkeypatch.setattr(run_status, "is_locked", lambda _: True)
    (tmp_path / "recipe.toml").write_text("[training]\nsteps = 100\n")
    lines = [json.dumps({"event": "train", "step": step, "seconds": 2.0 * step}) + "\n" for step in range(1, 61)]
    (tmp_path / "metrics.jsonl").write_text("".join([*lines, '{"event": "replan", "step": 60, "last_step": 70}\n']))
    summary = WatchedRun(tmp_path).summary()
    assert summary["steps"] == 70
    assert summary["seconds_left"] == pytest.approx(20)


def test_a_long_training_is_drawn_with_few_points_that_keep_its_level_and_its_end():
    steps = np.arange(1.0, 100_001)
    points = downsample(steps, 5 + np.where(steps % 2, 1.0, -1.0))
    assert len(points) == MAX_POINTS
    assert points[-1][0] == 100_000
    assert all(abs(value - 5) < 0.02 for _, value in points)


def test_steps_without_a_number_leave_no_gap():
    assert downsample(np.array([1.0, 2, 3]), np.array([1.0, np.nan, 3])) == [[1, 1.0], [3, 3.0]]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["FIFO", "device"])
@pytest.mark.parametrize("name", ["recipe.toml", "metrics.jsonl", ".lock", "checkpoints", "README.md"])
def test_the_page_of_a_run_with_other_than_regular_files_shows_what_is_left(trained, tmp_path, name, make):
    run = shutil.copytree(trained, tmp_path / "run")
    if (run / name).is_dir():
        shutil.rmtree(run / name)
    else:
        (run / name).unlink()
    make(run / name)
    summary = WatchedRun(run).summary()
    assert (summary["facts"] == {}, summary["checkpoints"] == []) == (name == "recipe.toml", name == "checkpoints")
