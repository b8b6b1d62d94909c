"""The experiments by their names; each is a module with a title, a question and a `run`."""

from typing import cast

from dragoman.lab import (
    alignment,
    architectures,
    complexity,
    heads,
    masks,
    memory,
    normalisation,
    positions,
    scaling,
    schedule,
    variations,
)
from dragoman.lab.driver import EXPERIMENT_SECONDS, Experiment

EXPERIMENTS = {
    "complexity": complexity,
    "scaling": scaling,
    "schedule": schedule,
    "masks": masks,
    "positions": positions,
    "normalisation": normalisation,
    "architectures": architectures,
    "variations": variations,
    "heads": heads,
    "alignment": alignment,
    "memory": memory,
}


def select_experiments(name: str) -> dict[str, Experiment]:
    """Return the experiment of a name, or all of them in their order."""
    return {each: cast(Experiment, EXPERIMENTS[each]) for each in (EXPERIMENT_SECONDS if name == "all" else [name])}
