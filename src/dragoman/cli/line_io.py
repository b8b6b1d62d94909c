"""What all verbs share that answer a line with a line: reading, asking the model, printing."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dragoman
from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError
from dragoman.tokens import UNKNOWN

if TYPE_CHECKING:
    from dragoman.tasks.translator import Translator

_MAX_LINE_BYTES = 64 << 20  # bytes: more than any sentence, and less than memory
_TAB = "\t"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def load_for_task(run: Path, task: str, device: str) -> "Translator":
    """Load the model in a run, if it has learned what the verb says."""
    model = dragoman.load(run, device=device)
    if model.task.name != task:
        raise UserError(f"{run} is a {model.task.noun}; ask it with `dragoman {model.task.name}`.")
    return model


def print_outputs(
    model: "Translator",
    lines: Iterable[str],
    options: dict[str, Any],
    *,
    scores: bool,
    as_json: bool,
    one_at_a_time: bool,
) -> None:
    """Print the answers to lines, and say at the end how many had to be read in parts."""
    in_parts = 0
    together = {"at_a_time": 1} if one_at_a_time else {}
    for found in model.translate_lines(lines, details=True, **together, **options):
        ranked = found if isinstance(found, list) else [found]
        _print_hypotheses(ranked, scores=scores, as_json=as_json)
        in_parts += ranked[0].parts > 1
    if in_parts:
        most = f"{model.max_length} pieces at most"
        print_stderr(f"{in_parts:,} longer than any text in training, so translated in parts of {most}.")


def is_interactive(text: list[str] | None) -> bool:
    """Say whether somebody sits at a terminal and waits for each answer."""
    return not text and sys.stdin.isatty()


def _print_hypotheses(hypotheses: Iterable[Any], *, scores: bool, as_json: bool) -> None:
    """Print the answers to one line."""
    if as_json:
        print(json.dumps([asdict(one) for one in hypotheses], ensure_ascii=False), flush=True)
        return
    for one in hypotheses:
        print(f"{one.score:.4f}\t{_join_lines(one.text)}" if scores else _join_lines(one.text), flush=True)


def _join_lines(text: str) -> str:
    """Keep one line one line, whatever the model writes."""
    return text.replace("\n", " ")


def add_columns(lines: Iterable[str], *, before: str | None = None, after: str | None = None) -> Iterator[str]:
    """Put what an option says before or after each line, with a tab between; leave empty lines empty."""
    for line in lines:
        parts = [part for part in (before, line, after) if part is not None]
        yield "\t".join(parts) if line.strip() else line


def warn_unknown(model: "Translator", lines: Iterable[str]) -> Iterator[str]:
    """Pass lines on, and say what in them the model has never seen, each letter or tag once."""
    from dragoman.tasks.lexicon import visible_letter

    said: set[str] = set()
    for line in lines:
        pieces = model.source_tokenizer.pieces(model.task.to_model_input(line))
        new = dict.fromkeys(piece.text for piece in pieces if piece.token == UNKNOWN and piece.text not in said)
        if new:
            said.update(new)
            listed = " ".join(map(visible_letter, new))
            print_stderr(f'"{line.replace(_TAB, "⇥")}": never seen in training, so read as unknown: {listed}')
        yield line


def stdin_lines() -> Iterator[str]:
    """Yield the lines of standard input; only a line feed ends a line, and a byte-order mark is not part of it."""
    for number, raw in enumerate(iter(lambda: sys.stdin.buffer.readline(_MAX_LINE_BYTES + 1), b""), 1):
        if len(raw) > _MAX_LINE_BYTES:
            raise UserError(f"standard input, line {number}: longer than {_MAX_LINE_BYTES >> 20} MiB; cut it first.")
        line = raw.removesuffix(b"\r\n").removesuffix(b"\n")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            encoding = "UTF-16" if number == 1 and line.startswith(_UTF16_MARKS) else "WINDOWS-1252"
            raise UserError(
                f"standard input, line {number}: byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not "
                f"UTF-8; convert the text first, for example with `iconv -f {encoding} -t UTF-8`."
            ) from None
