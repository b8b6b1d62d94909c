"""`dragoman shortlist`: build a lexical shortlist for faster decoding."""

from typing import Annotated

import typer

from dragoman.cli.options import RunArgument
from dragoman.cli.progress import print_stderr
from dragoman.errors import format_count


def shortlist(
    run: RunArgument,
    likely: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of candidate target tokens per source token.")
    ] = 100,
    common: Annotated[
        int, typer.Option(min=0, max=100_000, help="Number of most frequent target tokens to always allow.")
    ] = 100,
) -> None:
    """Learn a lexical shortlist from RUN's training data, for `translate --shortlist`.

    With a shortlist, only the candidate translations of the sentence's tokens are scored at each step, which is faster
    and rarely changes the output. The training data must still be at the paths in the recipe."""
    from dragoman.cli.display import TerminalDisplay
    from dragoman.run import Run
    from dragoman.tasks.shortlist import write_shortlist

    with TerminalDisplay() as display:
        pairs = write_shortlist(run, display, likely=likely, common=common)
    print_stderr(
        f"{Run(run).shortlist_file}: learned from {format_count(pairs, 'sentence pair')}. "
        f"Use it with `dragoman translate {run} --shortlist`."
    )
