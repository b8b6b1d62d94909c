"""Evaluate a language model by its perplexity."""

import json

from dragoman.cli.evaluations.options import EvaluateOptions
from dragoman.cli.progress import print_stderr, progress_bar
from dragoman.errors import UserError


def evaluate_language_model(options: EvaluateOptions) -> None:
    """Print the perplexity and bits per byte of a text under a language model."""
    from dragoman.cli.line_io import load_for_task
    from dragoman.evaluation.perplexity import perplexity_table, to_json
    from dragoman.tasks.generate import LanguageModel

    options.reject("hypotheses", "against", "parameters", "worst", "output", "sentences", "ignore_stress")
    options.reject_search_options()
    if options.run is None:
        raise UserError("--task generate needs a RUN and --reference, the text to score.")
    model = load_for_task(options.run, "generate", options.device)
    assert isinstance(model, LanguageModel), f"{type(model)} is not a language model"
    (example,) = model.task.read_examples(options.source, options.reference, print_stderr)
    with progress_bar(f"{model.task.gerund} with {options.run}", None) as progress:
        found = model.perplexity(example.references[0], progress, print_stderr)
    print(json.dumps(to_json(found), indent=2) if options.as_json else perplexity_table(found))
