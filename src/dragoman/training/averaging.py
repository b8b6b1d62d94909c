"""The mean of several checkpoints (section 6.1), which translates better than any one of them."""

from pathlib import Path

import torch
from torch import Tensor

from dragoman.checkpoints import WEIGHTS_FILE, best_checkpoints, intact_checkpoints, scheduled_checkpoints
from dragoman.errors import UserError
from dragoman.run import read_tensors


def select_checkpoints(folder: Path, count: int, average_of: str) -> list[Path]:
    """Return the newest `count` whole checkpoints, or those of lowest validation loss."""
    good = list(intact_checkpoints(folder))
    good = scheduled_checkpoints(good) or good
    picked = good[:count] if average_of == "last" else best_checkpoints(good, count)
    if not picked:
        raise UserError(f"{folder} holds no whole checkpoint to average; `dragoman train` writes them.")
    return picked


def average_checkpoints(checkpoints: list[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of some checkpoints, summed in double precision."""
    total: dict[str, Tensor] = {}
    for place in checkpoints:
        for name, tensor in read_tensors(place / WEIGHTS_FILE)[0].items():
            total[name] = total.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}
