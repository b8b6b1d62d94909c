"""The scores of any task that has nothing more to show."""

import json

import dragoman
from dragoman.cli.evaluations.question import Question
from dragoman.cli.progress import say
from dragoman.errors import UserError


def evaluate_examples(asked: Question) -> None:
    """Print what a run scores at any task, a line for each score."""
    asked.refuse("hypotheses", "against", "parameters", "worst", "sentences", "ignore_stress")
    if asked.run is None:
        raise UserError(f"The outputs of a model are scored: give a RUN that has learned to {asked.task}.")
    model = dragoman.load(asked.run, device=asked.device)
    examples = model.task.examples(asked.source, asked.reference, say)
    found = asked.answers(model, examples)
    asked.write(found)
    scores = list(model.task.score(examples, found))
    if asked.as_json:
        print(json.dumps({score.name: score.value for score in scores}, ensure_ascii=False, indent=2))
        return
    print("\n".join(map(str, scores)))
