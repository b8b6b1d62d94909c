"""How well a language model predicts a text."""

import json

from dragoman.cli.evaluations.question import Question
from dragoman.cli.progress import counting, say
from dragoman.errors import UserError


def evaluate_prediction(asked: Question) -> None:
    """Print how well a language model predicts a text."""
    from dragoman.cli.answers import loaded
    from dragoman.evaluation.perplexity import table, to_json
    from dragoman.tasks.continuation import perplexity

    asked.refuse("hypotheses", "against", "parameters", "worst", "output", "sentences", "ignore_stress")
    asked.refuse_search()
    if asked.run is None:
        raise UserError("A text is predicted by a model: give a RUN, and --reference, the text.")
    model = loaded(asked.run, "generate", asked.device)
    (example,) = model.task.examples(asked.source, asked.reference, say)
    with counting(f"{model.task.doing} with {asked.run}", None) as progress:
        found = perplexity(model, example.references[0], progress, say)
    print(json.dumps(to_json(found), indent=2) if asked.as_json else table(found))
