"""Show a training on the terminal: its plan, a progress bar, and a line per validation."""

import math
import time
from dataclasses import replace

from rich.progress import BarColumn, SpinnerColumn, TaskID

from dragoman.cli.progress import console, new_progress, print_stderr
from dragoman.errors import format_count, format_duration
from dragoman.streams import escape_controls
from dragoman.tasks.events import Notice, ProgressUpdate
from dragoman.training.events import (
    CheckpointSaved,
    EndReplanned,
    RecipePlanned,
    TrainingEvent,
    TrainingFinished,
    TrainingPlan,
    ValidationResult,
)
from dragoman.training.loop import TrainingStep

_LINE_EVERY_SECONDS = 15.0  # interval of status lines if standard error is not a terminal
_BAR_WIDTH = 12
_SMOOTHING = 0.95  # decay of the moving averages of loss and speed


class _MovingAverage:
    """An exponential moving average that is not biased towards its first value."""

    def __init__(self) -> None:
        self.total = self.weight = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.total = _SMOOTHING * self.total + (1 - _SMOOTHING) * value
        self.weight = _SMOOTHING * self.weight + (1 - _SMOOTHING)

    @property
    def value(self) -> float:
        """The average; 0 if there are no values."""
        return self.total / self.weight if self.weight else 0.0


