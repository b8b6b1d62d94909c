"""Precision, recall and F1 of the brackets of trees."""

import json
from typing import TYPE_CHECKING

from dragoman.cli.evaluations.question import Question
from dragoman.cli.progress import busy, say
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.evaluation.brackets import BracketScores


def evaluate_trees(asked: Question) -> None:
    """Print precision, recall and F1 of the brackets of a run's trees, or of somebody else's."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation import brackets, tables
    from dragoman.evaluation.bracket_rules import COLLINS, read_rules

    refuse_unclear(asked)
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

    assert asked.run, "refuse_unclear has seen to that"
    model = loaded(asked.run, "parse", asked.device)
    examples = model.task.examples(asked.source, asked.reference, say)
    found = asked.answers(model, examples)
    asked.write(found)
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


def refuse_unclear(asked: Question) -> None:
    """Say which of the options are missing, mean nothing to trees, or contradict each other."""
    asked.refuse("against", "worst", "ignore_stress")
    if not asked.run:
        asked.refuse("source", "output")
        asked.refuse_search()
    if asked.reference is None or (asked.run is None) == (asked.hypotheses is None):
        raise UserError(
            "Trees are compared with trees: give --reference, the right ones, and either a RUN, which parses their "
            "words, or --task parse and --hypotheses, a parser's."
        )
