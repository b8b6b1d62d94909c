"""`dragoman evaluate`: score a model's output with the standard metrics of its task."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman.cli.evaluators import EvaluateOptions
from dragoman.cli.options import (
    BeamOption,
    ColumnsOption,
    DeviceOption,
    JsonObjectOption,
    LabelOption,
    LengthPenaltyOption,
    NoSplitOption,
    PairsOption,
    PrecisionOption,
    ShortlistOption,
    check_task,
    parse_columns,
)
from dragoman.errors import UserError
from dragoman.presets import TASKS, import_object
from dragoman.run import Run


def evaluate(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run directory.")] = None,
    source: Annotated[str | None, typer.Option(help="Source text to translate.")] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Reference output, aligned line by line; a lexicon, a treebank, or a manifest of recordings."
        ),
    ] = None,
    pairs: PairsOption = None,
    columns: ColumnsOption = None,
    label: LabelOption = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Without RUN: the task to score, one of translate (default), parse, pronounce, inflect, transcribe."
        ),
    ] = None,
    hypotheses: Annotated[
        str | None, typer.Option(help="Score the outputs in this file instead of those of a RUN.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another run to compare with, using a significance test.")
    ] = None,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    precision: PrecisionOption = None,
    shortlist: ShortlistOption = None,
    no_split: NoSplitOption = False,
    worst: Annotated[int, typer.Option(min=0, help="Print this many of the worst sentences, words or recordings.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the outputs to this file.")] = None,
    parameters: Annotated[
        str | None, typer.Option(metavar="FILE.prm", help="Parsing: an EVALB parameter file.")
    ] = None,
    sentences: Annotated[bool, typer.Option("--sentences", help="Parsing: list the scores of every sentence.")] = False,
    ignore_stress: Annotated[
        bool, typer.Option("--ignore-stress", help="Pronunciation: treat AH0 and AH1 as AH.")
    ] = False,
    as_json: JsonObjectOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Translate --source with the model in RUN and score the output against --reference (or score --hypotheses).

    --pairs gives source and reference in one file. Parsing is scored with the rules of EVALB; see docs/parsing.md.
    Pronunciation and inflection need only --reference, a lexicon; see docs/pronunciation.md. Transcription needs only
    --reference, a manifest of recordings; see docs/transcription.md.
    """
    named = _select_task(task, run)
    decoding: dict[str, Any] = {
        "beam": beam, "length_penalty": length_penalty, "precision": precision, "shortlist": shortlist
    }  # fmt: skip
    if no_split:
        if named != "translate":
            raise UserError(f"--no-split is not supported for --task {named}; remove it.")
        decoding["split"] = False
    options = EvaluateOptions(
        named, run, source, reference, pairs, parse_columns(columns), label, hypotheses, against, worst, output,
        parameters, sentences, ignore_stress, as_json, device, decoding,
    )  # fmt: skip
    evaluator: Callable[[EvaluateOptions], None] = import_object(TASKS[named].evaluator)
    evaluator(options)


def _select_task(task: str | None, run: Path | None) -> str:
    """Return the task of the run, or without a run the given one; raise a UserError if they differ."""
    if task is not None:
        check_task(task)
    if run is None:
        return task or "translate"
    trained_for = Run(run).read_recipe().task
    if task not in (None, trained_for):
        raise UserError(f"{run} was trained for task {trained_for}; remove --task {task}.")
    return trained_for
