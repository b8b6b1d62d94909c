"""The mean of several checkpoints (section 6.1), which translates better than any one of them."""

from pathlib import Path

import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.run import read_tensors
from dragoman.training.checkpoints import WEIGHTS, lowest_loss, milestones, whole


def chosen(folder: Path, count: int, kind: str) -> list[Path]:
    """Return the newest `count` whole checkpoints, or those of lowest validation loss."""
    good = list(whole(folder))
    good = milestones(good) or good
    picked = good[:count] if kind == "last" else lowest_loss(good, count)
    if not picked:
        raise UserError(f"{folder} holds no whole checkpoint to average; `dragoman train` writes them.")
    return picked


def average(checkpoints: list[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of some checkpoints, summed in double precision."""
    total: dict[str, Tensor] = {}
    for place in checkpoints:
        for name, tensor in read_tensors(place / WEIGHTS)[0].items():
            total[name] = total.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}
