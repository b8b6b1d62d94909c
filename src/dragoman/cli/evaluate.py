"""`dragoman evaluate`: how good what a model does is, in numbers that others can repeat."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dragoman
from dragoman.cli.options import Beam, Device, LengthPenalty, Precision, Shortlist
from dragoman.cli.progress import busy, counting, say
from dragoman.errors import UserError, nearest
from dragoman.presets import TASKS

if TYPE_CHECKING:
    from dragoman.evaluation.brackets import BracketScores
    from dragoman.evaluation.error_rates import Manner
    from dragoman.tasks.spelling import SpelledTask
    from dragoman.tasks.task import Example
    from dragoman.tasks.translator import Translator


@dataclass(frozen=True)
class Question:
    """What was asked for on the command line."""

    task: str
    run: Path | None
    source: str | None
    reference: str | None
    hypotheses: str | None
    against: Path | None
    worst: int
    output: Path | None
    parameters: str | None
    sentences: bool
    ignore_stress: bool
    as_json: bool
    device: str
    decoding: dict[str, Any]


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
    ignore_stress: Annotated[
        bool, typer.Option("--ignore-stress", help="Of pronunciations: AH0 and AH1 are both AH.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Device = "auto",
) -> None:
    """Translate --source with the model in RUN and score it against --reference (or score --hypotheses).

    Trees are scored with --task parse --hypotheses F --reference F, as EVALB scores them; see docs/parsing.md. Models
    that pronounce or inflect take --reference alone, a lexicon; see docs/pronunciation.md.
    """
    named = task or learned(run)
    if named not in TASKS:
        raise UserError(f'There is no task "{named}"; there is {", ".join(TASKS)}.{nearest(named, [*TASKS])}')
    decoding = {"beam": beam, "length_penalty": length_penalty, "precision": precision, "shortlist": shortlist}
    question = Question(
        named, run, source, reference, hypotheses, against, worst, output, parameters, sentences, ignore_stress,
        as_json, device, decoding,
    )  # fmt: skip
    SCORERS.get(named, evaluate_examples)(question)


def learned(run: Path | None) -> str:
    """Return the task that a run was trained for; without a run it is translation."""
    from dragoman.run import Run

    return Run(run).read_recipe().task if run else "translate"


def evaluate_translations(asked: Question) -> None:
    """Print BLEU, chrF and TER of a run's translations, or of somebody else's."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import scores, tables

    foreign = {"--parameters": asked.parameters, "--sentences": asked.sentences}
    refuse_foreign("translate", {**foreign, "--ignore-stress": asked.ignore_stress})
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
    """Print precision, recall and F1 of the brackets of a run's trees, or of somebody else's."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import brackets, tables
    from dragoman.evaluation.bracket_rules import COLLINS, read_rules

    refuse_unclear_trees(asked)
    rules = read_rules(read_lines(asked.parameters, say), asked.parameters) if asked.parameters else COLLINS
    lines, hypotheses, references = parsed(asked) if asked.run else pairs_of_trees(asked)
    with busy("Scoring"):
        found = brackets.score(hypotheses, references, rules)
    tell_what_was_not_scored(asked, lines, found)
    if asked.as_json:
        print(json.dumps(brackets.to_json(found, lines, each=asked.sentences), ensure_ascii=False, indent=2))
        return
    listing = tables.each_sentence_table(lines, found.sentences) if asked.sentences else ""
    print("\n\n".join(filter(None, [listing, tables.brackets_table(found)])))


def parsed(asked: Question) -> tuple[list[int], list[str], list[str]]:
    """Let a run parse the words of the reference; return numbers, its trees and those of the reference."""
    from dragoman.cli.answers import loaded

    assert asked.run, "refuse_unclear_trees has seen to that"
    model = loaded(asked.run, "parse", asked.device)
    examples = model.task.examples(asked.source, asked.reference, say)
    found = answers(model, examples, asked)
    if asked.output:
        asked.output.write_text("".join(f"{tree}\n" for tree in found), encoding="utf-8")
    return list(range(1, len(found) + 1)), found, [example.references[0] for example in examples]


def pairs_of_trees(asked: Question) -> tuple[list[int], list[str], list[str]]:
    """Read two files of trees; return the lines of the first that they begin on, and the trees of both."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation.trees import sentences, well_formed_sentences

    hypotheses, reference = str(asked.hypotheses), str(asked.reference)
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


