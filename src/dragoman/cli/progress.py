"""Progress bars and messages on standard error; standard output is for results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def status_spinner(description: str) -> Iterator[None]:
    """Show a spinner while a block of unknown duration runs."""
    with console.status(description):
        yield


@contextmanager
def progress_bar(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar and yield a function that advances it; hidden if standard error is not a terminal."""
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task(description, total=total)
        yield lambda more: bar.advance(task, more)


def print_stderr(text: str, style: str | None = None) -> None:
    """Print a line to standard error."""
    console.print(text, style=style)
