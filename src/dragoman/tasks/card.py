"""The model card: what a stranger who finds the run directory needs to know about the model in it."""

from dragoman.recipe import Recipe
from dragoman.tasks.events import Finished, Plan


def card(recipe: Recipe, plan: Plan, finished: Finished) -> str:
    """Write the README.md of a run."""
    data, model, progress = recipe.data, recipe.model, finished.progress
    trained_on = data.pairs or f"{data.source} and {data.target}"
    validated_on = data.valid_pairs or (data.valid_source and f"{data.valid_source} and {data.valid_target}")
    name, unknown = finished.run.folder.name, "not a number"
    lines = [
        f"# {name}",
        "",
        f"A translator trained by Dragoman: {model.layers}+{model.layers} layers, width {model.width}, "
        f"{model.heads} heads, {plan.parameters / 1e6:.1f} million parameters.",
        "",
        "## Use",
        "",
        "```",
        f'dragoman translate {finished.run} "…"',
        f"dragoman evaluate {finished.run} --source FILE --reference FILE",
        f'dragoman attention {finished.run} "…" -o attention.html',
        "```",
        "",
        "## Data",
        "",
        f"- Trained on {plan.pairs:,} pairs: {trained_on}",
        f"- Validated on {plan.valid_pairs:,} pairs: {validated_on or 'held out of the same text'}",
        f"- Vocabulary: {recipe.tokenizer.kind}, {' and '.join(f'{size:,}' for size in sorted(set(plan.vocabulary)))} "
        f"pieces{', shared by both sides' if recipe.tokenizer.joint else ''}",
        "",
        "## Training",
        "",
        f"- {progress.step:,} steps in {progress.seconds / 60:.1f} minutes on {plan.device} ({plan.threads} threads), "
        f"{progress.step / plan.steps_per_epoch:.1f} times through the data",
        f"- Best validation loss {unknown if progress.best_loss is None else f'{progress.best_loss:.3f}'} "
        f"at step {progress.best_step:,}",
        f"- The weights are the mean of {finished.averaged} checkpoint{'s' if finished.averaged > 1 else ''}",
        "",
        "![curves](curves.png)",
        "",
        "## Scores on the validation text",
        "",
        *(f"- {score}" for score in finished.scores),
        "",
        f"With beam {recipe.decoding.beam} and length penalty {recipe.decoding.length_penalty}. Every setting is in "
        "`recipe.toml`; `dragoman train recipe.toml --run ANOTHER` trains it again.",
    ]
    return "\n".join(lines) + "\n"
