"""Averaging checkpoints (section 6.1): the mean of the last ones translates better than any one of them."""

from pathlib import Path

import torch
from torch import Tensor

from dragoman.checkpoints import (
    WEIGHTS_FILE,
    best_checkpoints,
    intact_checkpoints,
    read_progress,
    scheduled_checkpoints,
)
from dragoman.errors import UserError
from dragoman.model_files import read_tensors, read_tokenizers, write_weights
from dragoman.run import Run


def select_checkpoints(folder: Path, count: int, average_of: str) -> list[Path]:
    """Return the newest `count` intact checkpoints ("last"), or those of lowest validation loss ("best")."""
    intact = list(intact_checkpoints(folder))
    intact = scheduled_checkpoints(intact) or intact
    selected = intact[:count] if average_of == "last" else best_checkpoints(intact, count)
    if not selected:
        raise UserError(f"{folder} has no intact checkpoint to average; `dragoman train` writes them.")
    return selected


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of some checkpoints, summed in double precision."""
    sums: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in read_tensors(path / WEIGHTS_FILE)[0].items():
            sums[name] = sums.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in sums.items()}


def write_averaged_weights(run: Run, count: int, average_of: str) -> list[int]:
    """Write the mean of some checkpoints as the weights of the run; return the steps of the checkpoints."""
    paths = select_checkpoints(run.checkpoints_dir, count, average_of)
    source, target = read_tokenizers(run, run.read_recipe().tokenizer.joint)
    steps = [int(path.name) for path in paths]
    metadata = {
        "steps": " ".join(map(str, steps)),
        "source_tokenizer": source.fingerprint,
        "target_tokenizer": target.fingerprint,
        "source_vocabulary": str(len(source)),
        "target_vocabulary": str(len(target)),
        "longest_source": str(read_progress(paths[0]).longest),
    }
    write_weights(run.weights_file, average_checkpoints(paths), metadata)
    return steps
