"""`dragoman attention`: attention weights as an HTML page or a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dragoman
from dragoman.cli.options import BeamOption, DeviceOption, RunArgument
from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.viewer.record import AttentionRecord

_PICTURE_FORMATS = (".png", ".svg", ".pdf")


def attention(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The model's input: a sentence, a word, or a recording.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: a page (.html) or a picture (.png, .svg, .pdf).")
    ] = Path("attention.html"),
    target: Annotated[
        str | None, typer.Option(help="Show the attention for this output instead of the model's own.")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Force the output to start with this text.")] = "",
    compare: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Another run to show next to this one on the page.")
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(metavar="LINKS", help="Gold word alignment, such as 0-0 1-2; adds alignment error rates."),
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(
            metavar="KIND.LAYER[.HEAD]",
            help="Draw this layer or head (encoder.5, cross.2.1) as lines, as in the paper's figures.",
        ),
    ] = None,
    word: Annotated[str | None, typer.Option(help="With --lines: draw the lines of this word only.")] = None,
    beam: BeamOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Show the attention weights of every head of every layer while the model in RUN processes TEXT."""
    from dataclasses import replace

    suffix = output.suffix.lower()
    if suffix not in (".html", *_PICTURE_FORMATS):
        raise UserError(f"{output}: the file name must end in .html (a page) or in {', '.join(_PICTURE_FORMATS)}.")
    options: dict[str, Any] = {"target": target, "prefix": prefix, "beam": beam, "trace": suffix == ".html"}
    model = dragoman.load(run, device=device)
    record = model.inspect(text, **options)
    record = replace(record, gold_alignment=gold, report=_cached_head_report(run))
    other = dragoman.load(compare, device=device).inspect(text, **options) if compare else None
    _write_output(record, other, output, lines, word)
    for shown in filter(None, (record, other)):
        print(model.task.from_model_output(shown.source_text, shown.target_text))
    print_stderr(f"Wrote {output}.")


def _cached_head_report(run: Path) -> dict[str, Any] | None:
    """Return the report of `dragoman heads`, or None if there is none."""
    from dragoman.run import Run
    from dragoman.tasks.head_cache import cached_head_history, cached_head_report

    report = cached_head_report(Run(run))
    return {**report, "history": cached_head_history(Run(run))} if report else None


def _write_output(
    record: "AttentionRecord", other: "AttentionRecord | None", output: Path, lines: str | None, word: str | None
) -> None:
    """Write a page or a picture, depending on the suffix of `output`."""
    from dragoman.viewer.line_picture import save_line_picture
    from dragoman.viewer.page import render_page
    from dragoman.viewer.picture import save_attention_picture
    from dragoman.viewer.spectrogram import save_spectrogram

    if output.suffix.lower() == ".html":
        output.write_text(render_page(record, other), encoding="utf-8")
    elif lines:
        save_line_picture(record, output, lines, word)
    elif record.frames is not None:
        save_spectrogram(record, output)
    else:
        save_attention_picture(record, output)
