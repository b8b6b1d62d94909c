"""What a training has to say while it goes on, beyond the steps, validations and checkpoints of its session."""

from collections.abc import Callable
from dataclasses import dataclass

from dragoman.run import Run
from dragoman.tasks.task import Scores
from dragoman.training.checkpoints import Progress
from dragoman.training.session import Event


@dataclass(frozen=True)
class Working:
    """Something that takes a while has come further."""

    what: str
    done: int
    total: int | None = None


@dataclass(frozen=True)
class Plan:
    """What is about to happen."""

    run: Run
    pairs: int
    valid_pairs: int
    unit: str  # what the task calls them
    vocabulary: tuple[int, int]  # source, target
    parameters: int
    steps: int
    steps_done: int
    steps_per_epoch: int
    seconds_per_step: float
    seconds_left: float  # that training.minutes leaves, infinitely many if it is not set
    device: str
    threads: int


@dataclass(frozen=True)
class Finished:
    """The training is over."""

    run: Run
    progress: Progress
    averaged: int  # checkpoints in the mean that became the model
    scores: Scores  # on the validation data, with the recipe's beam


Listen = Callable[[Event | Working | Plan | Finished], None]
