"""What is known about a run without computing anything."""

from pathlib import Path
from typing import Any

from dragoman.model.layers import is_counted
from dragoman.run import Run, read_tensors
from dragoman.tasks.card import network, vocabulary
from dragoman.tasks.tasks import TASKS
from dragoman.training.checkpoints import fault, newest, places, read_progress
from dragoman.training.journal import read_metrics


def information(folder: str | Path) -> dict[str, Any]:
    """Gather the facts about a run, in the order in which one asks for them."""
    run = Run(folder)
    recipe = run.read_recipe()
    source, target = run.read_tokenizers(recipe.tokenizer.joint)
    corpus, _ = TASKS[recipe.task].corpora(recipe.data)
    facts: dict[str, Any] = {
        "run": str(run),
        "task": recipe.task,
        "model": network(recipe.model),
        "vocabulary": vocabulary(recipe.tokenizer, len(source), len(target)),
        "trained_on": str(corpus),
    }
    if run.weights_file.exists():
        weights, kept = read_tensors(run.weights_file)
        facts["parameters"] = sum(tensor.numel() for name, tensor in weights.items() if not is_counted(name))
        facts["mean_of_steps"] = [int(step) for step in kept.get("steps", "").split() if step.isdecimal()]
    facts["checkpoints"] = [int(place.name) for place in reversed(places(run.checkpoints))]
    facts["damaged"] = [f"{place.name}: {wrong}" for place in places(run.checkpoints) if (wrong := fault(place))]
    place, _ = newest(run.checkpoints)
    if place:
        progress = read_progress(place)
        facts["steps"], facts["of"] = progress.step, recipe.training.steps
        facts["minutes"] = progress.seconds / 60
        facts["best_validation_loss"], facts["best_step"] = progress.best_loss, progress.best_step
    scored = [entry for entry in read_metrics(run.metrics_file) if entry.get("score") is not None]
    if scored:
        facts[f"last_validation_{scored[-1].get('measure', 'score')}"] = scored[-1]["score"]
    return facts
