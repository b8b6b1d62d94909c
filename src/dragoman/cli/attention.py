"""`dragoman attention`: a look inside, on a page or in a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dragoman
from dragoman.cli.options import Beam, Device, RunPath
from dragoman.cli.progress import say
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.viewer.record import AttentionRecord

PICTURES = (".png", ".svg", ".pdf")


def attention(
    run: RunPath,
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
    beam: Beam = None,
    device: Device = "auto",
) -> None:
    """Show where every head of every layer looks while the model in RUN works on TEXT."""
    from dataclasses import replace

    suffix = output.suffix.lower()
    if suffix not in (".html", *PICTURES):
        raise UserError(f"{output}: write a page (.html) or a picture ({', '.join(PICTURES)}).")
    how: dict[str, Any] = {"target": target, "prefix": prefix, "beam": beam, "trace": suffix == ".html"}
    model = dragoman.load(run, device=device)
    record = model.look(text, **how)
    record = replace(record, gold=gold, report=known_report(run))
    other = dragoman.load(compare, device=device).look(text, **how) if compare else None
    write(record, other, output, lines, word)
    for each in filter(None, (record, other)):
        print(model.task.shown(each.source_text, each.target_text))
    say(f"Written: {output}")


def known_report(run: Path) -> dict[str, Any] | None:
    """Return what `dragoman heads` has found out about the model, if it has."""
    from dragoman.run import Run
    from dragoman.tasks.head_cache import cached_history, cached_report

    found = cached_report(Run(run))
    return {**found, "history": cached_history(Run(run))} if found else None


def write(
    record: "AttentionRecord", other: "AttentionRecord | None", output: Path, lines: str | None, word: str | None
) -> None:
    """Write a page or a picture, by the ending of the name."""
    from dragoman.viewer.line_picture import line_picture
    from dragoman.viewer.page import page
    from dragoman.viewer.picture import picture

    if output.suffix.lower() == ".html":
        output.write_text(page(record, other), encoding="utf-8")
    elif lines:
        line_picture(record, output, lines, word)
    else:
        picture(record, output)
