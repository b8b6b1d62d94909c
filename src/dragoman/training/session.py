"""A training from its first step to its last: the loop, with validations, checkpoints and the journal around it.

A stream of events comes out; whoever drives it draws a bar, or just waits for the end.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import torch

from dragoman.crew import Crew
from dragoman.errors import Stopped, UserError
from dragoman.model.transducer import Network
from dragoman.recipe import Training
from dragoman.run import Run
from dragoman.training import checkpoints
from dragoman.training.checkpoints import Progress
from dragoman.training.distributed import World
from dragoman.training.journal import Journal, draw_curves
from dragoman.training.loop import Batches, Step, train

DRAW_EVERY_SECONDS = 60.0


@dataclass(frozen=True)
class Sample:
    """An example of the validation data, always the same ones, and what the model makes of it by now."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class Validation:
    """How good the model was at a step, on sentences that it is not trained on."""

    step: int
    loss: float  # not smoothed, mean per target token
    score: float | None = None  # of some examples that were tried
    measure: str = ""  # what kind of score that is: "BLEU"
    samples: tuple[Sample, ...] = ()  # the first is the one that a terminal has room for
    better: bool = False  # than at every validation before

    @property
    def perplexity(self) -> float:
        """The number of pieces among which the model is, so to speak, undecided."""
        return math.exp(min(self.loss, 50.0))


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written."""

    step: int


@dataclass(frozen=True)
class Notice:
    """Something that the person who waits should know."""

    text: str
    serious: bool = False


Event = Step | Validation | Saved | Notice


class Interruption(Exception):
    """Raised inside a validation to leave it when the person does not want to wait."""


class Stop:
    """The wish to stop, sent by a signal; a training grants it at the end of a step."""

    def __init__(self) -> None:
        self.requested = False
        self.granted_later = False  # True while there is a step to finish and a state to save

    def request(self) -> None:
        """Ask to stop: at the end of the step, or at once if nothing is at stake or this is the second time."""
        if self.requested or not self.granted_later:
            raise KeyboardInterrupt
        self.requested = True

    def check(self) -> None:
        """Leave a validation if the wish has come meanwhile."""
        if self.requested:
            raise Interruption


Validate = Callable[[int], Validation]


@dataclass
class Session:
    """One training of one model into one run."""

    run: Run
    plan: Training
    model: Network
    optimizer: torch.optim.Optimizer
    batches: Batches
    validate: Validate
    width: int
    world: World
    crew: Crew
    stop: Stop
    progress: Progress
    saved_at: int = 0
    drawn_at: float = 0.0

    def events(self) -> Iterator[Event]:
        """Train to the plan's last step, or until patience or the person runs out of it."""
        self.saved_at, self.drawn_at = self.progress.step, time.monotonic()
        self.journal = Journal(self.run, self.progress) if self.world.writes else None
        self.stop.granted_later = True
        try:
            yield from self.pending_validation()
            if not self.ends_early():
                yield from self.steps()
        finally:
            self.stop.granted_later = False
            if self.journal:
                self.journal.close()

    def pending_validation(self) -> Iterator[Event]:
        """Validate a step whose validation was interrupted."""
        if self.progress.step and self.validation_is_due() and self.progress.validated_at != self.progress.step:
            yield from self.validation()
            yield from self.save()
            self.leave_if_asked()

    def steps(self) -> Iterator[Event]:
        """Make the steps that are left, with all that belongs to each."""
        began_at = time.perf_counter()
        loop = train(
            self.model,
            self.optimizer,
            self.batches,
            self.plan,
            width=self.width,
            after=self.progress.step,
            skipped=self.progress.skipped,
            world=self.world,
            crew=self.crew,
        )
        for step in loop:
            now = time.perf_counter()
            self.count(step, now - began_at)
            began_at = now
            yield step
            if step.skipped:
                yield self.dump(step)
            if self.validation_is_due():
                yield from self.validation()
            if self.is_milestone() or self.stopping():
                yield from self.save()
            self.leave_if_asked()
            if self.ends_early():
                yield Notice(f"{self.why_early()}: training ends early.")
                return
            began_at = time.perf_counter() if self.progress.validated_at == step.number else began_at

    def stopping(self) -> bool:
        """Say whether any of the processes was asked to stop: all leave after the same step, or none."""
        return self.world.total(float(self.stop.requested)) > 0

    def leave_if_asked(self) -> None:
        """Grant the wish to stop if this step is saved; a wish that came too late for that waits for the next one."""
        saved = self.world.total(float(self.world.writes and self.saved_at == self.progress.step)) > 0
        if saved and self.stopping():
            raise Stopped(f"Stopped after step {self.progress.step}; all is saved. Go on with --resume.")

    def count(self, step: Step, seconds: float) -> None:
        """Note a step in the progress and in the journal. Processes whose clocks differ agree on the mean."""
        if self.plan.minutes:
            seconds = self.world.total(seconds) / self.world.size
        self.progress = self.progress.after(
            step=step.number,
            skipped=step.skipped,
            skipped_ever=self.progress.skipped_ever + bool(step.skipped),
            seconds=self.progress.seconds + seconds,
        )
        if self.journal:
            self.journal.note(
                "train", step.number, loss=step.loss, nll=step.nll, gradient_norm=step.gradient_norm, rate=step.rate,
                tokens=step.tokens, skipped=step.skipped, tokens_per_second=round(step.tokens / seconds),
                seconds=round(self.progress.seconds, 2),
            )  # fmt: skip

    def dump(self, step: Step) -> Notice:
        """Write down which pairs were in a step that had to be skipped."""
        if self.journal:
            self.journal.note_skipped(step.number, step.loss, step.pairs)
        return Notice(
            f"Step {step.number} was skipped: its loss is {step.loss}, its gradient's length {step.gradient_norm}. "
            f"The line numbers of its {len(step.pairs)} pairs are in {self.run.skipped_file}.",
            serious=True,
        )

    def validation_is_due(self) -> bool:
        """Say whether the present step is one to validate."""
        step = self.progress.step
        return step % self.plan.validate_every == 0 or step == self.plan.steps or self.out_of_time()

    def validation(self) -> Iterator[Event]:
        """Validate, and note what came out. An interrupted validation is saved as not done and repeated on resuming."""
        step = self.progress.step
        try:
            found = self.validate(step)
        except Interruption:
            return
        best = self.progress.best_loss
        better = best is None or found.loss < best
        found = replace(found, better=better)
        self.progress = self.progress.after(
            validated_at=step,
            loss=found.loss if math.isfinite(found.loss) else None,
            best_step=step if better else self.progress.best_step,
            best_loss=found.loss if better and math.isfinite(found.loss) else best,
            stale=0 if better else self.progress.stale + 1,
        )
        if self.journal:
            self.journal.note(
                "validation", step, loss=found.loss, perplexity=found.perplexity, score=found.score,
                measure=found.measure, samples=[asdict(sample) for sample in found.samples],
                seconds=round(self.progress.seconds, 2),
            )  # fmt: skip
            self.draw_now_and_then()
        yield found

    def draw_now_and_then(self) -> None:
        """Keep the picture of the curves fresh, but spend no noticeable part of a short training on it."""
        if time.monotonic() - self.drawn_at > DRAW_EVERY_SECONDS:
            draw_curves(self.run)
            self.drawn_at = time.monotonic()

    def is_milestone(self) -> bool:
        """Say whether the present step is one that every training saves: at intervals, the best, and the last."""
        step, best = self.progress.step, self.progress.best_step
        return step % self.plan.checkpoint_every == 0 or step == best or self.is_last()

    def is_last(self) -> bool:
        """Say whether no step comes after the present one."""
        return self.progress.step == self.plan.steps or self.ends_early()

    def save(self) -> Iterator[Event]:
        """Write a checkpoint; if that fails, say so, keep the one before, and insist only at the end."""
        if not self.world.writes:
            return
        step = self.progress.step
        self.progress = self.progress.after(interim=not self.is_milestone())
        try:
            checkpoints.save(self.run.checkpoints, self.progress, self.model, self.optimizer)
            best = self.plan.average if self.plan.average_of == "best" else 1
            checkpoints.prune(self.run.checkpoints, self.plan.keep, best)
        except OSError as error:
            kept = f"the checkpoint of step {self.saved_at} is kept" if self.saved_at else "there is none before it"
            text = f"The checkpoint of step {step} could not be saved ({error}); {kept}."
            if self.is_last() or self.stop.requested:
                raise UserError(f"{text} Make room on the disk and go on with --resume.") from None
            yield Notice(f"{text} Trying again at the next one.", serious=True)
            return
        self.saved_at = step
        yield Saved(step)

    def ends_early(self) -> bool:
        """Say whether training is over before its last step."""
        return self.out_of_time() or self.out_of_patience()

    def why_early(self) -> str:
        """Say why training is over before its last step."""
        if self.out_of_time():
            return f"{self.plan.minutes:g} minutes of training are over, after step {self.progress.step}"
        return f"No better validation loss {self.progress.stale} times in a row"

    def out_of_time(self) -> bool:
        """Say whether all the time that the plan allows was spent on steps, in all sittings together."""
        return bool(self.plan.minutes) and self.progress.seconds >= 60 * self.plan.minutes

    def out_of_patience(self) -> bool:
        """Say whether validation has not got better for as long as the plan allows."""
        return bool(self.plan.patience) and self.progress.stale >= self.plan.patience
