"""The model card: what a stranger who finds the run directory needs to know about the model in it."""

from dragoman.recipe import ModelConfig, Recipe, TokenizerConfig
from dragoman.tasks.events import TrainingFinished, TrainingPlan
from dragoman.tasks.registry import TASKS

_SCORE_DESCRIPTIONS = {
    "dot": "unscaled dot products",
    "general": "general attention",
    "additive": "additive attention",
    "location": "additive attention that sees its earlier weights",
}
_ARCHITECTURE_NAMES = {  # what an architecture is called, if it is not the paper's
    "recurrent": "recurrent ({cell})",
    "convolutional": "convolutional (kernel {kernel})",
    "dilated": "dilated convolutions (kernel {kernel})",
    "averaged": "averaged embeddings",
    "concatenated": "concatenated embeddings",
    "joined": "one stack for source and target",
}


def describe_model(config: ModelConfig) -> str:
    """Say in a line what a network is: its size, and wherein it is not the paper's."""
    parts = (
        [_ARCHITECTURE_NAMES[config.architecture].format(**config.model_dump())]
        if config.architecture in _ARCHITECTURE_NAMES
        else []
    )
    parts.append(f"{config.layers}{'' if config.architecture == 'joined' else f'+{config.decoder_depth}'} layers")
    parts.append(f"width {config.width}")
    if config.architecture in ("transformer", "joined"):
        parts += [f"{config.heads} heads", f"{config.norm}-norm", *_describe_variations(config)]
    elif config.architecture == "recurrent":
        parts.append(
            _SCORE_DESCRIPTIONS.get(config.score, "no attention" if config.score == "none" else "scaled dot products")
        )
    return ", ".join(parts)


def _describe_variations(config: ModelConfig) -> list[str]:
    """Name the choices in which a Transformer differs from the paper's."""
    return [
        *([_SCORE_DESCRIPTIONS[config.score]] if config.score in _SCORE_DESCRIPTIONS else []),
        *(["batch normalisation"] if config.normalisation == "batch" else []),
        *([] if config.positions == "sinusoidal" else [f"{config.positions.replace('none', 'no')} positions"]),
        *(["rotary self-attention"] if config.rotary else []),
        *([] if config.pattern == "full" else [f"{config.pattern} attention over {config.window} places"]),
    ]


def describe_vocabulary(config: TokenizerConfig, source: int, target: int) -> str:
    """Say in a line how text is cut on either side, and into how many different pieces."""
    if config.joint:
        return f"{config.kind}, {source:,} pieces, shared by both sides"
    kinds = dict.fromkeys(side.kind for side in config.sides)
    return f"{' and '.join(kinds)}, {source:,} and {target:,} pieces"


def model_card(recipe: Recipe, plan: TrainingPlan, finished: TrainingFinished) -> str:
    """Write the README.md of a run."""
    task, progress = TASKS[recipe.task], finished.progress
    trained_on, validated_on = task.open_corpora(recipe.data)
    name, unknown = finished.run.folder.name, "not a number"
    how = recipe.decoding
    searched = "" if task.is_language_model else f"With beam {how.beam} and length penalty {how.length_penalty}. "
    lines = [
        f"# {name}",
        "",
        f"A {task.noun} trained by Dragoman: {describe_model(recipe.model)}, {plan.parameters / 1e6:.1f} "
        "million parameters.",
        "",
        "## Use",
        "",
        "```",
        *(line.format(run=finished.run) for line in task.usage_examples),
        f'dragoman attention {finished.run} "…" -o attention.html',
        "```",
        "",
        "## Data",
        "",
        f"- Trained on {plan.pairs:,} {plan.unit}: {trained_on}",
        f"- Validated on {plan.valid_pairs:,} {plan.unit}: {validated_on or 'held out of the same text'}",
        f"- Vocabulary: {describe_vocabulary(recipe.tokenizer, *plan.vocabulary_sizes)}",
        "",
        "## Training",
        "",
        f"- {progress.step:,} steps in {progress.seconds / 60:.1f} minutes on {plan.device} ({plan.threads} threads), "
        f"{progress.step / plan.steps_per_epoch:.1f} times through the data",
        f"- Best validation loss {unknown if progress.best_loss is None else f'{progress.best_loss:.3f}'} "
        f"at step {progress.best_step:,}",
        f"- The weights are the mean of {finished.averaged_checkpoints} "
        f"checkpoint{'s' if finished.averaged_checkpoints > 1 else ''}",
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