class TerminalDisplay:
    """An event callback that prints to standard error; a context manager that starts and stops the progress bar."""

    def __init__(self, resume_hint: str = "") -> None:
        self.resume_hint = resume_hint  # a sentence that says how to continue a stopped training
        self.bar = new_progress(SpinnerColumn(), "{task.description}", BarColumn(_BAR_WIDTH), "{task.fields[facts]}")
        self.task: TaskID | None = None

        self.plan: TrainingPlan | None = None
        self.score = ""
        self.nll, self.speed = _MovingAverage(), _MovingAverage()
        self.step_at = self.line_at = time.monotonic()
        self.seconds_left, self.ends_at = math.nan, math.inf

    def __enter__(self) -> "TerminalDisplay":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, event: TrainingEvent | ProgressUpdate | TrainingPlan | TrainingFinished) -> None:
        """Display one event."""
        match event:
            case ProgressUpdate():
                self._show_work(event)
            case RecipePlanned():
                print_stderr("\n".join(event.plan.summary), "yellow" if event.plan.is_too_short else None)
            case TrainingPlan():
                self._show_plan(event)
            case EndReplanned():
                self._show_new_end(event)
            case TrainingStep():
                self._show_step(event)
            case ValidationResult():
                self._show_validation(event)
            case Notice():
                print_stderr(event.text, "yellow" if event.serious else None)
            case CheckpointSaved():
                self.step_at = time.monotonic()
            case TrainingFinished():
                self._show_finished(event)

    def _show_work(self, event: ProgressUpdate) -> None:
        """Update the bar of a job other than training."""
        self._update_bar(
            event.description,
            event.done,
            event.total,
            f"{event.done:,}" + (f" of {event.total:,}" if event.total else ""),
        )

    def _show_plan(self, plan: TrainingPlan) -> None:
        """Print the training plan."""
        self.plan = plan
        source, target = plan.vocabulary_sizes
        vocabulary = format_count(target, "token") if source == target else f"{source:,} and {target:,} tokens"
        print_stderr(
            f"Training run {plan.run}: {format_count(plan.pairs, plan.unit)} for training, {plan.valid_pairs:,} for "
            f"validation; vocabulary {vocabulary}; {format_count(plan.parameters, 'parameter')}; "
            f"{plan.device} with {format_count(plan.threads, 'thread')}."
        )
        remaining, steps = plan.steps - plan.steps_done, format_count(plan.steps, "step")
        soon = format_duration(min(remaining * plan.seconds_per_step, plan.seconds_left))
        print_stderr(
            f"{f'{remaining:,} of {steps} left' if plan.steps_done else steps}, "
            f"{format_count(remaining / plan.steps_per_epoch, 'epoch')}; the steps take about {soon}. "
            f"Ctrl-C saves a checkpoint and stops. {self.resume_hint}"
        )
        self.step_at = self.line_at = time.monotonic()
        self.ends_at = self.step_at + plan.seconds_left

    def _show_new_end(self, event: EndReplanned) -> None:
        """Print that training ends earlier, and count up to its new end."""
        assert self.plan is not None, "the plan is sent before the first step"
        print_stderr(
            f"Training is slower than planned: it ends at step {event.last_step:,} instead of {self.plan.steps:,}, to "
            "keep its time limit.",
            "yellow",
        )
        self.plan = replace(self.plan, steps=event.last_step)

    def _show_step(self, step: TrainingStep) -> None:
        """Update the bar after one training step."""
        assert self.plan is not None, "the plan is sent before the first step"
        now = time.monotonic()
        seconds, self.step_at = max(now - self.step_at, 1e-6), now
        if math.isfinite(step.nll):
            self.nll.add(step.nll)
            self.speed.add(step.tokens / seconds)
        seconds_left = (self.plan.steps - step.number) * step.tokens / max(self.speed.value, 1e-6)
        smooth = seconds_left if math.isnan(self.seconds_left) else 0.9 * self.seconds_left + 0.1 * seconds_left
        self.seconds_left = min(smooth, max(0.0, self.ends_at - now))
        done, total, description = step.number, self.plan.steps, f"step {step.number:,}/{self.plan.steps:,}"
        if self.plan.ends_by_time:
            total = round(self.plan.seconds_left)
            done = max(0, total - round(self.ends_at - now))
            description = f"{format_duration(done)} of {format_duration(total)}, step {step.number:,}"
        facts = [
            f"{format_duration(self.seconds_left)} left",
            f"training loss {self.nll.value:.3f}",
            f"perplexity {math.exp(min(self.nll.value, 50)):.2f}",
            *([self.score] if self.score else []),
            f"{self.speed.value:,.0f} target tokens/s",
            f"rate {step.learning_rate:.1e}",
        ]
        self._update_bar(
            description,
            done,
            total,
            join_fitting(facts, console.width - len(description) - _BAR_WIDTH - 5),
        )
        if not console.is_terminal and now - self.line_at > _LINE_EVERY_SECONDS:
            self.line_at = now
            print_stderr("  ".join([description, *facts]))

    def _show_validation(self, validation: ValidationResult) -> None:
        """Print the scores of a validation and its first sample."""
        self.score = "" if validation.score is None else f"{validation.measure} {validation.score:.1f}"
        score = f"  {self.score}" if self.score else ""
        best = "  (best so far)" if validation.is_best else ""
        print_stderr(
            f"Validation at step {validation.step:,}: loss {validation.loss:.3f}  perplexity "
            f"{validation.perplexity:.2f}{score}{best}"
        )
        for sample in validation.samples[:1]:
            print_stderr(f"  {sample.source}\n  → {sample.translation}")
        self.step_at = time.monotonic()

    def _show_finished(self, finished: TrainingFinished) -> None:
        """Print the result of the training."""
        progress = finished.progress
        print_stderr(
            f"Trained {format_count(progress.step, 'step')} in {format_duration(progress.seconds)}. "
            f"{finished.run} contains {finished.weights[0]}."
        )
        if progress.skipped_ever:
            skipped = format_count(progress.skipped_ever, "step")
            print_stderr(f"Skipped {skipped} because the loss or the gradient norm was not finite.", "yellow")
        print_stderr("On the validation set:")
        for score in finished.scores:
            print_stderr(f"  {score}")

    def _update_bar(self, what: str, done: int, total: int | None, facts: str) -> None:
        """Draw or update the progress bar."""
        what, facts = escape_controls(what), escape_controls(facts)
        if self.task is None:
            self.task = self.bar.add_task(what, total=total, completed=done, facts=facts)
        self.bar.update(self.task, description=what, total=total, completed=done, facts=facts)


def join_fitting(facts: list[str], width: int) -> str:
    """Join as many of the facts, in order, as fit into `width` characters."""
    line = facts[0]
    for fact in facts[1:]:
        if len(line) + 2 + len(fact) > width:
            break
        line += f"  {fact}"
    return line
