"""Precision, recall and F1 of the brackets of trees."""

import json
from typing import TYPE_CHECKING

from dragoman.cli.evaluations.options import EvaluateOptions
from dragoman.cli.progress import print_stderr, status_spinner
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.evaluation.brackets import BracketScores


def evaluate_trees(options: EvaluateOptions) -> None:
    """Print precision, recall and F1 of the brackets of a run's trees, or of somebody else's."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import brackets, tables
    from dragoman.evaluation.bracket_rules import COLLINS, read_rules

    _check_options(options)
    rules = (
        read_rules(read_lines(options.parameters, print_stderr), options.parameters) if options.parameters else COLLINS
    )
    lines, hypotheses, references = _parse_references(options) if options.run else _read_tree_pairs(options)
    with status_spinner("Scoring"):
        found = brackets.score_brackets(hypotheses, references, rules)
    _report_unscored(options, lines, found)
    if options.as_json:
        print(json.dumps(brackets.to_json(found, lines, each=options.sentences), ensure_ascii=False, indent=2))
        return
    listing = tables.sentence_counts_table(lines, found.sentences) if options.sentences else ""
    print("\n\n".join(filter(None, [listing, tables.brackets_table(found)])))


def _parse_references(options: EvaluateOptions) -> tuple[list[int], list[str], list[str]]:
    """Let a run parse the words of the reference; return numbers, its trees and those of the reference."""
    from dragoman.cli.line_io import load_for_task

    assert options.run, "refuse_unclear has seen to that"
    model = load_for_task(options.run, "parse", options.device)
    examples = model.task.read_examples(options.source, options.reference, print_stderr)
    found = options.model_outputs(model, examples)
    options.write_outputs(found)
    return list(range(1, len(found) + 1)), found, [example.references[0] for example in examples]


def _read_tree_pairs(options: EvaluateOptions) -> tuple[list[int], list[str], list[str]]:
    """Read two files of trees; return the lines of the first that they begin on, and the trees of both."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation.trees import treebank_sentences, well_formed_treebank_sentences

    hypotheses, reference = str(options.hypotheses), str(options.reference)
    right = well_formed_treebank_sentences(list(read_lines(reference, print_stderr)), reference)
    lines = list(read_lines(hypotheses, print_stderr))
    while len(lines) > len(right) and not lines[-1].strip():  # empty lines at the end are nobody's
        lines.pop()
    found = treebank_sentences(lines, expected=len(right))
    if len(found) != len(right):
        found = well_formed_treebank_sentences(lines, hypotheses)  # or it says what is malformed, and that is why
        raise UserError(
            f"{hypotheses} has {len(found):,} sentences but {reference} has {len(right):,}; tree n of one must parse "
            "the words of tree n of the other. Leave an empty line where there is no tree."
        )
    return [line for line, _ in found], [text for _, text in found], [text for _, text in right]


def _report_unscored(options: EvaluateOptions, lines: list[int], scores: "BracketScores") -> None:
    """Say which sentences were left out and why; refuse a score of files that do not belong together."""
    name = str(options.run or options.hypotheses)
    left_out = [
        (counts.status, f"line {line:,}", counts.why)
        for line, counts in zip(lines, scores.sentences, strict=True)
        if counts.why
    ]
    errors = [f"{where}: {why}" for status, where, why in left_out if status == "error"]
    # Where EVALB gives up: it lets one more pass than it says. A run has parsed the words of the reference itself, and
    # can only have taken some for punctuation, which is not scored, or punctuation for words.
    if options.hypotheses and len(errors) > scores.rules.most_errors + 1:
        raise UserError(
            f"{name}: {len(errors):,} of {len(lines):,} sentences do not go with their reference; {errors[0]} "
            "Are both files in the same order? If so, allow for more with MAX_ERROR in a file of --parameters."
        )
    if not scores.overall.scored:
        raise UserError(f"{name}: no sentence can be scored; {left_out[0][1]}: {left_out[0][2]}")
    for status, where, why in left_out:
        print_stderr(f"{name}: {where}: not scored ({status}): {why}")


def _check_options(options: EvaluateOptions) -> None:
    """Say which of the options are missing, mean nothing to trees, or contradict each other."""
    options.reject("against", "worst", "ignore_stress")
    if not options.run:
        options.reject("source", "output")
        options.reject_search_options()
    if options.reference is None or (options.run is None) == (options.hypotheses is None):
        raise UserError(
            "Trees are compared with trees: give --reference, the right ones, and either a RUN, which parses their "
            "words, or --task parse and --hypotheses, a parser's."
        )
