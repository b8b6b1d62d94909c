"""`dragoman heads`: measure every attention head on the validation set, and the loss without it."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman.cli.options import JsonObjectOption, RunArgument
from dragoman.cli.progress import print_report, print_stderr
from dragoman.errors import format_count

if TYPE_CHECKING:
    from dragoman.data.corpus import ParallelCorpus

_COLUMNS = ("sink", "punctuation", "copy", "entropy", "distance", "width", "monotonic", "confidence")


def heads(
    run: RunArgument,
    source: Annotated[
        str | None, typer.Option(help="Source text to measure on. Default: the run's validation set.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target text, aligned line by line.")] = None,
    sentences: Annotated[int, typer.Option(min=1, help="Use at most this many sentence pairs.")] = 1000,
    checkpoint: Annotated[
        int | None, typer.Option(min=1, help="Measure the checkpoint at this step instead of the final model.")
    ] = None,
    importance: Annotated[
        bool, typer.Option("--importance/--no-importance", help="Measure the loss with each head ablated (slow).")
    ] = True,
    history: Annotated[
        bool, typer.Option("--history", help="Also measure every saved checkpoint, without importance.")
    ] = False,
    as_json: JsonObjectOption = False,
) -> None:
    """Classify each attention head of the model in RUN on the validation set, and measure its importance.

    The report is cached in RUN/heads for use by the web page, and recomputed when the weights or the text have
    changed. docs/heads.md explains every number."""
    from dragoman.cli.display import TerminalDisplay
    from dragoman.run import Run
    from dragoman.tasks.head_report import make_head_report, make_history_reports

    run_dir, corpus = Run(run), _given_corpus(source, target)
    run_dir.read_recipe()
    with TerminalDisplay() as display:
        if history:
            make_history_reports(run_dir, display, corpus=corpus, sentences=sentences)
        report = make_head_report(
            run_dir, display, checkpoint=checkpoint, corpus=corpus, sentences=sentences, importance=importance
        )
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        _print_report(report)
        if importance and "importance" not in report:
            print_stderr(
                "The importance was not measured: only heads of an encoder-decoder Transformer can be ablated."
            )
        print_stderr(f"Saved to {run_dir.head_reports_dir}; docs/heads.md explains the numbers.")


def _given_corpus(source: str | None, target: str | None) -> "ParallelCorpus | None":
    """Return the text that the options name, or nothing."""
    from dragoman.data.corpus import ParallelCorpus

    return ParallelCorpus.from_files(source, target) if source is not None or target is not None else None


def _print_report(report: dict[str, Any]) -> None:
    """Print a line for each head, and what it was measured on."""
    from dragoman.evaluation.tables import align_columns

    heading = ["kind", "layer", "head", "importance", "offset", "rare", "alignment", "silence", *_COLUMNS, "badges"]
    columns = zip(heading, *map(_report_row, report["heads"]), strict=True)
    measured = [column for column in columns if any(column[1:])]
    print_report(align_columns(list(zip(*measured, strict=True))))
    data = report["data"]
    print_report(
        f"loss {report['loss']:.4f} on {format_count(data['sentences'], data.get('unit', 'pair'))} of {data['name']}"
    )


def _report_row(head: dict[str, Any]) -> list[str]:
    """Write one head; layers and heads are counted from 1."""
    linked = [head[name] for name in ("alignment", "alignment_shifted") if head[name] is not None]
    importance = head.get("importance")
    return [
        head["kind"],
        str(head["layer"] + 1),
        str(head["head"] + 1),
        "" if importance is None else f"{importance:+.4f}",
        ""
        if head["offset"] is None
        else f"{_format_number(head['positional'])} at {head['offset'] or 0:+d}".replace("+0", "0"),
        _format_with_baseline(head["rare"], head["rare_baseline"]),
        _format_with_baseline(max(linked, default=None), head["alignment_baseline"]),
        _format_with_baseline(head.get("silence"), head.get("silence_baseline")),
        *(_format_number(head.get(name)) for name in _COLUMNS),
        ", ".join(head["badges"]),
    ]


def _format_number(value: float | None) -> str:
    """Write a number, or nothing."""
    return "" if value is None else f"{value:.2f}"


def _format_with_baseline(value: float | None, baseline: float | None) -> str:
    """Write a number with what it is compared to."""
    return "" if value is None else f"{_format_number(value)} / {_format_number(baseline)}"
