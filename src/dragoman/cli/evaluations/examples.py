"""Evaluate a task by the scores that the task itself defines."""

import json

import dragoman
from dragoman.cli.evaluations.options import EvaluateOptions
from dragoman.cli.progress import print_stderr
from dragoman.errors import UserError


def evaluate_examples(options: EvaluateOptions) -> None:
    """Print the scores of a run, one per line."""
    options.reject("hypotheses", "against", "parameters", "worst", "sentences", "ignore_stress")
    if options.run is None:
        raise UserError(f"--task {options.task} needs a RUN, whose outputs are scored.")
    model = dragoman.load(options.run, device=options.device)
    examples = model.task.read_examples(options.source, options.reference, print_stderr)
    found = options.model_outputs(model, examples)
    options.write_outputs(found)
    scores = list(model.task.score(examples, found))
    if options.as_json:
        print(json.dumps({score.name: score.value for score in scores}, ensure_ascii=False, indent=2))
        return
    print("\n".join(map(str, scores)))
