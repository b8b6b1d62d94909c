"""Evaluate parse trees by labelled bracket precision, recall and F1."""

import json
from typing import TYPE_CHECKING

from dragoman.cli.evaluations.options import EvaluateOptions
from dragoman.cli.progress import print_stderr, status_spinner
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.evaluation.brackets import BracketScores


def evaluate_trees(options: EvaluateOptions) -> None:
    """Print bracket precision, recall and F1 of a run's trees or of --hypotheses."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import brackets, tables
    from dragoman.evaluation.brackets import COLLINS, read_rules

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
    """Parse the words of the reference; return sentence numbers, the run's trees and the reference trees."""
    from dragoman.cli.line_io import load_for_task

    assert options.run, "_check_options requires it"
    model = load_for_task(options.run, "parse", options.device)
    examples = model.task.read_examples(options.source, options.reference, print_stderr)
    found = options.model_outputs(model, examples)
    options.write_outputs(found)
    return list(range(1, len(found) + 1)), found, [example.references[0] for example in examples]


def _read_tree_pairs(options: EvaluateOptions) -> tuple[list[int], list[str], list[str]]:
    """Read two files of trees; return the line numbers of the hypotheses, and the trees of both files."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation.trees import treebank_sentences, well_formed_treebank_sentences

    hypotheses, reference = str(options.hypotheses), str(options.reference)
    right = well_formed_treebank_sentences(list(read_lines(reference, print_stderr)), reference)
    lines = list(read_lines(hypotheses, print_stderr))
    while len(lines) > len(right) and not lines[-1].strip():  # trailing empty lines belong to no sentence
        lines.pop()
    found = treebank_sentences(lines, expected=len(right))
    if len(found) != len(right):
        found = well_formed_treebank_sentences(lines, hypotheses)  # raises if malformed brackets are the cause
        raise UserError(
            f"{hypotheses} has {len(found):,} sentences but {reference} has {len(right):,}; tree n of both must have "
            "the same words. Use an empty line for a missing tree."
        )
    return [line for line, _ in found], [text for _, text in found], [text for _, text in right]


def _report_unscored(options: EvaluateOptions, lines: list[int], scores: "BracketScores") -> None:
    """Print which sentences were not scored and why; raise a UserError if the files do not match."""
    name = str(options.run or options.hypotheses)
    left_out = [
        (counts.status, f"line {line:,}", counts.why)
        for line, counts in zip(lines, scores.sentences, strict=True)
        if counts.why
    ]
    errors = [f"{where}: {why}" for status, where, why in left_out if status == "error"]
    # EVALB stops after MAX_ERROR + 1 errors. A run parsed the words of the reference itself; it can only mistake words
    # for punctuation, which is not scored, or punctuation for words.
    if options.hypotheses and len(errors) > scores.rules.most_errors + 1:
        raise UserError(
            f"{name}: {len(errors):,} of {len(lines):,} sentences do not match their reference; {errors[0]} "
            "Check that both files are in the same order, or raise MAX_ERROR in a --parameters file."
        )
    if not scores.overall.scored:
        raise UserError(f"{name}: no sentence can be scored; {left_out[0][1]}: {left_out[0][2]}")
    for status, where, why in left_out:
        print_stderr(f"{name}: {where}: not scored ({status}): {why}")


def _check_options(options: EvaluateOptions) -> None:
    """Raise a UserError for missing, unsupported or conflicting options."""
    options.reject("against", "worst", "ignore_stress")
    if not options.run:
        options.reject("source", "output")
        options.reject_search_options()
    if options.reference is None or (options.run is None) == (options.hypotheses is None):
        raise UserError(
            "Parsing needs --reference, the gold trees, and either a RUN, which parses their words, or --task parse "
            "and --hypotheses, a parser's trees."
        )
