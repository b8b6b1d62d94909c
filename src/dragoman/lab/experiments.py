"""The experiments by their names; each is a module with a title, a question and a `run`."""

from typing import cast

from dragoman.lab import architectures, variations
from dragoman.lab.plan import SECONDS, Experiment

EXPERIMENTS = {
    "architectures": architectures,
    "variations": variations,
}


def chosen(name: str) -> dict[str, Experiment]:
    """Return the experiment of a name, or all of them in their order."""
    return {each: cast(Experiment, EXPERIMENTS[each]) for each in (SECONDS if name == "all" else [name])}
