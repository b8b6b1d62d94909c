"""`dragoman inflect`: lemmas and tags in, inflected forms out."""

from typing import Annotated

import typer

from dragoman.cli.line_io import add_columns, is_interactive, load_for_task, print_outputs, stdin_lines, warn_unknown
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
        list[str] | None, typer.Argument(help="What to inflect; without it, standard input: lemma, tab, tags.")
    ] = None,
    tags: Annotated[str | None, typer.Option(metavar="V;PST;…", help="The tags of all lemmas.")] = None,
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
    """Inflect each LEMMA, or every line of standard input, with the model in RUN: one line out for each line in.

    A line is lemma, tab, tags; or the lemma alone with --tags. A model for several languages reads the label and a tab
    before it, or takes --label."""
    model = load_for_task(run, "inflect", device)
    options = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision}
    lines = warn_unknown(model, add_columns(lemma or stdin_lines(), before=label, after=tags))
    print_outputs(
        model, lines, options, scores=scores, as_json=as_json, one_at_a_time=line_by_line or is_interactive(lemma)
    )
