"""What is known about a run without computing anything."""

from pathlib import Path
from typing import Any

from dragoman.checkpoints import checkpoint_dirs, find_damage, newest_checkpoint, read_progress
from dragoman.models.layers import is_running_statistic
from dragoman.run import Run, read_tensors
from dragoman.tasks.card import describe_model, describe_vocabulary
from dragoman.tasks.registry import TASKS
from dragoman.training.metrics_log import read_metrics


def run_info(folder: str | Path) -> dict[str, Any]:
    """Gather the facts about a run, in the order in which one asks for them."""
    run = Run(folder)
    recipe = run.read_recipe()
    source, target = run.read_tokenizers(recipe.tokenizer.joint)
    corpus, _ = TASKS[recipe.task].open_corpora(recipe.data)
    facts: dict[str, Any] = {
        "run": str(run),
        "task": recipe.task,
        "model": describe_model(recipe.model),
        "vocabulary": describe_vocabulary(recipe.tokenizer, len(source), len(target)),
        "trained_on": str(corpus),
    }
    if run.weights_file.exists():
        weights, kept = read_tensors(run.weights_file)
        facts["parameters"] = sum(tensor.numel() for name, tensor in weights.items() if not is_running_statistic(name))
        facts["mean_of_steps"] = [int(step) for step in kept.get("steps", "").split() if step.isdecimal()]
    facts["checkpoints"] = [int(place.name) for place in reversed(checkpoint_dirs(run.checkpoints_dir))]
    facts["damaged"] = [
        f"{place.name}: {wrong}" for place in checkpoint_dirs(run.checkpoints_dir) if (wrong := find_damage(place))
    ]
    place, _ = newest_checkpoint(run.checkpoints_dir)
    if place:
        progress = read_progress(place)
        facts["steps"], facts["of"] = progress.step, recipe.training.steps
        facts["minutes"] = progress.seconds / 60
        facts["best_validation_loss"], facts["best_step"] = progress.best_loss, progress.best_step
    scored = [entry for entry in read_metrics(run.metrics_file) if entry.get("score") is not None]
    if scored:
        facts[f"last_validation_{scored[-1].get('measure', 'score')}"] = scored[-1]["score"]
    return facts
