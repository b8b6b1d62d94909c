"""`dragoman export`: write a model in the format of another program."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.options import RunArgument
from dragoman.cli.progress import print_stderr, status_spinner


def export(
    run: RunArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write.")],
    to: Annotated[str, typer.Option(help="Format: ctranslate2.")] = "ctranslate2",
    quantization: Annotated[
        str,
        typer.Option(
            help="Type of the stored weights: float32, int8, int8_float32, int8_float16, int8_bfloat16, int16, float16 "
            "or bfloat16."
        ),
    ] = "float32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing export.")] = False,
) -> None:
    """Convert the model in RUN to CTranslate2, with its tokenizer and a README that explains how to use them."""
    from dragoman.interop import ctranslate2 as task

    with status_spinner(f"Writing {output}"):
        task.export_run(run, output, to=to, quantization=quantization, overwrite=overwrite)
    print_stderr(f"Wrote {output}. Its README.md explains how to use it.")
