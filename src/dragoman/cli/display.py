"""How a training looks on the terminal: its plan first, then a bar that lives, and a line at each validation."""

import math
import time

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from dragoman.cli.progress import console, duration, say
from dragoman.tasks.events import Finished, Plan, Working
from dragoman.training.loop import Step
from dragoman.training.session import Event, Notice, Saved, Validation

LINE_EVERY_SECONDS = 15.0  # where there is no terminal to draw a bar on
BAR_WIDTH = 12
SMOOTHING = 0.95  # of the loss and the speed that are shown


class Display:
    """Listens to a training and shows it. Use it as a context: the bar needs an end."""

    def __init__(self) -> None:
        self.bar = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(BAR_WIDTH), TextColumn("{task.fields[facts]}"),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self.task: TaskID | None = None
        self.what = ""
        self.plan: Plan | None = None
        self.score = ""
        self.loss = self.nll = self.speed = 0.0
        self.step_at = self.line_at = time.monotonic()
        self.seconds_left, self.ends_at = math.nan, math.inf

    def __enter__(self) -> "Display":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, event: Event | Working | Plan | Finished) -> None:
        """Show one event."""
        match event:
            case Working():
                self.work(event)
            case Plan():
                self.show_plan(event)
            case Step():
                self.step(event)
            case Validation():
                self.validation(event)
            case Notice():
                say(event.text, "yellow" if event.serious else None)
            case Saved():
                self.step_at = time.monotonic()
            case Finished():
                self.show_end(event)

    def work(self, event: Working) -> None:
        """Move the bar of something other than training."""
        self.move(
            event.what, event.done, event.total, f"{event.done:,}" + (f" of {event.total:,}" if event.total else "")
        )

    def show_plan(self, plan: Plan) -> None:
        """Print what is about to happen."""
        self.plan = plan
        left = plan.steps - plan.steps_done
        source, target = plan.vocabulary
        pieces = f"{source:,} pieces" if source == target else f"{source:,} and {target:,} pieces"
        say(
            f"Training into {plan.run}: {plan.pairs:,} {plan.unit}, {plan.valid_pairs:,} to validate with; "
            f"vocabulary {pieces}; {plan.parameters / 1e6:.1f} million parameters; "
            f"{plan.device} with {plan.threads} thread{'s' if plan.threads > 1 else ''}."
        )
        soon = duration(min(left * plan.seconds_per_step, plan.seconds_left))
        begun = f"{left:,} of {plan.steps:,} steps left" if plan.steps_done else f"{plan.steps:,} steps"
        say(
            f"{begun}, {plan.steps / plan.steps_per_epoch:.1f} times through the data; on this machine about "
            f"{soon}. Ctrl-C saves and stops; --resume goes on."
        )
        self.step_at = self.line_at = time.monotonic()
        self.ends_at = self.step_at + plan.seconds_left

    def step(self, step: Step) -> None:
        """Move the bar on by one step."""
        assert self.plan is not None, "a training says its plan before its first step"
        now = time.monotonic()
        seconds, self.step_at = max(now - self.step_at, 1e-6), now
        if math.isfinite(step.loss):
            weight = SMOOTHING if self.speed else 0.0
            self.loss = weight * self.loss + (1 - weight) * step.loss
            self.nll = weight * self.nll + (1 - weight) * step.nll
            self.speed = weight * self.speed + (1 - weight) * step.tokens / seconds
        left = (self.plan.steps - step.number) * step.tokens / max(self.speed, 1e-6)
        smooth = left if math.isnan(self.seconds_left) else 0.9 * self.seconds_left + 0.1 * left
        self.seconds_left = min(smooth, max(0.0, self.ends_at - now))
        what = f"step {step.number:,}/{self.plan.steps:,}"
        facts = [
            f"{duration(self.seconds_left)} left",
            f"loss {self.loss:.3f}",
            f"perplexity {math.exp(min(self.nll, 50)):.2f}",
            *([self.score] if self.score else []),
            f"{self.speed:,.0f} tokens/s",
            f"rate {step.rate:.1e}",
        ]
        self.move(what, step.number, self.plan.steps, fitting(facts, console.width - len(what) - BAR_WIDTH - 5))
        if not console.is_terminal and now - self.line_at > LINE_EVERY_SECONDS:
            self.line_at = now
            say("  ".join([what, *facts]))

    def validation(self, found: Validation) -> None:
        """Print a line about a validation, and the sentence that is always the same."""
        self.score = "" if found.score is None else f"{found.measure} {found.score:.1f}"
        score = f"  {self.score}" if self.score else ""
        best = "  (best so far)" if found.better else ""
        say(f"Validation at step {found.step:,}: loss {found.loss:.3f}  perplexity {found.perplexity:.2f}{score}{best}")
        for sample in found.samples[:1]:
            say(f"  {sample.source}\n  → {sample.translation}")
        self.step_at = time.monotonic()

    def show_end(self, finished: Finished) -> None:
        """Print what came out."""
        progress = finished.progress
        mean = f"the mean of {finished.averaged} checkpoints" if finished.averaged > 1 else "one checkpoint"
        say(f"Trained {progress.step:,} steps in {duration(progress.seconds)}. {finished.run} holds {mean}.")
        if progress.skipped_ever:
            say(f"{progress.skipped_ever:,} steps were skipped because their loss was not finite.", "yellow")
        say("On the validation text:")
        for score in finished.scores:
            say(f"  {score}")

    def move(self, what: str, done: int, total: int | None, facts: str) -> None:
        """Draw the one bar there is."""
        if self.task is None:
            self.task = self.bar.add_task(what, total=total, completed=done, facts=facts)
        self.bar.update(self.task, description=what, total=total, completed=done, facts=facts)


def fitting(facts: list[str], width: int) -> str:
    """Join as many of the facts, the most wanted first, as a line has room for."""
    line = facts[0]
    for fact in facts[1:]:
        if len(line) + 2 + len(fact) > width:
            break
        line += f"  {fact}"
    return line
