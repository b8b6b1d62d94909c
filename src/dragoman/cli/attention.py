"""`dragoman attention`: every head of every layer, on a page or in a picture."""

from pathlib import Path
from typing import Annotated

import typer

import dragoman
from dragoman.cli.options import Beam, Device, RunPath
from dragoman.cli.progress import say
from dragoman.errors import UserError

PICTURES = (".png", ".svg", ".pdf")


def attention(
    run: RunPath,
    text: Annotated[str, typer.Argument(help="The sentence to read.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A page (.html) or a picture (.png, .svg, .pdf).")
    ] = Path("attention.html"),
    target: Annotated[str | None, typer.Option(help="A translation to read along, instead of the model's own.")] = None,
    beam: Beam = None,
    device: Device = "auto",
) -> None:
    """Show where every head of every layer looks while the model in RUN translates TEXT."""
    from dragoman.viewer.page import page
    from dragoman.viewer.picture import picture

    suffix = output.suffix.lower()
    if suffix not in (".html", *PICTURES):
        raise UserError(f"{output}: write a page (.html) or a picture ({', '.join(PICTURES)}).")
    record = dragoman.load(run, device=device).look(text, target=target, beam=beam)
    if suffix == ".html":
        output.write_text(page(record), encoding="utf-8")
    else:
        picture(record, output)
    print(record.target_text)
    say(f"Written: {output}")
