"""`dragoman generate`: the beginning of a text in, and how it may go on out, as it is written."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from dragoman.cli.line_io import load_for_task
from dragoman.cli.options import DeviceOption, RunArgument
from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError


def generate(
    run: RunArgument,
    prompt: Annotated[str | None, typer.Argument(help="How the text begins; without it, standard input.")] = None,
    length: Annotated[int, typer.Option(min=1, help="Tokens to write, at most.")] = 500,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Above 1 is bolder, below 1 is tamer; 0 takes the likeliest token each time.")
    ] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Only the k likeliest tokens; 0 is all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Only the likeliest tokens that make up p.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same text.")] = 0,
    samples: Annotated[int, typer.Option(min=1, help="Texts to write, one after another.")] = 1,
    stop: Annotated[str, typer.Option(metavar="TEXT", help="Stop before this is written.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line: prompt, text, how it ended.")] = False,
    no_stream: Annotated[bool, typer.Option("--no-stream", help="Print each text when it is complete.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Go on with PROMPT, or with the whole of standard input, with the language model in RUN.

    The prompt is printed first, then the text as it is written. Several samples have a line of dashes between them."""
    from dragoman.decoding.generate import SamplingOptions

    model = load_for_task(run, "generate", device)
    begun = _stdin_text() if prompt is None else prompt
    draw, heard = SamplingOptions(temperature, top_k, top_p, seed), _PrintOnce()
    for number in range(samples):
        writing = model.stream(begun, sampling=draw, length=length, stop=stop, sample=number, on_notice=heard)
        if number and not as_json:
            print("-" * 20)
        if as_json or no_stream:
            text = "".join(writing)
            print(json.dumps(asdict(writing.result()), ensure_ascii=False) if as_json else begun + text, flush=True)
            continue
        print(begun, end="", flush=True)
        for piece in writing:
            print(piece, end="", flush=True)
        print(flush=True)


class _PrintOnce:
    """Says each thing once, however many texts it is true of."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def __call__(self, text: str) -> None:
        """Say it, unless it has been said."""
        if text not in self.said:
            self.said.add(text)
            print_stderr(text)


def _stdin_text() -> str:
    """Read standard input to its end; the last line end is the shell's and not part of a prompt."""
    if sys.stdin.isatty():
        print_stderr("Type how the text begins; Ctrl-D on a line of its own ends it.")
    raw = sys.stdin.buffer.read().removesuffix(b"\n").removesuffix(b"\r")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"standard input: byte {error.start + 1} (0x{raw[error.start]:02x}) is not UTF-8; convert the text first, "
            "for example with `iconv -f WINDOWS-1252 -t UTF-8`."
        ) from None
