"""Evaluate pronunciations and inflected forms by error rates and accuracy."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import dragoman
from dragoman.cli.evaluations.options import EvaluateOptions
from dragoman.cli.progress import print_stderr, status_spinner
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.evaluation.error_rates import ScoringScheme
    from dragoman.tasks.sequence_model import SequenceModel
    from dragoman.tasks.word_tasks import WordTask


def evaluate_pronunciations(options: EvaluateOptions) -> None:
    """Print the error rates of pronunciations, with or without stress."""
    from dragoman.evaluation.error_rates import PRONUNCIATION, UNSTRESSED

    _evaluate_words(options, UNSTRESSED if options.ignore_stress else PRONUNCIATION)


def evaluate_inflections(options: EvaluateOptions) -> None:
    """Print the accuracy of inflected forms."""
    from dragoman.evaluation.error_rates import INFLECTION

    options.reject("ignore_stress")
    _evaluate_words(options, INFLECTION)


def _evaluate_words(options: EvaluateOptions, manner: "ScoringScheme") -> None:
    """Print the error rates of a word task."""
    from dragoman.evaluation import error_rates, tables

    _check_options(options)
    model = dragoman.load(options.run, device=options.device) if options.run else None
    task = replace(_word_task(options.task, model), scheme=manner)
    examples = task.read_examples(None, options.reference, print_stderr)
    outputs = (
        options.model_outputs(model, examples)
        if model
        else task.read_outputs(str(options.hypotheses), examples, print_stderr)
    )
    options.write_outputs(task.format_entry(one, output) for one, output in zip(examples, outputs, strict=True))
    with status_spinner("Scoring"):
        found, by_label = task.score(examples, outputs), task.score_by_label(examples, outputs)
    if options.as_json:
        labels = {name: error_rates.to_json(each) for name, each in by_label.items()}
        result = {**error_rates.to_json(found, worst=options.worst), "by_label": labels}
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return
    parts = [tables.rates_table(found), tables.labels_table(by_label) if len(by_label) > 1 else ""]
    if options.worst:
        parts += [tables.confusions_table(found.confusions()), tables.worst_words_table(found.worst(options.worst))]
    print("\n\n".join(filter(None, parts)))


def _check_options(options: EvaluateOptions) -> None:
    """Raise a UserError for missing, unsupported or conflicting options."""
    options.reject("source", "against", "parameters", "sentences")
    if options.reference is None:
        raise UserError("--reference is missing: give a lexicon with the correct outputs.")
    if (options.run is None) == (options.hypotheses is None):
        raise UserError(
            f"Give either a RUN, whose outputs are scored, or --task {options.task} and --hypotheses, an output file."
        )


def _word_task(name: str, model: "SequenceModel | None") -> "WordTask":
    """Return the task of a model, or without a model the task of this name."""
    from dragoman.tasks.registry import get_task
    from dragoman.tasks.word_tasks import WordTask

    task = model.task if model else get_task(name)
    if task.name != name or not isinstance(task, WordTask):
        raise UserError(f"{model.run if model else name} is a {task.noun}, which --task {name} cannot score.")
    return task
