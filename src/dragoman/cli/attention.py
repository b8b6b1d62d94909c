"""`dragoman attention`: a look inside, on a page or in a picture."""

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
    text: Annotated[str, typer.Argument(help="The sentence, the word or whatever else the model reads.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A page (.html) or a picture (.png, .svg, .pdf).")
    ] = Path("attention.html"),
    target: Annotated[str | None, typer.Option(help="An output to read along, instead of the model's own.")] = None,
    prefix: Annotated[str, typer.Option(help="How the output has to begin.")] = "",
    compare: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Another run, to be shown beside this one on the page.")
    ] = None,
    gold: Annotated[
        str | None, typer.Option(metavar="LINKS", help="The right word alignment, as 0-0 1-2; gives error rates.")
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(metavar="KIND.LAYER[.HEAD]", help="A picture of lines, as in the paper: encoder.5 or cross.2.1."),
    ] = None,
    word: Annotated[str | None, typer.Option(help="With --lines: only the lines of this word.")] = None,
    beam: BeamOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Show where every head of every layer looks while the model in RUN works on TEXT."""
    from dataclasses import replace

    suffix = output.suffix.lower()
    if suffix not in (".html", *_PICTURE_FORMATS):
        raise UserError(f"{output}: write a page (.html) or a picture ({', '.join(_PICTURE_FORMATS)}).")
    how: dict[str, Any] = {"target": target, "prefix": prefix, "beam": beam, "trace": suffix == ".html"}
    model = dragoman.load(run, device=device)
    record = model.inspect(text, **how)
    record = replace(record, gold_alignment=gold, report=_cached_head_report(run))
    other = dragoman.load(compare, device=device).inspect(text, **how) if compare else None
    _write_output(record, other, output, lines, word)
    for each in filter(None, (record, other)):
        print(model.task.from_model_output(each.source_text, each.target_text))
    print_stderr(f"Written: {output}")


def _cached_head_report(run: Path) -> dict[str, Any] | None:
    """Return what `dragoman heads` has found out about the model, if it has."""
    from dragoman.run import Run
    from dragoman.tasks.head_cache import cached_head_history, cached_head_report

    found = cached_head_report(Run(run))
    return {**found, "history": cached_head_history(Run(run))} if found else None


def _write_output(
    record: "AttentionRecord", other: "AttentionRecord | None", output: Path, lines: str | None, word: str | None
) -> None:
    """Write a page or a picture, by the ending of the name."""
    from dragoman.viewer.line_picture import save_line_picture
    from dragoman.viewer.page import render_page
    from dragoman.viewer.picture import save_attention_picture

    if output.suffix.lower() == ".html":
        output.write_text(render_page(record, other), encoding="utf-8")
    elif lines:
        save_line_picture(record, output, lines, word)
    else:
        save_attention_picture(record, output)
