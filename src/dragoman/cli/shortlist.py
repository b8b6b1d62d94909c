"""`dragoman shortlist`: learn which pieces may translate which, for faster decoding."""

from typing import Annotated

import typer

from dragoman.cli.options import RunArgument
from dragoman.cli.progress import print_stderr


def shortlist(
    run: RunArgument,
    likely: Annotated[int, typer.Option(min=1, max=10_000, help="Translations kept of each source piece.")] = 100,
    common: Annotated[int, typer.Option(min=0, max=100_000, help="Frequent pieces that may always be said.")] = 100,
) -> None:
    """Learn from RUN's training text which pieces may translate which, for `translate --shortlist`.

    With it only the pieces on a sentence's own list are rated at each step, which is faster and rarely changes a
    translation. The training text must still be where the recipe says."""
    from dragoman.cli.display import TerminalDisplay
    from dragoman.run import Run
    from dragoman.tasks.shortlist import write_shortlist

    with TerminalDisplay() as display:
        pairs = write_shortlist(run, display, likely=likely, common=common)
    print_stderr(
        f"{Run(run).shortlist_file}: learned from {pairs:,} pairs. Use it with `dragoman translate {run} --shortlist`."
    )
