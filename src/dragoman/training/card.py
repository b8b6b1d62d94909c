"""The model card: the README.md of a run directory."""

from collections.abc import Sequence

from dragoman.checkpoints import TrainingProgress
from dragoman.errors import format_count
from dragoman.recipe import Recipe
from dragoman.tasks.info import describe_model, describe_vocabulary
from dragoman.tasks.registry import get_task
from dragoman.training.events import ComparedWeights, TrainingFinished, TrainingPlan


def model_card(recipe: Recipe, plan: TrainingPlan, finished: TrainingFinished) -> str:
    """Return the README.md of a run."""
    task, progress = get_task(recipe.task), finished.progress
    trained_on, validated_on = task.open_corpora(recipe.data)
    config = recipe.decoding
    search = "" if task.is_language_model else f"Beam width {config.beam}, length penalty {config.length_penalty}. "
    data, example = (f"{task.unit}s", f"{task.unit}.wav") if task.reads_signals else ("text", '"…"')
    vocabulary = describe_vocabulary(recipe.tokenizer, *plan.vocabulary_sizes, reads_signals=task.reads_signals)
    lines = [
        f"# {finished.run.folder.name}",
        "",
        f"A {task.noun} trained with Dragoman: {describe_model(recipe.model)}, {plan.parameters / 1e6:.1f} "
        "million parameters.",
        "",
        "## Use",
        "",
        "```",
        *(line.format(run=finished.run) for line in task.usage_examples),
        f"dragoman attention {finished.run} {example} -o attention.html",
        "```",
        "",
        "## Data",
        "",
        f"- Trained on {format_count(plan.pairs, plan.unit)}: {trained_on}",
        f"- Validated on {format_count(plan.valid_pairs, plan.unit)}: "
        f"{validated_on or f'held out from the training {data}'}",
        f"- Vocabulary: {vocabulary}",
        "",
        "## Training",
        "",
        f"- {format_count(progress.step, 'step')} in {format_count(progress.seconds / 60, 'minute')} on {plan.device} "
        f"({format_count(plan.threads, 'thread')}), {format_count(progress.step / plan.steps_per_epoch, 'epoch')}",
        *_describe_new_end(recipe, progress),
        "- The validation loss was never finite"
        if progress.best_loss is None
        else f"- Best validation loss {progress.best_loss:.3f} at step {progress.best_step:,}",
        *_describe_weights(finished.weights, task.validation_metric),
        "",
        "![curves](curves.png)",
        "",
        "## Scores on the validation set",
        "",
        *(f"- {score}" for score in finished.scores),
        "",
        f"{search}All settings are in `recipe.toml`; run `dragoman train recipe.toml --run NEW` to train again.",
    ]
    return "\n".join(lines) + "\n"


def _describe_new_end(recipe: Recipe, progress: TrainingProgress) -> list[str]:
    if not progress.replanned_at:
        return []
    return [
        f"- Training was slower than planned: at step {progress.replanned_at:,}, its last step was moved from "
        f"{recipe.training.steps:,} to {progress.last_step:,}"
    ]


def _describe_weights(weights: Sequence[ComparedWeights], metric: str) -> list[str]:
    """Return lines that name the chosen weights, and the scores of all candidates."""

    def describe(candidate: ComparedWeights) -> str:
        score = "" if candidate.score is None else f"{metric} {candidate.score:.1f}, "
        return f"{score}loss {candidate.loss:.3f}"

    chosen, *others = weights
    if not others:
        return [f"- The weights are {chosen}"]
    return [
        f"- The weights are {chosen} ({describe(chosen)}), which scored best on validation examples. The others:",
        *(f"  - {other}: {describe(other)}" for other in others),
    ]
