"""The events of a training, and the request to stop one.

`Trainer.fit` yields them; the command line draws them, a test collects them. `TrainingStep` is defined by the loop.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from dragoman.checkpoints import TrainingProgress
from dragoman.run import Run
from dragoman.tasks.events import Notice, ProgressUpdate
from dragoman.tasks.task import EvaluationScores
from dragoman.training.loop import TrainingStep
from dragoman.training.planner import Plan


@dataclass(frozen=True)
class TrainingPlan:
    """What a training is about to do; the first event after the data is prepared."""

    run: Run
    pairs: int
    valid_pairs: int
    unit: str  # what the task calls a pair
    vocabulary_sizes: tuple[int, int]  # source, target
    parameters: int
    steps: int
    steps_done: int
    steps_per_epoch: int
    seconds_per_step: float  # measured on this machine; 0 if no step is left
    seconds_left: float  # of training.minutes, without the time for scoring; infinite if that is not set
    device: str
    threads: int
    ends_by_time: bool = False  # whether the minutes are over before the last step


@dataclass(frozen=True)
class RecipePlanned:
    """The planner has chosen the settings that the recipe left open."""

    plan: Plan


@dataclass(frozen=True)
class EndReplanned:
    """Training would exceed its time limit, so that an earlier last step was planned."""

    step: int
    last_step: int


@dataclass(frozen=True)
class ValidationSample:
    """A validation example with the model's present output; every validation has the same examples."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class ValidationResult:
    """The validation loss and score of a step."""

    step: int
    loss: float  # not smoothed, mean per target token
    score: float | None = None  # of the examples that were decoded
    measure: str = ""  # the name of the score, such as "BLEU"
    samples: tuple[ValidationSample, ...] = ()  # a terminal shows the first one
    is_best: bool = False  # the lowest loss so far

    @property
    def perplexity(self) -> float:
        """The exponential of the loss."""
        return math.exp(min(self.loss, 50.0))


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint was written."""

    step: int


@dataclass(frozen=True)
class ComparedWeights:
    """The mean of some checkpoints, and its score on validation examples."""

    steps: tuple[int, ...]  # of the checkpoints, newest first
    loss: float = math.nan
    score: float | None = None  # of the task's validation metric

    def __str__(self) -> str:
        if len(self.steps) == 1:
            return f"the checkpoint at step {self.steps[0]:,}"
        return f"the average of the checkpoints at steps {', '.join(f'{step:,}' for step in reversed(self.steps))}"


@dataclass(frozen=True)
class TrainingFinished:
    """The training is over and the model is written and scored."""

    run: Run
    progress: TrainingProgress
    weights: tuple["ComparedWeights", ...]  # the candidates for the model, best first; the first one was written
    scores: EvaluationScores  # on the validation data, with the recipe's beam


TrainingEvent = (
    Notice
    | ProgressUpdate
    | RecipePlanned
    | TrainingPlan
    | TrainingStep
    | EndReplanned
    | ValidationResult
    | CheckpointSaved
    | TrainingFinished
)
OnTrainingEvent = Callable[[TrainingEvent], None]


def ignore_event(_event: object) -> None:
    """Do nothing with an event."""


class ValidationInterrupted(Exception):
    """Raised inside a validation to leave it when a stop was requested."""


class StopRequest:
    """A request to stop, usually from a signal handler; a training honours it at the end of a step."""

    def __init__(self) -> None:
        self.requested = False
        self.deferred = False  # True while there is a step to finish and a state to save

    def request(self) -> None:
        """Stop after the current step; at once if nothing needs to be saved or this is the second request."""
        if self.requested or not self.deferred:
            raise KeyboardInterrupt
        self.requested = True

    def raise_if_requested(self) -> None:
        """Raise `ValidationInterrupted` if a stop was requested."""
        if self.requested:
            raise ValidationInterrupted
