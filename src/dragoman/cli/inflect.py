"""`dragoman inflect`: lemmas and tags in, inflected forms out."""

from typing import Annotated

import typer

from dragoman.cli.answers import answer, completed, loaded, stdin_lines, telling_unknown, waited_for
from dragoman.cli.options import (
    AsJson,
    Beam,
    Device,
    Label,
    LengthPenalty,
    LineByLine,
    NBest,
    Precision,
    RunPath,
    WithScores,
)


def inflect(
    run: RunPath,
    lemma: Annotated[
        list[str] | None, typer.Argument(help="What to inflect; without it, standard input: lemma, tab, tags.")
    ] = None,
    tags: Annotated[str | None, typer.Option(metavar="V;PST;…", help="The tags of all lemmas.")] = None,
    label: Label = None,
    n_best: NBest = 1,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    precision: Precision = None,
    scores: WithScores = False,
    as_json: AsJson = False,
    line_by_line: LineByLine = False,
    device: Device = "auto",
) -> None:
    """Inflect each LEMMA, or every line of standard input, with the model in RUN: one line out for each line in.

    A line is lemma, tab, tags; or the lemma alone with --tags. A model for several languages reads the label and a tab
    before it, or takes --label."""
    model = loaded(run, "inflect", device)
    options = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision}
    lines = telling_unknown(model, completed(lemma or stdin_lines(), before=label, after=tags))
    answer(model, lines, options, scores=scores, as_json=as_json, at_once=line_by_line or waited_for(lemma))
