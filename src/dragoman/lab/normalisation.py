"""Section 3.1: layer against batch normalisation, after each sub-layer or before it, at several depths."""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from dragoman.bench.stats import SampleStats
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plots import draw_lines, save_figure, subplots
from dragoman.lab.report import ExperimentReport, Json, Picture, ReportTable
from dragoman.lab.seeds import (
    MIN_TRAINING_SECONDS,
    comparison_phrase,
    decimal_formatter,
    last_common_validation_step,
    metric_curve,
    seed_statistics,
    training_seconds,
    validation_loss_at,
)
from dragoman.model_files import read_tokenizers
from dragoman.models.architectures import build_model
from dragoman.models.transducer import Source
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, PAD, START
from dragoman.training.loss import projected_cross_entropy

TITLE = "Section 3.1: normalisation"
QUESTION = "What do layer and batch normalisation, after or before each sub-layer, do at several depths?"
CLAIM = (
    "Section 3.1: the output of each sub-layer is LayerNorm(x + Sublayer(x)): layer normalisation, after it. The paper "
    "compares this with nothing else."
)

NORMALISATIONS = {
    "layer, post (the paper)": ("layer", "post"),
    "layer, pre": ("layer", "pre"),
    "batch, post": ("batch", "post"),
    "batch, pre": ("batch", "pre"),
}
_PAPER, _LAYER_PRE = "layer, post (the paper)", "layer, pre"
NARROW_SETTINGS: dict[str, Any] = {
    "model.width": 64, "model.inner_width": 128, "training.batch_tokens": 512, "training.rate": 0.003,
    "training.validate_every": 25,
}  # fmt: skip
_BATCH_PAIRS = 64  # of the batch whose gradient is looked at
_GRADIENT_BATCHES = 3  # whose gradients are averaged

_ModelsByDepth = dict[tuple[int, str], list[TrainedModel]]


def run(lab: Laboratory) -> ExperimentReport:
    """Train every kind at every depth, and look at the gradients that they begin with."""
    depths, seeds, seconds = plan_depths(lab.budget_seconds)
    models: _ModelsByDepth = {
        (depth, kind): [_train_depth(lab, depth, kind, lab.seed + number, seconds[depth]) for number in range(seeds)]
        for depth in depths
        for kind in NORMALISATIONS
    }
    common = {
        depth: last_common_validation_step(each for kind in NORMALISATIONS for each in models[depth, kind])
        for depth in depths
    }
    losses = {
        key: seed_statistics([validation_loss_at(model, common[key[0]]) for model in found])
        for key, found in models.items()
    }
    gradients = {
        f"{depth} layers, {kind}": _measure_gradients_once(lab, found[0], depth, kind)
        for (depth, kind), found in models.items()
    }
    parts = (
        _explanation(seconds, seeds), _table(models, losses, common), _draw_curves(lab, models, depths),
        _draw_gradients(lab, gradients, max(depths)), _gradient_table(gradients),
    )  # fmt: skip
    results = {
        "trainings": [_result(key, found, losses[key], common[key[0]]) for key, found in models.items()],
        "gradients": gradients,
    }
    return ExperimentReport(_findings(losses, gradients, common), parts, results)


def plan_depths(budget_seconds: float) -> tuple[tuple[int, ...], int, dict[int, float]]:
    """Share the time out: return the depths, the number of seeds, and the seconds of one training at each depth.

    A deep model gets more of it, though not as much more as its steps take.
    """
    depths = (2, 6, 12) if budget_seconds >= 300 else (2, 6) if budget_seconds >= 90 else (1, 3)
    parts = sum(map(_time_weight, depths))

    def seconds(depth: int, seeds: int) -> float:
        return training_seconds(budget_seconds / (len(NORMALISATIONS) * seeds) * _time_weight(depth) / parts)

    seeds = 2 if seconds(depths[0], 2) >= MIN_TRAINING_SECONDS else 1
    return depths, seeds, {depth: seconds(depth, seeds) for depth in depths}


def _time_weight(depth: int) -> float:
    """Return the part of the time that a depth gets."""
    return depth + 4.0


def _train_depth(lab: Laboratory, depth: int, kind: str, seed: int, seconds: float) -> TrainedModel:
    """Train one kind at one depth."""
    normalisation, order = NORMALISATIONS[kind]
    settings = {**NARROW_SETTINGS, "model.layers": depth, "model.normalisation": normalisation, "model.norm": order}
    return lab.train_model(f"{depth}-{normalisation}-{order}-{seed}", settings, seconds=seconds, seed=seed)


