"""`dragoman bench`: this machine's figures, next to those of other engines that are installed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli.check import SourceOption
from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.bench.report import BenchmarkTable

_PLAIN_TEXT_COLUMNS = 250  # columns of a table that is not shown on a terminal


def bench(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run directory; without: random weights.")] = None,
    only: Annotated[str | None, typer.Option(help="Measure one part: training or decoding.")] = None,
    size: Annotated[
        list[str] | None, typer.Option(help="A model size: tiny, small, base, big or wide; may be repeated.")
    ] = None,
    source: SourceOption = None,
    target: Annotated[
        str | None, typer.Option("--target", "--reference", help="Its translation, line by line.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds in which everybody has a turn.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long a turn of training lasts for the slowest.")] = 6.0,
    sentences: Annotated[int, typer.Option(min=1, help="Sentences to decode in bulk.")] = 1000,
    singles: Annotated[int, typer.Option(min=1, help="Of these, sentences to decode one at a time too.")] = 100,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Processor threads; unset: one a core.")] = None,
    bfloat16: Annotated[
        bool, typer.Option("--bfloat16", help="Train ours in bfloat16 too, even where that is slow.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Everything tiny and one round: to see that it works, not how fast.")
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A directory for bench.json, bench.md and bench.png.")
    ] = Path("bench"),
) -> None:
    """Measure training and decoding on this machine, beside other engines that are installed, in one run.

    Training is compared with a plain loop around torch.nn.Transformer, decoding with CTranslate2 and, for random
    weights, Hugging Face Transformers. Without --source and --target the text is the run's own, or the built-in
    phrasebook. With a RUN, --source and --target (or --reference) are what is translated and scored. Ctrl-C ends it
    after the present round, with a report of what was measured."""
    from dragoman.bench.benchmark import run_benchmark as measure
    from dragoman.bench.config import FULL_WORKLOAD, QUICK_WORKLOAD, BenchmarkConfig
    from dragoman.bench.plot import plot_report
    from dragoman.cli.display import TerminalDisplay
    from dragoman.cli.signals import stop_on_signals
    from dragoman.processes import available_cores

    sizes = tuple(dict.fromkeys(size or (["tiny"] if quick and run is None else [])))
    if quick:
        repeats, seconds, sentences, singles = 1, 0.0, min(sentences, 12), min(singles, 3)
    plan = BenchmarkConfig(
        run, source, target, only, sizes, repeats, seconds, sentences, singles, threads or available_cores(), bfloat16,
        QUICK_WORKLOAD if quick else FULL_WORKLOAD,
    )  # fmt: skip
    plan.check()
    _make_output_folder(output)
    with (
        stop_on_signals("Stopping after this round, with a report of what there is") as stop,
        TerminalDisplay() as display,
    ):
        report = measure(plan, display, stop)
    _print_report(report.conditions(), report.tables())
    (output / "bench.json").write_text(json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n", "utf-8")
    (output / "bench.md").write_text(report.to_markdown(), "utf-8")
    plot_report(report, output / "bench.png")
    print_stderr(f"Written: {output}/bench.json, bench.md and bench.png")


def _make_output_folder(output: Path) -> None:
    """Make the directory for the results before the first hour is spent."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{output}: this directory cannot be made ({error.strerror}); choose another -o.") from None


def _print_report(facts: list[str], tables: list["BenchmarkTable"]) -> None:
    """Print what came out, as plain text where it is not a terminal that reads it."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=_PLAIN_TEXT_COLUMNS)
    for table in tables:
        drawn = RichTable(box=SIMPLE_HEAD)
        for number, heading in enumerate(table.headings):
            drawn.add_column(heading, justify="left" if number < table.name_columns else "right")
        for row in table.rows:
            drawn.add_row(*row)
        console.print(table.title)
        console.print(drawn)
    for fact in facts:
        console.print(fact, soft_wrap=True)
