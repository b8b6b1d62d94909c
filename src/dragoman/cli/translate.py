"""`dragoman translate`: text in, text out."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

import dragoman
from dragoman.cli.options import Beam, Device, LengthPenalty, Precision, RunPath, Shortlist
from dragoman.cli.progress import say
from dragoman.errors import UserError

LONGEST_LINE = 64 << 20  # bytes: more than any sentence, and less than memory
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def translate(
    run: RunPath,
    text: Annotated[list[str] | None, typer.Argument(help="What to translate; without it, standard input.")] = None,
    beam: Beam = None,
    n_best: Annotated[int, typer.Option(min=1, max=512, help="Translations of each line, the best first.")] = 1,
    length_penalty: LengthPenalty = None,
    precision: Precision = None,
    shortlist: Shortlist = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw at random instead of searching for the best.")] = False,
    temperature: Annotated[float, typer.Option(help="With --sample: above 1 is bolder, below 1 is tamer.")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="With --sample: only the k likeliest pieces; 0 is all.")] = 0,
    top_p: Annotated[float, typer.Option(help="With --sample: only the likeliest pieces that make up p.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="With --sample: same seed, same draw.")] = 0,
    scores: Annotated[bool, typer.Option("--scores", help="Put the score and a tab before each translation.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON list a line: its translations, with scores and pieces.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Scores the same to the last bit in any company; slower.")
    ] = False,
    line_by_line: Annotated[
        bool, typer.Option("--line-by-line", help="Answer each line before reading the next; slower in bulk.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Translate TEXT, or every line of standard input, with the model in RUN: one line out for each line in.

    With --n-best N each line gives up to N lines, the best first; --json keeps them together."""
    model = dragoman.load(run, device=device)
    options: dict[str, Any] = {
        "beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision,
        "shortlist": shortlist, "exact": exact,
    }  # fmt: skip
    if sample:
        from dragoman.tasks.translator import Sampling

        options["sampling"] = Sampling(temperature, top_k, top_p, seed)
    if line_by_line or (sys.stdin.isatty() and not text):
        options["at_a_time"] = 1
    lines = text or stdin_lines()
    in_parts = 0
    for found in model.translate_lines(lines, details=True, **options):
        ranked = found if isinstance(found, list) else [found]
        show(ranked, scores=scores, as_json=as_json)
        in_parts += ranked[0].parts > 1
    if in_parts:
        most = f"{model.longest} pieces at most"
        say(f"{in_parts:,} longer than any text in training, so translated in parts of {most}.")


def show(ranked: Iterable[Any], *, scores: bool, as_json: bool) -> None:
    """Print the translations of one line."""
    if as_json:
        print(json.dumps([asdict(one) for one in ranked], ensure_ascii=False), flush=True)
        return
    for one in ranked:
        print(f"{one.score:.4f}\t{on_one_line(one.text)}" if scores else on_one_line(one.text), flush=True)


def on_one_line(text: str) -> str:
    """Keep one line one line, whatever the model writes."""
    return text.replace("\n", " ")


def stdin_lines() -> Iterator[str]:
    """Yield the lines of standard input; only a line feed ends a line, and a byte-order mark is not part of it."""
    for number, raw in enumerate(iter(lambda: sys.stdin.buffer.readline(LONGEST_LINE + 1), b""), 1):
        if len(raw) > LONGEST_LINE:
            raise UserError(f"standard input, line {number}: longer than {LONGEST_LINE >> 20} MiB; cut it first.")
        line = raw.removesuffix(b"\r\n").removesuffix(b"\n")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            encoding = "UTF-16" if number == 1 and line.startswith(UTF16_MARKS) else "WINDOWS-1252"
            raise UserError(
                f"standard input, line {number}: byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not "
                f"UTF-8; convert the text first, for example with `iconv -f {encoding} -t UTF-8`."
            ) from None