# The gradients of the first batches


def _measure_gradients_once(lab: Laboratory, trained: TrainedModel, depth: int, kind: str) -> Json:
    """Measure the first gradients of one kind at one depth, once."""
    name = f"gradients-{depth}-{'-'.join(NORMALISATIONS[kind])}"
    return lab.measure_once(name, lambda: _initial_gradients(lab, trained, lab.seed), depth=depth)


def _initial_gradients(lab: Laboratory, trained: TrainedModel, seed: int) -> dict[str, list[float]]:
    """Return the length of the gradient of each layer's parameters before any of them has learned anything."""
    recipe = trained.run.read_recipe()
    source, target = read_tokenizers(trained.run, recipe.tokenizer.joint)
    pairs = lab.corpus.pairs("train")
    total: dict[str, list[float]] = {}
    for number in range(_GRADIENT_BATCHES):
        torch.manual_seed(seed)
        model = build_model(recipe.model, len(source), len(target))
        some = pairs[number * _BATCH_PAIRS : (number + 1) * _BATCH_PAIRS] or pairs[:_BATCH_PAIRS]
        for stack, lengths in layer_gradients(model, _encode_batch(some, source, target)).items():
            before = total.get(stack, [0.0] * len(lengths))
            total[stack] = [old + new / _GRADIENT_BATCHES for old, new in zip(before, lengths, strict=True)]
    return total


