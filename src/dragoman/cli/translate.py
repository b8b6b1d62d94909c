"""`dragoman translate`: translate text."""

from typing import Annotated, Any

import typer

from dragoman.cli.line_io import add_label, input_lines, is_interactive, load_for_task, print_outputs
from dragoman.cli.options import (
    BeamOption,
    DeviceOption,
    JsonOption,
    LabelOption,
    LengthPenaltyOption,
    LineByLineOption,
    NBestOption,
    NoSplitOption,
    PrecisionOption,
    RunArgument,
    ScoresOption,
    ShortlistOption,
)
from dragoman.decoding.sampling_options import OUTPUT_SAMPLING, SamplingOptions


def translate(
    run: RunArgument,
    text: Annotated[
        list[str] | None, typer.Argument(help="Text to translate; default: lines of standard input.")
    ] = None,
    label: LabelOption = None,
    beam: BeamOption = None,
    n_best: NBestOption = 1,
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
    scores: ScoresOption = False,
    as_json: JsonOption = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Make scores independent of the batch, bit for bit (slower).")
    ] = False,
    line_by_line: LineByLineOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Translate TEXT, or every line of standard input, with the model in RUN: one output line per input line.

    A line of several sentences is translated sentence by sentence, unless the model was trained on such lines.
    A model trained on corpora with labels expects "label<tab>text", or plain text with --label.
    With --n-best N, each input line gives up to N output lines, best first; --json keeps them together."""
    model = load_for_task(run, "translate", device)
    options: dict[str, Any] = {
        "beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision,
        "shortlist": shortlist, "exact": exact, "split": not no_split,
    }  # fmt: skip
    if sample:
        options["sampling"] = SamplingOptions(temperature, top_k, top_p, seed)
    at_once = line_by_line or is_interactive(text)
    lines = add_label(model, input_lines(text), label)
    print_outputs(model, lines, options, scores=scores, as_json=as_json, one_at_a_time=at_once)