def tell_what_was_not_scored(asked: Question, lines: list[int], found: "BracketScores") -> None:
    """Say which sentences were left out and why; refuse a score of files that do not belong together."""
    name = str(asked.run or asked.hypotheses)
    left_out = [
        (counts.status, f"line {line:,}", counts.why)
        for line, counts in zip(lines, found.sentences, strict=True)
        if counts.why
    ]
    errors = [f"{where}: {why}" for status, where, why in left_out if status == "error"]
    # Where EVALB gives up: it lets one more pass than it says. A run has parsed the words of the reference itself, and
    # can only have taken some for punctuation, which is not scored, or punctuation for words.
    if asked.hypotheses and len(errors) > found.rules.most_errors + 1:
        raise UserError(
            f"{name}: {len(errors):,} of {len(lines):,} sentences do not go with their reference; {errors[0]} "
            "Are both files in the same order? If so, allow for more with MAX_ERROR in a file of --parameters."
        )
    if not found.everything.scored:
        raise UserError(f"{name}: no sentence can be scored; {left_out[0][1]}: {left_out[0][2]}")
    for status, where, why in left_out:
        say(f"{name}: {where}: not scored ({status}): {why}")


def refuse_unclear_trees(asked: Question) -> None:
    """Say which of the options are missing, mean nothing to trees, or contradict each other."""
    foreign = {"--against": asked.against, "--worst": asked.worst or None, "--ignore-stress": asked.ignore_stress}
    of_a_run = {f"--{name.replace('_', '-')}": value for name, value in asked.decoding.items()}
    of_a_run |= {"--source": asked.source, "--output": asked.output}
    refuse_foreign("parse", foreign if asked.run else {**foreign, **of_a_run})
    if asked.reference is None or (asked.run is None) == (asked.hypotheses is None):
        raise UserError(
            "Trees are compared with trees: give --reference, the right ones, and either a RUN, which parses their "
            "words, or --task parse and --hypotheses, a parser's."
        )


def refuse_foreign(task: str, options: dict[str, Any]) -> None:
    """Object to options that mean nothing to a task; None and False are options that were not given."""
    for option, value in options.items():
        if value is not None and value is not False:
            raise UserError(f"{option} does not go with --task {task}; leave it out.")


def evaluate_pronunciations(asked: Question) -> None:
    """Print the error rates of pronunciations, with stress or without."""
    from dragoman.evaluation.error_rates import PRONUNCIATION, UNSTRESSED

    evaluate_words(asked, UNSTRESSED if asked.ignore_stress else PRONUNCIATION)


def evaluate_forms(asked: Question) -> None:
    """Print the accuracy of inflected forms."""
    from dragoman.evaluation.error_rates import INFLECTION

    refuse_foreign("inflect", {"--ignore-stress": asked.ignore_stress})
    evaluate_words(asked, INFLECTION)


def evaluate_words(asked: Question, manner: "Manner") -> None:
    """Print how far what became of words is from what should have."""
    from dragoman.evaluation import error_rates, tables

    refuse_unclear_words(asked)
    model = dragoman.load(asked.run, device=asked.device) if asked.run else None
    task = replace(word_task(asked.task, model), manner=manner)
    examples = task.examples(None, asked.reference, say)
    outputs = task.outputs(asked.hypotheses, examples, say) if asked.hypotheses else answers(model, examples, asked)
    if asked.output:
        lines = [task.written(one, output) for one, output in zip(examples, outputs, strict=True)]
        asked.output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with busy("Scoring"):
        found, by_label = task.score(examples, outputs), task.by_label(examples, outputs)
    if asked.as_json:
        labels = {name: error_rates.to_json(each) for name, each in by_label.items()}
        result = {**error_rates.to_json(found, worst=asked.worst), "by_label": labels}
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return
    parts = [tables.rates_table(found), tables.labels_table(by_label) if len(by_label) > 1 else ""]
    if asked.worst:
        parts += [tables.confusions_table(found.confusions()), tables.worst_words_table(found.worst(asked.worst))]
    print("\n\n".join(filter(None, parts)))