def _encode_batch(pairs: list[tuple[str, str]], source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """Return sources (B S), prefixes and targets (B T) of some pairs."""
    sources = [[*source.encode(text), END] for text, _ in pairs]
    targets = [[*target.encode(text), END] for _, text in pairs]
    return _pad_rows(sources), _pad_rows([[START, *row[:-1]] for row in targets]), _pad_rows(targets)


def _pad_rows(rows: list[list[int]]) -> Tensor:
    """Put rows of tokens side by side, the shorter ones filled with PAD."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def layer_gradients(model: Any, batch: tuple[Tensor, Tensor, Tensor]) -> dict[str, list[float]]:
    """Return the length of the gradient of the mean loss in each layer of each stack, from the first to the last."""
    source, prefix, target = batch
    model.train()
    hidden = model.hidden(prefix, model.encode(Source.from_ids(source)))
    loss, _ = projected_cross_entropy(hidden, model.output, target, 0.0)
    torch.autograd.backward(loss / (target != PAD).sum())
    return {stack: [_gradient_norm(layer) for layer in getattr(model, stack)] for stack in ("encoder", "decoder")}


def _gradient_norm(layer: nn.Module) -> float:
    """Return the length of the gradient of all parameters of a layer."""
    return float(nn.utils.get_total_norm([cast(Tensor, each.grad) for each in layer.parameters()]))


# What is shown


def _explanation(seconds: Mapping[int, float], seeds: int) -> str:
    """Say what was trained."""
    shares = ", ".join(f"{value:.0f} seconds with {depth} layers" for depth, value in seconds.items())
    return (
        f"Width {NARROW_SETTINGS['model.width']}, as many layers in the encoder as in the decoder, the same "
        "learning rate for "
        f"all (peak {NARROW_SETTINGS['training.rate']}). Time of training: {shares}; seeds: {seeds}. Kinds do "
        "not make the same "
        "number of steps in the same time (batch normalisation cannot share a batch out to several threads), so that "
        "perplexities are compared at the last step at which all kinds of a depth were validated."
    )


def _table(
    models: _ModelsByDepth, losses: Mapping[tuple[int, str], SampleStats], common: Mapping[int, int]
) -> ReportTable:
    """Return perplexity by kind and depth."""
    two = decimal_formatter(2)
    rows = tuple(
        (kind, depth, seed_statistics([model.steps for model in found]).format(decimal_formatter(0)), common[depth],
         _perplexity(losses[depth, kind]).format(two), seed_statistics([m.perplexity for m in found]).format(two))
        for (depth, kind), found in models.items()
    )  # fmt: skip
    header = ("normalisation", "layers", "steps made", "steps compared", "perplexity then", "perplexity at the end")
    return ReportTable("Validation perplexity per piece", header, rows)


def _perplexity(losses: SampleStats) -> SampleStats:
    """Turn losses into perplexities."""
    return SampleStats.from_values([math.exp(min(loss, 50.0)) for loss in losses.values])


def _draw_curves(lab: Laboratory, models: _ModelsByDepth, depths: tuple[int, ...]) -> Picture:
    """Draw the validation loss over the steps, a panel for each depth."""
    figure, axes = subplots(len(depths), height=3.4)
    for panel, depth in zip(axes, depths, strict=True):
        lines = {kind: metric_curve(models[depth, kind][0], "validation", "loss") for kind in NORMALISATIONS}
        draw_lines(panel, lines, title=f"{depth} layers", x_label="step", y_label="validation loss, nats per piece")
    return Picture(
        save_figure(figure, lab.folder / "curves.png"), "Validation loss of each kind and depth (first seed)."
    )


def _draw_gradients(lab: Laboratory, gradients: dict[str, Json], depth: int) -> Picture:
    """Draw the first gradient over the layers of the deepest models."""
    figure, axes = subplots(2, height=3.4)
    for panel, stack in zip(axes, ("encoder", "decoder"), strict=True):
        lines = {}
        for kind in NORMALISATIONS:
            lengths = gradients[f"{depth} layers, {kind}"][stack]
            lines[kind] = [float(place) for place in range(1, len(lengths) + 1)], lengths
        draw_lines(panel, lines, title=stack, x_label="layer", y_label="length of the gradient")
        panel.set_ylim(bottom=0)
    file = save_figure(figure, lab.folder / "gradients.png")
    return Picture(file, f"The gradient of each layer’s parameters at the first step, {depth} layers in each stack.")


def _gradient_table(gradients: dict[str, Json]) -> ReportTable:
    """Return the first gradients of the first and the last layer."""
    rows = tuple(
        (name, *(found[stack][place] for stack in ("encoder", "decoder") for place in (0, -1)))
        for name, found in gradients.items()
    )
    header = ("model", "encoder, first layer", "encoder, last", "decoder, first", "decoder, last")
    note = f"Before anything is learned; mean of {_GRADIENT_BATCHES} batches of {_BATCH_PAIRS} pairs."
    return ReportTable("Length of the gradient at the first step", header, rows, note)


def _result(key: tuple[int, str], models: list[TrainedModel], losses: SampleStats, step: int) -> dict[str, Json]:
    """Return what one kind came to at one depth."""
    return {
        "layers": key[0], "kind": key[1], "step": step, "validation_loss": losses.to_json(),
        "steps": [model.steps for model in models], "diverged": [model.diverged for model in models],
        "curves": [metric_curve(model, "validation", "loss") for model in models],
    }  # fmt: skip


def _findings(
    losses: Mapping[tuple[int, str], SampleStats], gradients: dict[str, Json], common: Mapping[int, int]
) -> tuple[str, ...]:
    """Say what was found, in sentences; the trainings of a depth are compared at the same step."""
    deepest = max(common)
    after, before = (gradients[f"{deepest} layers, {kind}"]["decoder"] for kind in (_PAPER, _LAYER_PRE))
    return (
        *(depth_finding(depth, step, {kind: _perplexity(losses[depth, kind]) for kind in NORMALISATIONS})
          for depth, step in common.items()),
        f"Before anything is learned, in a decoder of {deepest} layers, the gradient of the last layer is "
        f"{after[-1] / after[0]:.2f} times that of the first with layer norm after sub-layers, and "
        f"{before[-1] / before[0]:.2f} times with it before them.",
    )  # fmt: skip


def depth_finding(depth: int, step: int, found: Mapping[str, SampleStats]) -> str:
    """Compare all kinds at one depth, each with the paper's."""
    values = "; ".join(f"{kind} {found[kind].format(decimal_formatter(2))}" for kind in NORMALISATIONS)
    if len(found[_PAPER].values) < 2:
        said = "One training of each: nobody knows how much of that is chance"
    else:
        others = [kind for kind in NORMALISATIONS if kind != _PAPER]
        said = "; ".join(f"{kind} is {comparison_phrase(found[kind], found[_PAPER])} the paper’s" for kind in others)
    return f"Perplexity with {depth} layers by step {step}: {values}. {said[0].upper()}{said[1:]}."
