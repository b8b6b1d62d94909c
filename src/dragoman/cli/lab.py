"""`dragoman lab`: reproduce the paper's tables and figures."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli.progress import print_report, print_stderr
from dragoman.errors import TrainingStopped

if TYPE_CHECKING:
    from dragoman.report import ReportSection


def lab(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="all, complexity, scaling, schedule, masks, positions, normalisation, architectures, variations, "
            "heads, alignment or memory.",
        ),
    ],
    folder: Annotated[Path, typer.Option(help="Directory for models, measurements and reports.")] = Path("runs/lab"),
    corpus: Annotated[
        str,
        typer.Option(help="phrasebook, a directory with train, valid and test files, or two files as SOURCE:TARGET."),
    ] = "phrasebook",
    languages: Annotated[
        str | None, typer.Option(help="Source and target language of the files in a directory, such as en:de.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Time limit, such as 20m or 2h.  [default: the experiment's share of 90 minutes]"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the phrasebook and all training runs.")] = 1,
    run: Annotated[
        Path | None, typer.Option(help="Trained run to inspect in heads and alignment instead of training a new one.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Run finished experiments again.")] = False,
) -> None:
    """Reproduce an experiment of the paper on this machine with the given corpus, and write a report.

    complexity is the paper's table 1, architectures table 2, variations table 3, heads figures 3 to 5; docs/paper.md
    explains all experiments. Run the same command again to continue an interrupted experiment."""
    from dragoman.cli.display import TerminalDisplay
    from dragoman.cli.signals import stop_on_signals
    from dragoman.lab.corpus import find_corpus
    from dragoman.lab.driver import LabOptions, plan_experiments, run_experiments
    from dragoman.run import Run
    from dragoman.storage import make_directory

    experiments, seconds = plan_experiments(experiment, budget, has_model=run is not None)
    given_run = None if run is None else Run(run)
    if given_run is not None:
        given_run.read_recipe()
    make_directory(folder)
    command = shlex.join(["dragoman", *sys.argv[1:]])
    try:
        with stop_on_signals() as stop, TerminalDisplay() as display:
            text = find_corpus(corpus, folder / "corpus", seed, languages)
            options = LabOptions(folder, text, seed, given_run, command, overwrite)
            sections = run_experiments(experiments, options, seconds, display, stop)
    except KeyboardInterrupt:
        raise TrainingStopped("Stopped; finished parts are saved. Run the same command to continue.") from None
    _print_findings(sections, folder)


def _print_findings(sections: "list[ReportSection]", folder: Path) -> None:
    for section in sections:
        print_report(section.title)
        for finding in section.report.findings:
            print_report(f"  {finding}")
    report = (folder if len(sections) > 1 else sections[0].folder) / "report.html"
    print_stderr(f"Report: {report} (also report.md); numbers: results.json of each experiment.")
