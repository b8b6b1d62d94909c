"""Line-by-line input and output of the commands that run a model."""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dragoman
from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError, format_count
from dragoman.tokens import UNKNOWN

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel

MAX_INPUT_BYTES = 64 << 20  # longer lines or prompts are no text, and might not fit into memory
_MAX_NAME_BYTES = 255  # of a text that may be the name of a file
_TAB = "\t"
_TASK_COMMANDS = (
    "generate",
    "inflect",
    "parse",
    "pronounce",
    "transcribe",
)  # `dragoman translate` is for all other tasks
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def load_for_task(run: Path, command: str, device: str) -> "SequenceModel":
    """Load the model in a run; raise a UserError if another command is for its task."""
    model = dragoman.load(run, device=device)
    fitting = model.task.name if model.task.name in _TASK_COMMANDS else "translate"
    if fitting != command:
        raise UserError(f"{run} is a {model.task.noun}; use `dragoman {fitting}`.")
    return model


def print_outputs(
    model: "SequenceModel",
    lines: Iterable[str],
    options: dict[str, Any],
    *,
    scores: bool,
    as_json: bool,
    one_at_a_time: bool,
) -> None:
    """Print the outputs for each line, and at the end the number of sentences that were too long to be read at once."""
    long_sentences = 0
    for prediction in model.predict_lines(lines, details=True, chunk_size=1 if one_at_a_time else None, **options):
        ranked = prediction if isinstance(prediction, list) else [prediction]
        _print_hypotheses(ranked, scores=scores, as_json=as_json)
        long_sentences += ranked[0].long_sentences
    if long_sentences:
        sentences = format_count(long_sentences, "sentence")
        print_stderr(
            f"Split {sentences} longer than any in the training data into parts of at most {model.max_length} tokens."
        )


def is_interactive(text: list[str] | None) -> bool:
    """Return whether input comes from a terminal, so that each line should be processed at once."""
    return not text and sys.stdin.isatty()


def _print_hypotheses(hypotheses: Iterable[Any], *, scores: bool, as_json: bool) -> None:
    """Print the hypotheses for one line."""
    if as_json:
        print(json.dumps([asdict(hypothesis) for hypothesis in hypotheses], ensure_ascii=False), flush=True)
        return
    for hypothesis in hypotheses:
        score = f"{hypothesis.score:.4f}\t" if scores else ""
        print(score + hypothesis.text.replace("\n", " "), flush=True)


def add_columns(lines: Iterable[str], *, before: str | None = None, after: str | None = None) -> Iterator[str]:
    """Add tab-separated columns before or after each line; empty lines stay empty."""
    for line in lines:
        parts = [part for part in (before, line, after) if part is not None]
        yield "\t".join(parts) if line.strip() else line


def add_label(model: "SequenceModel", lines: Iterable[str], label: str | None) -> Iterator[str]:
    """Add the label of --label before each line; raise a UserError if the model has no labels."""
    if label is not None and model.task.raw_text_io:
        raise UserError(f"{model.run} was trained without labels; remove --label.")
    return add_columns(lines, before=label)


def warn_unknown(model: "SequenceModel", lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines unchanged; print a warning for each letter or tag that is not in the vocabulary, once."""
    from dragoman.tasks.lexicon import visible_letter

    reported: set[str] = set()
    for line in lines:
        pieces = model.source_tokenizer.pieces(model.task.to_model_input(line))
        new = dict.fromkeys(piece.text for piece in pieces if piece.token == UNKNOWN and piece.text not in reported)
        if new:
            reported.update(new)
            listed = " ".join(map(visible_letter, new))
            print_stderr(f'"{line.replace(_TAB, "<tab>")}": symbols outside the vocabulary, read as unknown: {listed}')
        yield line


def input_lines(texts: list[str] | None) -> Iterable[str]:
    """Return the texts of the command line, or the lines of standard input if there are none.

    A text that is the name of a file is probably meant to be read.
    """
    if not texts:
        return _stdin_lines()
    for text in texts:
        if len(os.fsencode(text)) <= _MAX_NAME_BYTES and Path(text).is_file():
            print_stderr(f"{text} is a file, but its name is taken as text; use < {text} for its lines.", "yellow")
    return texts


def read_stdin(read: Callable[[int], bytes]) -> bytes:
    """Read up to `MAX_INPUT_BYTES` + 1 bytes with a method of standard input; raise a UserError if that fails."""
    try:
        return read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
        raise UserError(f"Standard input cannot be read: {reason}.") from None


def _stdin_lines() -> Iterator[str]:
    """Yield the lines of standard input, split at line feeds only, without a byte-order mark."""
    for number, raw in enumerate(iter(lambda: read_stdin(sys.stdin.buffer.readline), b""), 1):
        if len(raw) > MAX_INPUT_BYTES:
            raise UserError(
                f"standard input, line {number}: the line exceeds {MAX_INPUT_BYTES >> 20} MiB; split it first."
            )
        line = raw.removesuffix(b"\r\n").removesuffix(b"\n")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            encoding = "UTF-16" if number == 1 and line.startswith(_UTF16_MARKS) else "WINDOWS-1252"
            raise UserError(
                f"standard input, line {number}: byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not "
                f"UTF-8; convert the text first, for example with `iconv -f {encoding} -t UTF-8`."
            ) from None
