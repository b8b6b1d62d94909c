"""What a training leaves behind, in a form in which two trainings can be compared bit for bit."""

import json
from dataclasses import replace

from safetensors.numpy import load_file

from dragoman import checkpoints
from dragoman.checkpoints import OPTIMIZER_FILE, WEIGHTS_FILE

TIMES = ("seconds", "tokens_per_second")


def weights(run):
    """The bytes of every tensor of the model, and of the newest checkpoint with its optimiser."""
    place, _ = checkpoints.newest_checkpoint(run / "checkpoints")
    files = [run / "model.safetensors", place / WEIGHTS_FILE, place / OPTIMIZER_FILE]
    return {f"{file.name} {name}": tensor.tobytes() for file in files for name, tensor in load_file(file).items()}


def journal(run):
    """Every line of the log, without times."""
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in entry.items() if name not in TIMES} for entry in entries]


def steps_saved(run):
    """The steps of which there are checkpoints."""
    return sorted(int(place.name) for place in checkpoints.checkpoint_dirs(run / "checkpoints"))


def progress(run):
    """How far the training had come, without times and without the recipe, which names the run's own folder."""
    found = checkpoints.read_progress(checkpoints.newest_checkpoint(run / "checkpoints")[0])
    return replace(found, seconds=0.0, elapsed=0.0, origin={**found.origin, "recipe": ""})


def everything(run):
    """All of it, and what the model card says of the scores."""
    card = (run / "README.md").read_text().split("## Scores")[1]
    return weights(run), journal(run), steps_saved(run), progress(run), card
