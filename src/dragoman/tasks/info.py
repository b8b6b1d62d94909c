"""Facts about a run that need no computation."""

from collections import deque
from pathlib import Path
from typing import Any

from dragoman.checkpoints import checkpoint_dirs, find_damage, newest_checkpoint, read_progress
from dragoman.errors import format_count
from dragoman.model_config import ModelConfig, RecurrentConfig, SelfAttentionConfig, TransformerConfig
from dragoman.model_files import read_tensors, read_tokenizers
from dragoman.models.layers import is_running_statistic
from dragoman.recipe import TokenizerConfig
from dragoman.run import Run, read_metrics
from dragoman.tasks.registry import get_task
from dragoman.tensor_header import whole_numbers

_SCORE_DESCRIPTIONS = {
    "dot": "unscaled dot products",
    "general": "general attention",
    "additive": "additive attention",
    "location": "location-sensitive attention",
}
_ARCHITECTURE_NAMES = {  # of architectures other than the Transformer
    "recurrent": "recurrent ({cell})",
    "convs2s": "convolutional (kernel {kernel})",
    "bytenet": "dilated convolutions (kernel {kernel})",
    "bag_of_embeddings": "bag of embeddings ({pooling})",
    "decoder_only": "decoder-only Transformer",
}


def describe_model(config: ModelConfig) -> str:
    """Return one line about a model: its size, and how it differs from the paper's."""
    parts = (
        [_ARCHITECTURE_NAMES[config.architecture].format(**config.model_dump())]
        if config.architecture in _ARCHITECTURE_NAMES
        else []
    )
    stacks = f"{config.layers}+{config.decoder_depth} layers"
    parts.append(format_count(config.layers, "layer") if config.architecture == "decoder_only" else stacks)
    parts.append(f"width {config.width}")
    if isinstance(config, SelfAttentionConfig):
        parts += [format_count(config.heads, "head"), f"{config.norm}-norm", *_describe_variations(config)]
    elif isinstance(config, RecurrentConfig):
        parts.append(
            _SCORE_DESCRIPTIONS.get(config.score, "no attention" if config.score == "none" else "scaled dot products")
        )
    return ", ".join(parts)


def _describe_variations(config: SelfAttentionConfig) -> list[str]:
    return [
        *([_SCORE_DESCRIPTIONS[config.score]] if config.score in _SCORE_DESCRIPTIONS else []),
        *(["batch normalisation"] if isinstance(config, TransformerConfig) and config.normalisation == "batch" else []),
        *([] if config.positions == "sinusoidal" else [f"{config.positions.replace('none', 'no')} positions"]),
        *(["rotary self-attention"] if config.rotary else []),
        *([] if config.pattern == "full" else [f"{config.pattern} attention over {config.window} positions"]),
    ]


def describe_vocabulary(config: TokenizerConfig, source: int, target: int, *, reads_signals: bool = False) -> str:
    """Return one line about the tokenizers: their kinds and the sizes of their vocabularies.

    A model that reads signals has no source vocabulary.
    """
    if reads_signals:
        return f"{config.kind}, {target:,} tokens"
    if config.joint:
        return f"{config.kind}, {source:,} tokens, shared by source and target"
    kinds = dict.fromkeys(side.kind for side in config.sides)
    return f"{' and '.join(kinds)}, {source:,} and {target:,} tokens"


def run_info(folder: str | Path) -> dict[str, Any]:
    """Return the facts about a run that `dragoman info` prints."""
    run = Run(folder)
    recipe = run.read_recipe()
    source, target = read_tokenizers(run, recipe.tokenizer.joint)
    task = get_task(recipe.task)
    corpus, _ = task.open_corpora(recipe.data)
    facts: dict[str, Any] = {
        "run": str(run),
        "task": recipe.task,
        "model": describe_model(recipe.model),
        "vocabulary": describe_vocabulary(recipe.tokenizer, len(source), len(target), reads_signals=task.reads_signals),
        "trained_on": str(corpus),
    }
    if run.weights_file.exists():
        weights, metadata = read_tensors(run.weights_file)
        facts["parameters"] = sum(tensor.numel() for name, tensor in weights.items() if not is_running_statistic(name))
        facts["mean_of_steps"] = whole_numbers(metadata, "steps")
    facts["checkpoints"] = [int(path.name) for path in reversed(checkpoint_dirs(run.checkpoints_dir))]
    facts["damaged"] = [
        f"{path.name}: {damage}" for path in checkpoint_dirs(run.checkpoints_dir) if (damage := find_damage(path))
    ]
    path, _ = newest_checkpoint(run.checkpoints_dir)
    if path:
        progress = read_progress(path)
        facts["steps"], facts["of"] = progress.step, progress.last_step or recipe.training.steps
        facts["minutes"] = progress.seconds / 60
        facts["best_validation_loss"], facts["best_step"] = progress.best_loss, progress.best_step
    scored = (entry for entry in read_metrics(run.metrics_file) if type(entry.get("score")) in (int, float))
    for entry in deque(scored, maxlen=1):
        facts[f"last_validation_{str(entry.get('measure', 'score'))[:20]}"] = entry["score"]
    return facts
