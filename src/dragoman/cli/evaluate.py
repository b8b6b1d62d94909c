"""`dragoman evaluate`: how good what a model does is, in numbers that others can repeat."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.evaluations.examples import evaluate_examples
from dragoman.cli.evaluations.language_model import evaluate_language_model
from dragoman.cli.evaluations.options import EvaluateOptions
from dragoman.cli.evaluations.translations import evaluate_translations
from dragoman.cli.evaluations.trees import evaluate_trees
from dragoman.cli.evaluations.words import evaluate_inflections, evaluate_pronunciations
from dragoman.cli.options import BeamOption, DeviceOption, LengthPenaltyOption, PrecisionOption, ShortlistOption
from dragoman.errors import UserError, did_you_mean
from dragoman.presets import TASK_DEFAULTS

_EVALUATORS: dict[str, Callable[[EvaluateOptions], None]] = {
    "translate": evaluate_translations,
    "parse": evaluate_trees,
    "pronounce": evaluate_pronunciations,
    "inflect": evaluate_inflections,
    "generate": evaluate_language_model,
}


def evaluate(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run directory.")] = None,
    source: Annotated[str | None, typer.Option(help="Text to translate.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="What it should become, line by line; of words: a lexicon.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Without a RUN: what is scored, translate (if unset), parse, pronounce, inflect.")
    ] = None,
    hypotheses: Annotated[str | None, typer.Option(help="Instead of a RUN: output made elsewhere.")] = None,
    against: Annotated[Path | None, typer.Option(help="Another run: is the difference more than chance?")] = None,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    precision: PrecisionOption = None,
    shortlist: ShortlistOption = None,
    worst: Annotated[int, typer.Option(min=0, help="Show this many of the worst sentences.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations to this file.")] = None,
    parameters: Annotated[
        str | None, typer.Option(metavar="FILE.prm", help="Of trees: which brackets count, as EVALB's files say it.")
    ] = None,
    sentences: Annotated[bool, typer.Option("--sentences", help="Of trees: list every sentence.")] = False,
    ignore_stress: Annotated[
        bool, typer.Option("--ignore-stress", help="Of pronunciations: AH0 and AH1 are both AH.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Translate --source with the model in RUN and score it against --reference (or score --hypotheses).

    Trees are scored with --task parse --hypotheses F --reference F, as EVALB scores them; see docs/parsing.md. Models
    that pronounce or inflect take --reference alone, a lexicon; see docs/pronunciation.md.
    """
    named = task or _task_of_run(run)
    if named not in TASK_DEFAULTS:
        raise UserError(
            f'There is no task "{named}"; there is {", ".join(TASK_DEFAULTS)}.{did_you_mean(named, [*TASK_DEFAULTS])}'
        )
    decoding = {"beam": beam, "length_penalty": length_penalty, "precision": precision, "shortlist": shortlist}
    question = EvaluateOptions(
        named, run, source, reference, hypotheses, against, worst, output, parameters, sentences, ignore_stress,
        as_json, device, decoding,
    )  # fmt: skip
    _EVALUATORS.get(named, evaluate_examples)(question)


def _task_of_run(run: Path | None) -> str:
    """Return the task that a run was trained for; without a run it is translation."""
    from dragoman.run import Run

    return Run(run).read_recipe().task if run else "translate"
