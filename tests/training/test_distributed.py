"""An update does not depend on the number of processes (an invariant of the design)."""

import json
import os
import subprocess
import sys

import pytest

import dragoman

# 72 pairs in an odd number of batches: one process has less work than the other in the last update of an epoch.
SETTINGS = [
    "training.steps=5", "training.accumulate=3", "model.dropout=0.3", "training.average=1",
    "training.checkpoint_every=5",
]  # fmt: skip


def test_two_processes_make_the_same_updates_as_one_dropout_included(toy_recipe, tmp_path):
    one = dragoman.train(toy_recipe(tmp_path / "one", *SETTINGS))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(toy_recipe(tmp_path / "two", *SETTINGS).to_toml())
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launched = subprocess.run(
        [*launcher, "-m", "dragoman", "train", str(recipe)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert launched.returncode == 0, launched.stderr
    assert launched.stderr.count("Training into") == 1  # only the main process reports
    expected, losses = (step_losses(run) for run in (one.folder, tmp_path / "two"))
    assert len(losses) == 5
    assert losses == pytest.approx(expected, rel=1e-3)  # gradients are summed in another order, and Adam amplifies that


def step_losses(run):
    """The training loss of every step."""
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [entry["loss"] for entry in entries if entry["event"] == "train"]
