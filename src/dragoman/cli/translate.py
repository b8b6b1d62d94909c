"""`dragoman translate`: translate text."""

from typing import Annotated, Any

import typer

import dragoman
from dragoman.cli.line_io import is_interactive, print_outputs, stdin_lines
from dragoman.cli.options import (
    BeamOption,
    DeviceOption,
    LengthPenaltyOption,
    NoSplitOption,
    PrecisionOption,
    RunArgument,
    ShortlistOption,
)
from dragoman.decoding.sampling_options import OUTPUT_SAMPLING, SamplingOptions


def translate(
    run: RunArgument,
    text: Annotated[
        list[str] | None, typer.Argument(help="Text to translate; default: lines of standard input.")
    ] = None,
    beam: BeamOption = None,
    n_best: Annotated[int, typer.Option(min=1, max=512, help="Number of translations per line, best first.")] = 1,
    length_penalty: LengthPenaltyOption = None,
    precision: PrecisionOption = None,
    shortlist: ShortlistOption = None,
    no_split: NoSplitOption = False,
    sample: Annotated[bool, typer.Option("--sample", help="Sample from the model instead of beam search.")] = False,
    temperature: Annotated[
        float, typer.Option(help="With --sample: sampling temperature.")
    ] = OUTPUT_SAMPLING.temperature,
    top_k: Annotated[
        int, typer.Option(min=0, help="With --sample: use the k most likely tokens only; 0 means all.")
    ] = OUTPUT_SAMPLING.top_k,
    top_p: Annotated[
        float, typer.Option(help="With --sample: use the most likely tokens whose probabilities sum to p.")
    ] = OUTPUT_SAMPLING.top_p,
    seed: Annotated[int, typer.Option(min=0, help="With --sample: random seed.")] = OUTPUT_SAMPLING.seed,
    scores: Annotated[
        bool, typer.Option("--scores", help="Print the score and a tab before each translation.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON list per input line: its translations, with scores and tokens."),
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Make scores independent of the batch, bit for bit (slower).")
    ] = False,
    line_by_line: Annotated[
        bool,
        typer.Option("--line-by-line", help="Translate each line before reading the next one (slower for many lines)."),
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Translate TEXT, or every line of standard input, with the model in RUN: one output line per input line.

    A line of several sentences is translated sentence by sentence, unless the model was trained on such lines.
    With --n-best N, each input line gives up to N output lines, best first; --json keeps them together."""
    model = dragoman.load(run, device=device)
    options: dict[str, Any] = {
        "beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision,
        "shortlist": shortlist, "exact": exact, "split": not no_split,
    }  # fmt: skip
    if sample:
        options["sampling"] = SamplingOptions(temperature, top_k, top_p, seed)
    at_once = line_by_line or is_interactive(text)
    print_outputs(model, text or stdin_lines(), options, scores=scores, as_json=as_json, one_at_a_time=at_once)
