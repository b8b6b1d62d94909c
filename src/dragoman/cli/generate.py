"""`dragoman generate`: sample text from a language model."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman.cli.line_io import MAX_INPUT_BYTES, load_for_task, read_stdin
from dragoman.cli.options import DeviceOption, RunArgument
from dragoman.cli.progress import print_stderr
from dragoman.decoding.sampling_options import TEXT_SAMPLING
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.tasks.generate import Continuation

_OLD_FINISH_REASONS = {"eos_token": "end", "stop_sequence": "stop"}


def generate(
    run: RunArgument,
    prompt: Annotated[str | None, typer.Argument(help="Text to continue; default: standard input.")] = None,
    length: Annotated[int, typer.Option(min=1, help="Maximum number of tokens to generate.")] = 500,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Sampling temperature; 0 always takes the most likely token.")
    ] = TEXT_SAMPLING.temperature,
    top_k: Annotated[
        int, typer.Option(min=0, help="Sample from the k most likely tokens only; 0 means all.")
    ] = TEXT_SAMPLING.top_k,
    top_p: Annotated[
        float, typer.Option(help="Sample from the most likely tokens whose probabilities sum to p.")
    ] = TEXT_SAMPLING.top_p,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed; the same seed gives the same text.")
    ] = TEXT_SAMPLING.seed,
    samples: Annotated[int, typer.Option(min=1, help="Number of texts to generate.")] = 1,
    stop: Annotated[str, typer.Option(metavar="TEXT", help="Stop before generating this text.")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per text: prompt, text, finish reason.")
    ] = False,
    no_stream: Annotated[
        bool, typer.Option("--no-stream", help="Print each text when it is complete instead of token by token.")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Continue PROMPT, or all of standard input, with the language model in RUN.

    Prints the prompt, then the generated text token by token. Several samples are separated by a line of dashes."""
    from dragoman.tasks.generate import LanguageModel

    model = load_for_task(run, "generate", device)
    assert isinstance(model, LanguageModel), f"{type(model)} is not a language model"
    begun = _stdin_text() if prompt is None else prompt
    print_notice = _PrintOnce()
    for number in range(samples):
        writing = model.stream(
            begun, length=length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop,
            sample=number, on_notice=print_notice,
        )  # fmt: skip
        if number and not as_json:
            print("-" * 20)
        if as_json or no_stream:
            text = "".join(writing)
            print(json.dumps(_to_json(writing.result()), ensure_ascii=False) if as_json else begun + text, flush=True)
            continue
        print(begun, end="", flush=True)
        for piece in writing:
            print(piece, end="", flush=True)
        print(flush=True)


def _to_json(result: "Continuation") -> dict[str, Any]:
    """Return the fields of a text, `ended` and `slid` under their former names too, until version 0.3."""
    ended = _OLD_FINISH_REASONS.get(result.finish_reason, result.finish_reason)
    return {**asdict(result), "ended": ended, "slid": result.context_truncated}


class _PrintOnce:
    """Print each message once."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def __call__(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            print_stderr(text)


def _stdin_text() -> str:
    """Read all of standard input, without its last line end."""
    if sys.stdin.isatty():
        print_stderr("Type the beginning of the text; end it with Ctrl-D on a new line.")
    raw = read_stdin(sys.stdin.buffer.read).removesuffix(b"\n").removesuffix(b"\r")
    if len(raw) > MAX_INPUT_BYTES:
        raise UserError(f"standard input: the text exceeds {MAX_INPUT_BYTES >> 20} MiB; give its end only.")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"standard input: byte {error.start + 1} (0x{raw[error.start]:02x}) is not UTF-8; convert the text first, "
            "for example with `iconv -f WINDOWS-1252 -t UTF-8`."
        ) from None
