"""The model card: what a stranger who finds the run directory needs to know about the model in it."""

from dragoman.recipe import Model, Recipe, Tokenizer
from dragoman.tasks.events import Finished, Plan
from dragoman.tasks.tasks import TASKS

SCORES = {
    "dot": "unscaled dot products",
    "general": "general attention",
    "additive": "additive attention",
    "location": "additive attention that sees its earlier weights",
}
NAMES = {  # what an architecture is called, if it is not the paper's
    "recurrent": "recurrent ({cell})",
    "convolutional": "convolutional (kernel {kernel})",
    "dilated": "dilated convolutions (kernel {kernel})",
    "averaged": "averaged embeddings",
    "concatenated": "concatenated embeddings",
    "joined": "one stack for source and target",
}


def network(model: Model) -> str:
    """Say in a line what a network is: its size, and wherein it is not the paper's."""
    parts = [NAMES[model.architecture].format(**model.model_dump())] if model.architecture in NAMES else []
    parts.append(f"{model.layers}{'' if model.architecture == 'joined' else f'+{model.decoder_depth}'} layers")
    parts.append(f"width {model.width}")
    if model.architecture in ("transformer", "joined"):
        parts += [f"{model.heads} heads", f"{model.norm}-norm", *variations(model)]
    elif model.architecture == "recurrent":
        parts.append(SCORES.get(model.score, "no attention" if model.score == "none" else "scaled dot products"))
    return ", ".join(parts)


def variations(model: Model) -> list[str]:
    """Name the choices in which a Transformer differs from the paper's."""
    return [
        *([SCORES[model.score]] if model.score in SCORES else []),
        *(["batch normalisation"] if model.normalisation == "batch" else []),
        *([] if model.positions == "sinusoidal" else [f"{model.positions.replace('none', 'no')} positions"]),
        *(["rotary self-attention"] if model.rotary else []),
        *([] if model.pattern == "full" else [f"{model.pattern} attention over {model.window} places"]),
    ]


def vocabulary(how: Tokenizer, source: int, target: int) -> str:
    """Say in a line how text is cut on either side, and into how many different pieces."""
    if how.joint:
        return f"{how.kind}, {source:,} pieces, shared by both sides"
    kinds = dict.fromkeys(side.kind for side in how.sides)
    return f"{' and '.join(kinds)}, {source:,} and {target:,} pieces"


def card(recipe: Recipe, plan: Plan, finished: Finished) -> str:
    """Write the README.md of a run."""
    task, progress = TASKS[recipe.task], finished.progress
    trained_on, validated_on = task.corpora(recipe.data)
    name, unknown = finished.run.folder.name, "not a number"
    how = recipe.decoding
    searched = "" if task.goes_on else f"With beam {how.beam} and length penalty {how.length_penalty}. "
    lines = [
        f"# {name}",
        "",
        f"A {task.noun} trained by Dragoman: {network(recipe.model)}, {plan.parameters / 1e6:.1f} million parameters.",
        "",
        "## Use",
        "",
        "```",
        *(line.format(run=finished.run) for line in task.usage),
        f'dragoman attention {finished.run} "…" -o attention.html',
        "```",
        "",
        "## Data",
        "",
        f"- Trained on {plan.pairs:,} {plan.unit}: {trained_on}",
        f"- Validated on {plan.valid_pairs:,} {plan.unit}: {validated_on or 'held out of the same text'}",
        f"- Vocabulary: {vocabulary(recipe.tokenizer, *plan.vocabulary)}",
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
        f"{searched}Every setting is in `recipe.toml`; `dragoman train recipe.toml --run ANOTHER` trains it again.",
    ]
    return "\n".join(lines) + "\n"
