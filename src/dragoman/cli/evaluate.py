"""`dragoman evaluate`: how good the translations are, in numbers that others can repeat."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import dragoman
from dragoman.cli.init import check_task
from dragoman.cli.options import Beam, Device, LengthPenalty, Precision, Shortlist
from dragoman.cli.progress import busy, counting, say
from dragoman.errors import UserError


def evaluate(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run directory.")] = None,
    source: Annotated[str | None, typer.Option(help="Text to translate.")] = None,
    reference: Annotated[str | None, typer.Option(help="What it should become, line by line.")] = None,
    task: Annotated[str, typer.Option(help="What the model does: translate.")] = "translate",
    hypotheses: Annotated[str | None, typer.Option(help="Instead of a RUN: translations made elsewhere.")] = None,
    against: Annotated[Path | None, typer.Option(help="Another run: is the difference more than chance?")] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    precision: Precision = None,
    shortlist: Shortlist = None,
    worst: Annotated[int, typer.Option(min=0, help="Show this many of the worst sentences.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Device = "auto",
) -> None:
    """Translate --source with the model in RUN and score it against --reference (or score --hypotheses)."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import scores, tables

    check_task(task)
    refuse_unclear(run, source, reference, hypotheses, against)
    references = list(read_lines(str(reference), say))
    sources = list(read_lines(source, say)) if source else None
    options = {"beam": beam, "length_penalty": length_penalty, "precision": precision, "shortlist": shortlist}
    if hypotheses:
        ours = list(read_lines(hypotheses, say))
    if run:
        ours = translations(run, sources, len(references), device, options)
    if output:
        output.write_text("".join(line.replace("\n", " ") + "\n" for line in ours), encoding="utf-8")
    theirs = translations(against, sources, len(references), device, options) if against else None
    with busy("Scoring"):
        found = scores.score(ours, references)
        rows = scores.by_length(sources, ours, references) if sources else []
        bad = scores.worst(sources or [""] * len(ours), ours, references, worst) if worst else []
        compared = scores.compare(ours, theirs, references) if theirs is not None else None
    if as_json:
        result: dict[str, Any] = scores.to_json(found)
        result["by_length"] = [scores.to_json(row) for row in rows]
        result["worst"] = [scores.to_json(sentence) for sentence in bad]
        result["against"] = scores.to_json(compared) if compared else None
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return
    parts = [tables.scores_table(found), tables.length_table(rows) if rows else ""]
    print("\n\n".join(filter(None, [*parts, tables.worst_table(bad) if bad else "", str(compared or "")])))


def refuse_unclear(
    run: Path | None, source: str | None, reference: str | None, hypotheses: str | None, against: Path | None
) -> None:
    """Say which of the options are missing or contradict each other."""
    if reference is None:
        raise UserError("There is nothing to compare with: give --reference, the right translations line by line.")
    if (run is None) == (hypotheses is None):
        raise UserError("Give either a RUN, whose translations of --source are scored, or --hypotheses made elsewhere.")
    if source is None and (run or against):
        raise UserError("A run needs a text to translate: give --source.")


def translations(
    run: Path, sources: list[str] | None, expected: int, device: str, options: dict[str, Any]
) -> list[str]:
    """Translate with the model in a run, after checking that the lines fit together."""
    assert sources is not None, "refuse_unclear has seen to that"
    if len(sources) != expected:
        raise UserError(
            f"--source has {len(sources):,} lines but --reference has {expected:,}; line n of one must "
            "translate line n of the other."
        )
    model = dragoman.load(run, device=device)
    with counting(f"Translating with {run}", len(sources)) as progress:
        found: list[str] = model.translate(sources, progress=progress, **options)
        return found
