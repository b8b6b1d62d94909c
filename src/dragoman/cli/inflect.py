"""`dragoman inflect`: inflect lemmas."""

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


def inflect(
    run: RunArgument,
    lemma: Annotated[
        list[str] | None, typer.Argument(help="Lemmas to inflect; default: lines of standard input (lemma, tab, tags).")
    ] = None,
    tags: Annotated[str | None, typer.Option(metavar="V;PST;…", help="Tags to use for all lemmas.")] = None,
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
    """Inflect each LEMMA, or every line of standard input, with the model in RUN: one output line per input line.

    An input line is a lemma, a tab and tags, or the lemma alone with --tags. A model trained on several languages
    expects a label and a tab before it, or --label."""
    model = load_for_task(run, "inflect", device)
    options = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision}
    lines = warn_unknown(model, add_columns(input_lines(lemma), before=label, after=tags))
    print_outputs(
        model, lines, options, scores=scores, as_json=as_json, one_at_a_time=line_by_line or is_interactive(lemma)
    )
