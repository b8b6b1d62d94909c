"""`dragoman average`: average the weights of several checkpoints."""

from typing import Annotated, Literal

import typer

from dragoman.cli.options import RunArgument
from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError


def average(
    run: RunArgument,
    count: Annotated[int, typer.Option("--last", "--count", min=1, help="Number of checkpoints.")] = 5,
    best: Annotated[
        bool, typer.Option("--best", help="Use the checkpoints with the lowest validation loss instead of the newest.")
    ] = False,
) -> None:
    """Replace RUN's model with the average of its newest (or best) checkpoints, as in section 6.1 of the paper."""
    from dragoman.checkpoints import select_checkpoints, write_averaged_weights
    from dragoman.run import Run

    run_dir = Run(run)
    run_dir.read_recipe()
    if not run_dir.has_started:
        raise UserError(f"{run_dir} has no checkpoints to average; create them with `dragoman train`.")
    kind: Literal["best", "last"] = "best" if best else "last"
    with run_dir.lock():
        steps = write_averaged_weights(run_dir, select_checkpoints(run_dir.checkpoints_dir, count, kind))
    print_stderr(
        f"{run_dir.weights_file} now contains the average of the checkpoints at steps {', '.join(map(str, steps))}."
    )
