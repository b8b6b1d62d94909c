"""`dragoman bench`: measure speed on this machine, beside other engines that are installed."""

import json
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dragoman.cli.options import SourceOption
from dragoman.cli.progress import print_report, print_stderr
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.report import ReportTable

_PLAIN_TEXT_COLUMNS = 250  # width of tables if the output is no terminal


def bench(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run directory; default: random weights.")] = None,
    only: Annotated[str | None, typer.Option(help="Measure only one part: training or decoding.")] = None,
    size: Annotated[
        list[str] | None, typer.Option(help="A model size: tiny, small, base, big or wide; may be repeated.")
    ] = None,
    source: SourceOption = None,
    target: Annotated[
        str | None, typer.Option("--target", "--reference", help="Translation of --source, aligned line by line.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of rounds; each round measures every engine once.")] = 5,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Duration of one training measurement of the slowest engine.")
    ] = 6.0,
    sentences: Annotated[int, typer.Option(min=1, help="Sentences to decode in bulk.")] = 1000,
    singles: Annotated[int, typer.Option(min=1, help="Number of these sentences to also decode one at a time.")] = 100,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads; default: one per core.")] = None,
    bfloat16: Annotated[
        bool, typer.Option("--bfloat16", help="Also train in bfloat16, even if the processor does not support it.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run one very small round to check that everything works.")
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for bench.json, bench.md and bench.png.")
    ] = Path("bench"),
) -> None:
    """Benchmark training and decoding on this machine against other installed engines.

    Training is compared with a plain loop around torch.nn.Transformer, decoding with CTranslate2 and, for random
    weights, Hugging Face Transformers. The default text is that of the run, or the built-in phrasebook. With a RUN,
    --source is translated and scored against --target (or --reference). Ctrl-C ends the benchmark after the current
    round and reports the completed measurements."""
    from dragoman.bench.benchmark import run_benchmark
    from dragoman.bench.config import FULL_WORKLOAD, QUICK_WORKLOAD, BenchmarkConfig
    from dragoman.bench.plot import plot_report
    from dragoman.cli.display import TerminalDisplay
    from dragoman.cli.signals import stop_on_signals
    from dragoman.processes import available_cores

    sizes = tuple(dict.fromkeys(size or (["tiny"] if quick and run is None else [])))
    if quick:
        repeats, seconds, sentences, singles = 1, 0.0, min(sentences, 12), min(singles, 3)
    config = BenchmarkConfig(
        run, source, target, only, sizes, repeats, seconds, sentences, singles, threads or available_cores(), bfloat16,
        QUICK_WORKLOAD if quick else FULL_WORKLOAD,
    )  # fmt: skip
    config.check()
    _make_output_folder(output)
    with (
        stop_on_signals("Stopping after this round; the report will contain the completed rounds") as stop,
        TerminalDisplay() as display,
    ):
        report = run_benchmark(config, display, stop)
    _print_report(report.conditions(), report.tables())
    (output / "bench.json").write_text(json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n", "utf-8")
    (output / "bench.md").write_text(report.to_markdown(), "utf-8")
    plot_report(report, output / "bench.png")
    print_stderr(f"Wrote {output}/bench.json, bench.md and bench.png.")


def _make_output_folder(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{output}: cannot create this directory ({error.strerror}); choose another --output."
        ) from None


def _print_report(conditions: list[str], tables: list["ReportTable"]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    from dragoman.report import format_cell

    terminal = Console(highlight=False, markup=False, color_system=None)
    width = terminal.width if terminal.is_terminal else _PLAIN_TEXT_COLUMNS
    console = Console(file=StringIO(), highlight=False, markup=False, color_system=None, width=width)
    for table in tables:
        rich_table = RichTable(box=SIMPLE_HEAD)
        for index, heading in enumerate(table.header):
            rich_table.add_column(heading, justify="left" if table.is_text_column(index) else "right")
        for row in table.rows:
            rich_table.add_row(*map(format_cell, row))
        console.print(table.title)
        console.print(rich_table)
    for condition in conditions:
        console.print(condition, soft_wrap=True)
    print_report(cast(StringIO, console.file).getvalue().removesuffix("\n"))
