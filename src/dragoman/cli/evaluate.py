"""`dragoman evaluate`: how good translations or parse trees are, in numbers that others can repeat."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dragoman
from dragoman.cli.options import Beam, Device, LengthPenalty, Precision, Shortlist
from dragoman.cli.progress import busy, counting, say
from dragoman.errors import UserError, nearest

if TYPE_CHECKING:
    from dragoman.evaluation.brackets import BracketScores


@dataclass(frozen=True)
class Question:
    """What was asked for on the command line."""

    run: Path | None
    source: str | None
    reference: str | None
    hypotheses: str | None
    against: Path | None
    worst: int
    output: Path | None
    parameters: str | None
    sentences: bool
    as_json: bool
    device: str
    decoding: dict[str, Any]


def evaluate(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run directory.")] = None,
    source: Annotated[str | None, typer.Option(help="Text to translate.")] = None,
    reference: Annotated[str | None, typer.Option(help="What it should become, line by line.")] = None,
    task: Annotated[str, typer.Option(help="What is scored: translate (text) or parse (trees).")] = "translate",
    hypotheses: Annotated[str | None, typer.Option(help="Instead of a RUN: output made elsewhere.")] = None,
    against: Annotated[Path | None, typer.Option(help="Another run: is the difference more than chance?")] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    precision: Precision = None,
    shortlist: Shortlist = None,
    worst: Annotated[int, typer.Option(min=0, help="Show this many of the worst sentences.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations to this file.")] = None,
    parameters: Annotated[
        str | None, typer.Option(metavar="FILE.prm", help="Of trees: which brackets count, as EVALB's files say it.")
    ] = None,
    sentences: Annotated[bool, typer.Option("--sentences", help="Of trees: list every sentence.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Device = "auto",
) -> None:
    """Translate --source with the model in RUN and score it against --reference (or score --hypotheses).

    Trees are scored with --task parse --hypotheses F --reference F, as EVALB scores them; see docs/parsing.md.
    """
    if task not in SCORERS:
        raise UserError(f'There is no task "{task}"; there is {", ".join(SCORERS)}.{nearest(task, [*SCORERS])}')
    decoding = {"beam": beam, "length_penalty": length_penalty, "precision": precision, "shortlist": shortlist}
    question = Question(
        run, source, reference, hypotheses, against, worst, output, parameters, sentences, as_json, device, decoding
    )
    SCORERS[task](question)


def evaluate_translations(asked: Question) -> None:
    """Print BLEU, chrF and TER of a run's translations, or of somebody else's."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import scores, tables

    refuse_foreign("translate", {"--parameters": asked.parameters, "--sentences": asked.sentences})
    refuse_unclear(asked.run, asked.source, asked.reference, asked.hypotheses, asked.against)
    references = list(read_lines(str(asked.reference), say))
    sources = list(read_lines(asked.source, say)) if asked.source else None
    if asked.hypotheses:
        ours = list(read_lines(asked.hypotheses, say))
    if asked.run:
        ours = translations(asked.run, sources, len(references), asked.device, asked.decoding)
    if asked.output:
        asked.output.write_text("".join(line.replace("\n", " ") + "\n" for line in ours), encoding="utf-8")
    theirs = None
    if asked.against:
        theirs = translations(asked.against, sources, len(references), asked.device, asked.decoding)
    with busy("Scoring"):
        found = scores.score(ours, references)
        rows = scores.by_length(sources, ours, references) if sources else []
        bad = scores.worst(sources or [""] * len(ours), ours, references, asked.worst) if asked.worst else []
        compared = scores.compare(ours, theirs, references) if theirs is not None else None
    if asked.as_json:
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


def evaluate_trees(asked: Question) -> None:
    """Print precision, recall and F1 of the brackets of trees that were made elsewhere."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import brackets, tables
    from dragoman.evaluation.bracket_rules import COLLINS, read_rules

    refuse_run(asked)
    if asked.hypotheses is None or asked.reference is None:
        raise UserError(
            "Trees are compared with trees: give --hypotheses, a parser's, and --reference, the right ones."
        )
    rules = read_rules(read_lines(asked.parameters, say), asked.parameters) if asked.parameters else COLLINS
    lines, hypotheses, references = pairs_of_trees(asked.hypotheses, asked.reference)
    with busy("Scoring"):
        found = brackets.score(hypotheses, references, rules)
    tell_what_was_not_scored(asked.hypotheses, lines, found)
    if asked.as_json:
        print(json.dumps(brackets.to_json(found, lines, each=asked.sentences), ensure_ascii=False, indent=2))
        return
    listing = tables.each_sentence_table(lines, found.sentences) if asked.sentences else ""
    print("\n\n".join(filter(None, [listing, tables.brackets_table(found)])))


def pairs_of_trees(hypotheses: str, reference: str) -> tuple[list[int], list[str], list[str]]:
    """Read two files of trees; return the lines of the first that they begin on, and the trees of both."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation.trees import sentences, well_formed_sentences

    right = well_formed_sentences(list(read_lines(reference, say)), reference)
    lines = list(read_lines(hypotheses, say))
    while len(lines) > len(right) and not lines[-1].strip():  # empty lines at the end are nobody's
        lines.pop()
    found = sentences(lines, expected=len(right))
    if len(found) != len(right):
        found = well_formed_sentences(lines, hypotheses)  # or it says what is malformed, and that is why
        raise UserError(
            f"{hypotheses} has {len(found):,} sentences but {reference} has {len(right):,}; tree n of one must parse "
            "the words of tree n of the other. Leave an empty line where there is no tree."
        )
    return [line for line, _ in found], [text for _, text in found], [text for _, text in right]


def tell_what_was_not_scored(name: str, lines: list[int], found: "BracketScores") -> None:
    """Say which sentences were left out and why; refuse a score of files that do not belong together."""
    left_out = [
        (counts.status, f"line {line:,}", counts.why)
        for line, counts in zip(lines, found.sentences, strict=True)
        if counts.why
    ]
    errors = [f"{where}: {why}" for status, where, why in left_out if status == "error"]
    if len(errors) > found.rules.most_errors + 1:  # where EVALB gives up: it lets one more pass than it says
        raise UserError(
            f"{name}: {len(errors):,} of {len(lines):,} sentences do not go with their reference; {errors[0]} "
            "Are both files in the same order? If so, allow for more with MAX_ERROR in a file of --parameters."
        )
    if not found.everything.scored:
        raise UserError(f"{name}: no sentence can be scored; {left_out[0][1]}: {left_out[0][2]}")
    for status, where, why in left_out:
        say(f"{name}: {where}: not scored ({status}): {why}")


def refuse_run(asked: Question) -> None:
    """Object to options that need a model, since none of ours parses."""
    if asked.run or asked.against:
        raise UserError(
            f"{asked.run or asked.against} cannot be asked to parse: models translate. Score a parser's output with "
            "`dragoman evaluate --task parse --hypotheses FILE --reference FILE`."
        )
    options = {f"--{name.replace('_', '-')}": value for name, value in asked.decoding.items()}
    refuse_foreign(
        "parse", {"--source": asked.source, "--worst": asked.worst or None, "--output": asked.output, **options}
    )


def refuse_foreign(task: str, options: dict[str, Any]) -> None:
    """Object to options that mean nothing to a task; None and False are options that were not given."""
    for option, value in options.items():
        if value is not None and value is not False:
            raise UserError(f"{option} does not go with --task {task}; leave it out.")


SCORERS: dict[str, Callable[[Question], None]] = {"translate": evaluate_translations, "parse": evaluate_trees}
