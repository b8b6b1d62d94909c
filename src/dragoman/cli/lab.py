"""`dragoman lab`: the paper's tables and figures, measured again here."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli.progress import print_stderr
from dragoman.errors import TrainingStopped

if TYPE_CHECKING:
    from dragoman.lab.report import ReportSection


def lab(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="all, complexity, scaling, schedule, masks, positions, normalisation, architectures, variations, "
            "heads, alignment or memory.",
        ),
    ],
    folder: Annotated[Path, typer.Option(help="Where models, measurements and reports are kept.")] = Path("runs/lab"),
    corpus: Annotated[
        str,
        typer.Option(help="phrasebook, a folder with train, valid and test files, or two files as SOURCE:TARGET."),
    ] = "phrasebook",
    languages: Annotated[
        str | None, typer.Option(help="Of a folder's files: from which to which, such as en:de.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for it, such as 20m or 2h; unset: its share of ninety minutes for all.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same corpus, same order of everything.")] = 1,
    run: Annotated[
        Path | None, typer.Option(help="A trained model for heads and alignment to look into, instead of their own.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Make it again, even if it is finished.")] = False,
) -> None:
    """Make an experiment of the paper again, on this machine and this corpus, and write a report of it.

    complexity is the paper's table 1, architectures table 2, variations table 3, heads figures 3 to 5; docs/paper.md
    explains them all. An experiment that was interrupted goes on when it is called again."""
    from dragoman.lab.driver import (
        check_budget,
        check_experiment_name,
        check_model_is_used,
        default_budget,
        parse_budget,
    )

    check_experiment_name(experiment)
    seconds = None if budget is None else parse_budget(budget)
    from dragoman.cli.display import TerminalDisplay
    from dragoman.cli.signals import stop_on_signals
    from dragoman.lab.corpus import find_corpus
    from dragoman.lab.driver import LabOptions, run_experiments
    from dragoman.lab.experiments import select_experiments
    from dragoman.run import Run
    from dragoman.storage import make_directory

    wanted = select_experiments(experiment)
    check_budget(wanted, default_budget(wanted) if seconds is None else seconds)
    given = None if run is None else Run(run)
    if given is not None:
        check_model_is_used(wanted)
        given.read_recipe()
    make_directory(folder)
    command = shlex.join(["dragoman", *sys.argv[1:]])
    try:
        with stop_on_signals() as stop, TerminalDisplay() as display:
            text = find_corpus(corpus, folder / "corpus", seed, languages)
            order = LabOptions(folder, text, seed, given, command, overwrite)
            chapters = run_experiments(
                wanted, order, default_budget(wanted) if seconds is None else seconds, display, stop
            )
    except KeyboardInterrupt:
        raise TrainingStopped("Stopped; what is finished is kept. The same command goes on.") from None
    _print_findings(chapters, folder)


def _print_findings(chapters: "list[ReportSection]", folder: Path) -> None:
    """Print what was found, and where the whole of it is."""
    for chapter in chapters:
        print(chapter.title)
        for finding in chapter.report.findings:
            print(f"  {finding}")
    place = folder if len(chapters) > 1 else chapters[0].folder
    print_stderr(
        f"The report is {place / 'report.html'}, and again report.md; the figures of each experiment: results.json."
    )
