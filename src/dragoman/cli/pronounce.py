"""`dragoman pronounce`: words in, pronunciations out."""

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


def pronounce(
    run: RunPath,
    word: Annotated[list[str] | None, typer.Argument(help="What to pronounce; without it, standard input.")] = None,
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
    """Pronounce each WORD, or every line of standard input, with the model in RUN: one line out for each line in.

    A model for several languages reads "fre⇥word", with a tab, or plain words with --label fre."""
    model = loaded(run, "pronounce", device)
    options = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision}
    lines = telling_unknown(model, completed(word or stdin_lines(), before=label))
    answer(model, lines, options, scores=scores, as_json=as_json, at_once=line_by_line or waited_for(word))
