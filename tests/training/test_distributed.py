"""An update does not depend on the number of processes (an invariant of the design)."""

import json
import os
import subprocess
import sys

import pytest

import dragoman
from dragoman.run import Run
from dragoman.training.distributed import World
from dragoman.training.events import ignore_event
from dragoman.training.prepare import open_corpora, prepare_data
from dragoman.training.trainer import Trainer

# 72 pairs in an odd number of batches: one process has less work than the other in the last update of an epoch.
SETTINGS = [
    "training.steps=5", "training.accumulate=3", "model.dropout=0.3", "training.average=1",
    "training.checkpoint_every=5", "training.minutes=600",
]  # fmt: skip


def test_two_processes_make_the_same_updates_as_one_dropout_included(toy_recipe, tmp_path):
    one = dragoman.train(toy_recipe(tmp_path / "one", *SETTINGS, "training.warmup=1"))
    recipe = tmp_path / "recipe.toml"
    # Without the warm-up: the main process plans it, and the other one has to follow.
    planned = toy_recipe(tmp_path / "two", *SETTINGS, "training.warmup=1").to_toml().replace("warmup = 1\n", "")
    recipe.write_text(planned)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launched = subprocess.run(
        [*launcher, "-m", "dragoman", "train", str(recipe)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert launched.returncode == 0, launched.stderr
    assert launched.stderr.count("Training run") == 1  # only the main process reports
    expected, losses = (step_losses(run) for run in (one.folder, tmp_path / "two"))
    assert len(losses) == 5
    assert losses == pytest.approx(expected, rel=1e-3)  # gradients are summed in another order, and Adam amplifies that


def step_losses(run):
    """The training loss of every step."""
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [entry["loss"] for entry in entries if entry["event"] == "train"]


RANK_PROGRAM = """
import os, sys, torch
from torch import distributed, nn
from dragoman.training.distributed import init_world

rank = int(os.environ["RANK"])
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
world = init_world()
assert (world.rank, world.size, world.is_main_process) == (rank, 2, rank == 0)
assert world.all_reduce_sum(rank + 1.5) == 4.0
statistics = [torch.full((2,), float(rank)), torch.full((1,), 3.0)]
world.all_reduce_mean(statistics)
assert [tensor.tolist() for tensor in statistics] == [[0.5, 0.5], [3.0]]
parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
parameters[0].grad = torch.tensor([1.0, rank])
if rank == 0:  # the other process has no batch left
    parameters[1].grad = torch.tensor([5.0])
world.all_reduce_gradients(parameters)
assert [parameter.grad.tolist() for parameter in parameters] == [[2.0, 1.0], [5.0]]
with world.main_process_first():
    if rank == 0:
        open(sys.argv[1] + ".first", "w").close()
    assert os.path.exists(sys.argv[1] + ".first")
"""


@pytest.mark.slow
def test_two_processes_add_gradients_and_average_running_statistics(tmp_path):
    """Batch normalisation counts in each process; all of them go on with the mean."""
    arguments = [sys.executable, "-c", RANK_PROGRAM, str(tmp_path / "store")]
    environment = {**os.environ, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(arguments, env={**environment, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    messages = [process.communicate(timeout=280)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], messages


def test_a_training_with_fewer_micro_batches_than_processes_warns(toy_recipe, tmp_path):
    recipe = toy_recipe(tmp_path / "run", "training.accumulate=1")
    run = Run(recipe.run)
    run.folder.mkdir()
    data = prepare_data(run, recipe, *open_corpora(recipe), ignore_event)
    notice = next(Trainer(run, recipe, data, world=World(rank=0, size=2)).fit())
    assert "Set training.accumulate to a multiple of 2." in notice.text
    assert notice.serious
