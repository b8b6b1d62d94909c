"""The program `dragoman`: its commands, and how errors are printed."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from dragoman import __version__
from dragoman.cli.attention import attention
from dragoman.cli.average import average
from dragoman.cli.bench import bench
from dragoman.cli.check import check
from dragoman.cli.evaluate import evaluate
from dragoman.cli.export import export
from dragoman.cli.generate import generate
from dragoman.cli.heads import heads
from dragoman.cli.inflect import inflect
from dragoman.cli.info import info
from dragoman.cli.init import init
from dragoman.cli.lab import lab
from dragoman.cli.parse import parse
from dragoman.cli.pronounce import pronounce
from dragoman.cli.quickstart import quickstart
from dragoman.cli.serve import serve
from dragoman.cli.shortlist import shortlist
from dragoman.cli.train import plan, train
from dragoman.cli.transcribe import transcribe
from dragoman.cli.translate import translate
from dragoman.cli.verify import verify
from dragoman.cli.watch import watch
from dragoman.errors import UserError
from dragoman.kernels import check_setting
from dragoman.malloc import keep_freed_memory
from dragoman.streams import escape_controls, protect_streams

app = typer.Typer(
    name="dragoman", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
_SUMMARIES: dict[Callable[..., None], str] = {
    quickstart: "Train, score and inspect a small model in a few minutes.",
    check: "Check parallel text, or recordings with their texts, before training.",
    plan: "Print the recipe that a training would plan.",
    init: "Print a commented recipe to edit.",
    train: "Train a model from text files.",
    watch: "Serve a live page of a training run.",
    translate: "Translate text.",
    parse: "Parse sentences into trees.",
    pronounce: "Convert words to phonemes.",
    inflect: "Inflect lemmas.",
    generate: "Continue a text with a language model.",
    transcribe: "Write down what is said in recordings.",
    evaluate: "Score a model with the metrics of its task.",
    attention: "Write a page or picture of all attention weights.",
    heads: "Report what each attention head does.",
    serve: "Serve models over HTTP, with a web page.",
    average: "Average the weights of checkpoints.",
    shortlist: "Learn a lexical shortlist for faster translation.",
    export: "Convert a model to CTranslate2.",
    info: "Describe a run, or this machine.",
    verify: "Check that a run is complete and unchanged.",
    lab: "Reproduce the paper's experiments.",
    bench: "Measure speed on this machine.",
}
for _command, _summary in _SUMMARIES.items():
    app.command(short_help=_summary)(_command)


def _print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def dragoman(
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Train sequence-to-sequence models and language models on your own files and machine; evaluate, use, serve and
    inspect them."""
    check_setting()
    _check_current_directory()


def _check_current_directory() -> None:
    """Raise a UserError if the current directory is gone: libraries would fail with less clear messages."""
    try:
        Path.cwd()
    except OSError as error:
        raise UserError(f"The current directory cannot be used ({error.strerror}); change to another one.") from None


def main() -> None:
    """Run the program and exit. A UserError is printed without a traceback; Ctrl-C exits with code 130."""
    protect_streams()
    keep_freed_memory()
    try:
        _run_command()
        sys.stdout.flush()
    except UserError as error:
        sys.exit(_print_error(str(error), error.exit_code))
    except OSError as error:
        prefix = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        sys.exit(_print_error(f"{prefix}{error.strerror or error}.", UserError.exit_code))


def _run_command() -> None:
    """Run the command of the command line; write its results before it exits."""
    try:
        app()
    except SystemExit as left:
        if isinstance(getattr(left.__context__, "__cause__", None), KeyboardInterrupt):
            _print_error("interrupted.", 0)
        sys.stdout.flush()
        raise


def _print_error(text: str, code: int) -> int:
    """Print an error to standard error and return the exit code."""
    print(f"dragoman: {escape_controls(text)}", file=sys.stderr)
    return code
