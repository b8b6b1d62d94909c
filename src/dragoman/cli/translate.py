"""`dragoman translate`: text in, text out."""

from typing import Annotated, Any

import typer

import dragoman
from dragoman.cli.line_io import is_interactive, print_outputs, stdin_lines
from dragoman.cli.options import (
    BeamOption,
    DeviceOption,
    LengthPenaltyOption,
    PrecisionOption,
    RunArgument,
    ShortlistOption,
)


def translate(
    run: RunArgument,
    text: Annotated[list[str] | None, typer.Argument(help="What to translate; without it, standard input.")] = None,
    beam: BeamOption = None,
    n_best: Annotated[int, typer.Option(min=1, max=512, help="Translations of each line, the best first.")] = 1,
    length_penalty: LengthPenaltyOption = None,
    precision: PrecisionOption = None,
    shortlist: ShortlistOption = None,
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
    device: DeviceOption = "auto",
) -> None:
    """Translate TEXT, or every line of standard input, with the model in RUN: one line out for each line in.

    With --n-best N each line gives up to N lines, the best first; --json keeps them together."""
    model = dragoman.load(run, device=device)
    options: dict[str, Any] = {
        "beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision,
        "shortlist": shortlist, "exact": exact,
    }  # fmt: skip
    if sample:
        from dragoman.tasks.translator import TranslationSampling

        options["sampling"] = TranslationSampling(temperature, top_k, top_p, seed)
    at_once = line_by_line or is_interactive(text)
    print_outputs(model, text or stdin_lines(), options, scores=scores, as_json=as_json, one_at_a_time=at_once)