def refuse_unclear_words(asked: Question) -> None:
    """Say which of the options are missing, mean nothing here, or contradict each other."""
    foreign = {"--source": asked.source, "--against": asked.against, "--parameters": asked.parameters}
    refuse_foreign(asked.task, {**foreign, "--sentences": asked.sentences})
    if asked.reference is None:
        raise UserError("There is nothing to compare with: give --reference, a lexicon with the right answers.")
    if (asked.run is None) == (asked.hypotheses is None):
        raise UserError(
            f"Give either a RUN, whose answers are scored, or --task {asked.task} and --hypotheses, made elsewhere."
        )


def word_task(name: str, model: "Translator | None") -> "SpelledTask":
    """Return the task of a model, or the one of this name if there is none."""
    from dragoman.tasks.spelling import SpelledTask
    from dragoman.tasks.tasks import TASKS

    task = model.task if model else TASKS[name]
    if task.name != name or not isinstance(task, SpelledTask):
        raise UserError(f"{model.run if model else name} is a {task.noun}, so --task {name} does not go with it.")
    return task


def answers(model: "Translator | None", examples: "list[Example]", asked: Question) -> list[str]:
    """Return what a model makes of the examples."""
    assert model, "there is a model or a file of hypotheses"
    with counting(f"{model.task.doing} with {asked.run}", len(examples)) as progress:
        found: list[str] = model.translate([one.source for one in examples], progress=progress, **asked.decoding)
        return found


def evaluate_prediction(asked: Question) -> None:
    """Print how well a language model predicts a text."""
    from dragoman.cli.answers import loaded
    from dragoman.evaluation.perplexity import table, to_json
    from dragoman.tasks.continuation import perplexity

    options = {f"--{name.replace('_', '-')}": value for name, value in asked.decoding.items()}
    foreign = {"--hypotheses": asked.hypotheses, "--against": asked.against, "--parameters": asked.parameters}
    refuse_foreign("generate", {**options, **foreign, "--worst": asked.worst or None, "--output": asked.output})
    if asked.run is None:
        raise UserError("A text is predicted by a model: give a RUN, and --reference, the text.")
    model = loaded(asked.run, "generate", asked.device)
    (example,) = model.task.examples(asked.source, asked.reference, say)
    with counting(f"{model.task.doing} with {asked.run}", None) as progress:
        found = perplexity(model, example.references[0], progress, say)
    print(json.dumps(to_json(found), indent=2) if asked.as_json else table(found))


def evaluate_examples(asked: Question) -> None:
    """Print what a run scores at any task, a line for each score."""
    foreign = {"--hypotheses": asked.hypotheses, "--against": asked.against, "--parameters": asked.parameters}
    refuse_foreign(asked.task, {**foreign, "--worst": asked.worst or None, "--sentences": asked.sentences})
    if asked.run is None:
        raise UserError(f"The outputs of a model are scored: give a RUN that has learned to {asked.task}.")
    model = dragoman.load(asked.run, device=asked.device)
    examples = model.task.examples(asked.source, asked.reference, say)
    found = answers(model, examples, asked)
    if asked.output:
        asked.output.write_text("".join(line.replace("\n", " ") + "\n" for line in found), encoding="utf-8")
    scores = list(model.task.score(examples, found))
    if asked.as_json:
        print(json.dumps({score.name: score.value for score in scores}, ensure_ascii=False, indent=2))
        return
    print("\n".join(map(str, scores)))


SCORERS: dict[str, Callable[[Question], None]] = {
    "translate": evaluate_translations,
    "parse": evaluate_trees,
    "pronounce": evaluate_pronunciations,
    "inflect": evaluate_forms,
    "generate": evaluate_prediction,
}
