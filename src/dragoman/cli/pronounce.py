"""`dragoman pronounce`: convert words to phonemes."""

from typing import Annotated

import typer

from dragoman.cli.line_io import add_columns, input_lines, is_interactive, load_for_task, print_outputs, warn_unknown
from dragoman.cli.options import (
    BeamOption,
    DeviceOption,
    JsonOption,
    LabelOption,
    LengthPenaltyOption,
    LineByLineOption,
    NBestOption,
    PrecisionOption,
    RunArgument,
    ScoresOption,
)


def pronounce(
    run: RunArgument,
    word: Annotated[
        list[str] | None, typer.Argument(help="Words to pronounce; default: lines of standard input.")
    ] = None,
    label: LabelOption = None,
    n_best: NBestOption = 1,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    precision: PrecisionOption = None,
    scores: ScoresOption = False,
    as_json: JsonOption = False,
    line_by_line: LineByLineOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Pronounce each WORD, or every line of standard input, with the model in RUN: one output line per input line.

    A model trained on several languages expects "fre<tab>word", or plain words with --label fre."""
    model = load_for_task(run, "pronounce", device)
    options = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision}
    lines = warn_unknown(model, add_columns(input_lines(word), before=label))
    print_outputs(
        model, lines, options, scores=scores, as_json=as_json, one_at_a_time=line_by_line or is_interactive(word)
    )
