"""Progress bars and messages on standard error; standard output is for results."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)

from dragoman.streams import StandardError, escape_controls


class _TerminalFile:
    """Standard error for rich, whose colours and cursor movements must not be escaped."""

    def write(self, text: str) -> int:
        stream = sys.stderr
        return stream.write_unescaped(text) if isinstance(stream, StandardError) else stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


console = Console(file=cast(IO[str], _TerminalFile()), highlight=False, soft_wrap=True, markup=False)


def new_progress(*columns: str | ProgressColumn) -> Progress:
    """Return a progress display that vanishes at its end, and is hidden if standard error is not a terminal.

    Strings are formats of a task's description and fields, without markup.
    """
    return Progress(
        *(TextColumn(column, markup=False) if isinstance(column, str) else column for column in columns),
        console=console, transient=True, disable=not console.is_terminal, redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip


@contextmanager
def status_spinner(description: str) -> Iterator[None]:
    """Show a spinner while a block of unknown duration runs."""
    with new_progress(SpinnerColumn(), "{task.description}") as spinner:
        spinner.add_task(escape_controls(description), total=None)
        yield


@contextmanager
def progress_bar(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar and yield a function that advances it."""
    columns = SpinnerColumn(), "{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with new_progress(*columns) as bar:
        task = bar.add_task(escape_controls(description), total=total)
        yield lambda more: bar.advance(task, more)


def print_stderr(text: str, style: str | None = None) -> None:
    """Print a line to standard error, with control characters escaped."""
    console.print(escape_controls(text), style=style)


def print_report(text: object) -> None:
    """Print text about data or models to standard output, with control characters escaped."""
    print(escape_controls(str(text)))
