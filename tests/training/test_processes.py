"""Several processes train as one with a larger batch would (an invariant of the design)."""

import os
import subprocess
import sys

import torch

import dragoman
from dragoman.run import read_tensors

SETTINGS = ["training.steps=5", "model.dropout=0.0", "training.average=1", "training.checkpoint_every=5"]


def test_two_processes_make_the_updates_of_one_with_twice_the_batches(toy_recipe, tmp_path):
    one = dragoman.train(toy_recipe(tmp_path / "one", *SETTINGS, "training.accumulate=2"))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(toy_recipe(tmp_path / "two", *SETTINGS).to_toml())
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launched = subprocess.run(
        [*launcher, "-m", "dragoman", "train", str(recipe)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert launched.returncode == 0, launched.stderr
    assert launched.stderr.count("Training into") == 1  # the first process speaks for all
    expected, found = (read_tensors(run / "model.safetensors")[0] for run in (one.folder, tmp_path / "two"))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)
