"""What a training has to say while it goes on, beyond the steps, validations and checkpoints of its session."""

from collections.abc import Callable
from dataclasses import dataclass

from dragoman.checkpoints import TrainingProgress
from dragoman.run import Run
from dragoman.tasks.task import EvaluationScores
from dragoman.training.session import TrainingEvent


@dataclass(frozen=True)
class ProgressUpdate:
    """Something that takes a while has come further."""

    description: str
    done: int
    total: int | None = None


@dataclass(frozen=True)
class TrainingPlan:
    """What is about to happen."""

    run: Run
    pairs: int
    valid_pairs: int
    unit: str  # what the task calls them
    vocabulary_sizes: tuple[int, int]  # source, target
    parameters: int
    steps: int
    steps_done: int
    steps_per_epoch: int
    seconds_per_step: float
    seconds_left: float  # that training.minutes leaves, infinitely many if it is not set
    device: str
    threads: int


@dataclass(frozen=True)
class TrainingFinished:
    """The training is over."""

    run: Run
    progress: TrainingProgress
    averaged_checkpoints: int  # checkpoints in the mean that became the model
    scores: EvaluationScores  # on the validation data, with the recipe's beam


OnEvent = Callable[[TrainingEvent | ProgressUpdate | TrainingPlan | TrainingFinished], None]
