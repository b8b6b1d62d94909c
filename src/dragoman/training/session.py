"""A training from its first step to its last: the loop, with validations, checkpoints and the journal around it.

A stream of events comes out; whoever drives it draws a bar, or just waits for the end.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import torch

from dragoman import checkpoints
from dragoman.checkpoints import TrainingProgress
from dragoman.errors import TrainingStopped, UserError
from dragoman.models.transducer import Network
from dragoman.parallel import ThreadPool
from dragoman.recipe import TrainingConfig
from dragoman.run import Run
from dragoman.training.distributed import World
from dragoman.training.loop import BatchesOfStep, TrainingStep, train
from dragoman.training.metrics_log import MetricsLog, draw_curves

_DRAW_EVERY_SECONDS = 60.0


@dataclass(frozen=True)
class ValidationSample:
    """An example of the validation data, always the same ones, and what the model makes of it by now."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class ValidationResult:
    """How good the model was at a step, on sentences that it is not trained on."""

    step: int
    loss: float  # not smoothed, mean per target token
    score: float | None = None  # of some examples that were tried
    measure: str = ""  # what kind of score that is: "BLEU"
    samples: tuple[ValidationSample, ...] = ()  # the first is the one that a terminal has room for
    is_best: bool = False  # than at every validation before

    @property
    def perplexity(self) -> float:
        """The number of pieces among which the model is, so to speak, undecided."""
        return math.exp(min(self.loss, 50.0))


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint was written."""

    step: int


@dataclass(frozen=True)
class Notice:
    """Something that the person who waits should know."""

    text: str
    serious: bool = False


TrainingEvent = TrainingStep | ValidationResult | CheckpointSaved | Notice


class ValidationInterrupted(Exception):
    """Raised inside a validation to leave it when the person does not want to wait."""


class StopRequest:
    """The wish to stop, sent by a signal; a training grants it at the end of a step."""

    def __init__(self) -> None:
        self.requested = False
        self.deferred = False  # True while there is a step to finish and a state to save

    def request(self) -> None:
        """Ask to stop: at the end of the step, or at once if nothing is at stake or this is the second time."""
        if self.requested or not self.deferred:
            raise KeyboardInterrupt
        self.requested = True

    def raise_if_requested(self) -> None:
        """Leave a validation if the wish has come meanwhile."""
        if self.requested:
            raise ValidationInterrupted


ValidateStep = Callable[[int], ValidationResult]


@dataclass
class TrainingSession:
    """One training of one model into one run."""

    run: Run
    config: TrainingConfig
    model: Network
    optimizer: torch.optim.Optimizer
    batches: BatchesOfStep
    validate: ValidateStep
    width: int
    world: World
    pool: ThreadPool
    stop: StopRequest
    progress: TrainingProgress
    last_saved_step: int = 0
    drawn_at: float = 0.0

    def events(self) -> Iterator[TrainingEvent]:
        """Train to the plan's last step, or until patience or the person runs out of it."""
        self.last_saved_step, self.drawn_at = self.progress.step, time.monotonic()
        self.metrics_log = MetricsLog(self.run, self.progress) if self.world.is_main_process else None
        self.stop.deferred = True
        try:
            yield from self.run_pending_validation()
            if not self.should_end_early():
                yield from self.run_steps()
        finally:
            self.stop.deferred = False
            if self.metrics_log:
                self.metrics_log.close()

    def run_pending_validation(self) -> Iterator[TrainingEvent]:
        """Validate a step whose validation was interrupted."""
        if self.progress.step and self.is_validation_due() and self.progress.validated_at != self.progress.step:
            yield from self.run_validation()
            yield from self.save_checkpoint()
            self.raise_if_stopping()

    def run_steps(self) -> Iterator[TrainingEvent]:
        """Make the steps that are left, with all that belongs to each."""
        began_at = time.perf_counter()
        loop = train(
            self.model,
            self.optimizer,
            self.batches,
            self.config,
            width=self.width,
            steps_done=self.progress.step,
            skipped=self.progress.skipped,
            world=self.world,
            pool=self.pool,
        )
        for step in loop:
            now = time.perf_counter()
            self.record_step(step, now - began_at)
            began_at = now
            yield step
            if step.skipped:
                yield self.record_skipped_step(step)
            if self.is_validation_due():
                yield from self.run_validation()
            if self.is_checkpoint_due() or self.should_stop():
                yield from self.save_checkpoint()
            self.raise_if_stopping()
            if self.should_end_early():
                yield Notice(f"{self.early_end_reason()}: training ends early.")
                return
            began_at = time.perf_counter() if self.progress.validated_at == step.number else began_at

    def should_stop(self) -> bool:
        """Say whether any of the processes was asked to stop: all leave after the same step, or none."""
        return self.world.all_reduce_sum(float(self.stop.requested)) > 0

    def raise_if_stopping(self) -> None:
        """Grant the wish to stop if this step is saved; a wish that came too late for that waits for the next one."""
        saved = (
            self.world.all_reduce_sum(float(self.world.is_main_process and self.last_saved_step == self.progress.step))
            > 0
        )
        if saved and self.should_stop():
            raise TrainingStopped(f"Stopped after step {self.progress.step}; all is saved. Go on with --resume.")

    def record_step(self, step: TrainingStep, seconds: float) -> None:
        """Note a step in the progress and in the journal. Processes whose clocks differ agree on the mean."""
        if self.config.minutes:
            seconds = self.world.all_reduce_sum(seconds) / self.world.size
        self.progress = self.progress.with_changes(
            step=step.number,
            skipped=step.skipped,
            skipped_ever=self.progress.skipped_ever + bool(step.skipped),
            seconds=self.progress.seconds + seconds,
        )
        if self.metrics_log:
            self.metrics_log.write(
                "train",
                step.number,
                loss=step.loss,
                nll=step.nll,
                gradient_norm=step.gradient_norm,
                rate=step.learning_rate,
                tokens=step.tokens,
                skipped=step.skipped,
                tokens_per_second=round(step.tokens / seconds),
                seconds=round(self.progress.seconds, 2),
            )

    def record_skipped_step(self, step: TrainingStep) -> Notice:
        """Write down which pairs were in a step that had to be skipped."""
        if self.metrics_log:
            self.metrics_log.write_skipped(step.number, step.loss, step.line_numbers)
        return Notice(
            f"Step {step.number} was skipped: its loss is {step.loss}, its gradient's length {step.gradient_norm}. "
            f"The line numbers of its {len(step.line_numbers)} pairs are in {self.run.skipped_file}.",
            serious=True,
        )

    def is_validation_due(self) -> bool:
        """Say whether the present step is one to validate."""
        step = self.progress.step
        return step % self.config.validate_every == 0 or step == self.config.steps or self.is_out_of_time()

    def run_validation(self) -> Iterator[TrainingEvent]:
        """Validate, and note what came out. An interrupted validation is saved as not done and repeated on resuming."""
        step = self.progress.step
        try:
            found = self.validate(step)
        except ValidationInterrupted:
            return
        best = self.progress.best_loss
        better = best is None or found.loss < best
        found = replace(found, is_best=better)
        self.progress = self.progress.with_changes(
            validated_at=step,
            loss=found.loss if math.isfinite(found.loss) else None,
            best_step=step if better else self.progress.best_step,
            best_loss=found.loss if better and math.isfinite(found.loss) else best,
            stale=0 if better else self.progress.stale + 1,
        )
        if self.metrics_log:
            self.metrics_log.write(
                "validation", step, loss=found.loss, perplexity=found.perplexity, score=found.score,
                measure=found.measure, samples=[asdict(sample) for sample in found.samples],
                seconds=round(self.progress.seconds, 2),
            )  # fmt: skip
            self.draw_curves_if_due()
        yield found

    def draw_curves_if_due(self) -> None:
        """Keep the picture of the curves fresh, but spend no noticeable part of a short training on it."""
        if time.monotonic() - self.drawn_at > _DRAW_EVERY_SECONDS:
            draw_curves(self.run)
            self.drawn_at = time.monotonic()

    def is_checkpoint_due(self) -> bool:
        """Say whether the present step is one that every training saves: at intervals, the best, and the last."""
        step, best = self.progress.step, self.progress.best_step
        return step % self.config.checkpoint_every == 0 or step == best or self.is_last_step()

    def is_last_step(self) -> bool:
        """Say whether no step comes after the present one."""
        return self.progress.step == self.config.steps or self.should_end_early()

    def save_checkpoint(self) -> Iterator[TrainingEvent]:
        """Write a checkpoint; if that fails, say so, keep the one before, and insist only at the end."""
        if not self.world.is_main_process:
            return
        step = self.progress.step
        self.progress = self.progress.with_changes(interim=not self.is_checkpoint_due())
        try:
            checkpoints.save_checkpoint(self.run.checkpoints_dir, self.progress, self.model, self.optimizer)
            best = self.config.average if self.config.average_of == "best" else 1
            checkpoints.prune_checkpoints(self.run.checkpoints_dir, self.config.keep, best)
        except OSError as error:
            kept = (
                f"the checkpoint of step {self.last_saved_step} is kept"
                if self.last_saved_step
                else "there is none before it"
            )
            text = f"The checkpoint of step {step} could not be saved ({error}); {kept}."
            if self.is_last_step() or self.stop.requested:
                raise UserError(f"{text} Make room on the disk and go on with --resume.") from None
            yield Notice(f"{text} Trying again at the next one.", serious=True)
            return
        self.last_saved_step = step
        yield CheckpointSaved(step)

    def should_end_early(self) -> bool:
        """Say whether training is over before its last step."""
        return self.is_out_of_time() or self.is_out_of_patience()

    def early_end_reason(self) -> str:
        """Say why training is over before its last step."""
        if self.is_out_of_time():
            return f"{self.config.minutes:g} minutes of training are over, after step {self.progress.step}"
        return f"No better validation loss {self.progress.stale} times in a row"

    def is_out_of_time(self) -> bool:
        """Say whether all the time that the plan allows was spent on steps, in all sittings together."""
        return bool(self.config.minutes) and self.progress.seconds >= 60 * self.config.minutes

    def is_out_of_patience(self) -> bool:
        """Say whether validation has not got better for as long as the plan allows."""
        return bool(self.config.patience) and self.progress.stale >= self.config.patience
