"""Error rates and accuracy of words that became something else: pronunciations, inflected forms."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import dragoman
from dragoman.cli.evaluations.question import Question
from dragoman.cli.progress import busy, say
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.evaluation.error_rates import Manner
    from dragoman.tasks.spelling import SpelledTask
    from dragoman.tasks.translator import Translator


def evaluate_pronunciations(asked: Question) -> None:
    """Print the error rates of pronunciations, with stress or without."""
    from dragoman.evaluation.error_rates import PRONUNCIATION, UNSTRESSED

    evaluate_words(asked, UNSTRESSED if asked.ignore_stress else PRONUNCIATION)


def evaluate_forms(asked: Question) -> None:
    """Print the accuracy of inflected forms."""
    from dragoman.evaluation.error_rates import INFLECTION

    asked.refuse("ignore_stress")
    evaluate_words(asked, INFLECTION)


def evaluate_words(asked: Question, manner: "Manner") -> None:
    """Print how far what became of words is from what should have."""
    from dragoman.evaluation import error_rates, tables

    refuse_unclear(asked)
    model = dragoman.load(asked.run, device=asked.device) if asked.run else None
    task = replace(word_task(asked.task, model), manner=manner)
    examples = task.examples(None, asked.reference, say)
    outputs = asked.answers(model, examples) if model else task.outputs(str(asked.hypotheses), examples, say)
    asked.write(task.written(one, output) for one, output in zip(examples, outputs, strict=True))
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


def refuse_unclear(asked: Question) -> None:
    """Say which of the options are missing, mean nothing here, or contradict each other."""
    asked.refuse("source", "against", "parameters", "sentences")
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
