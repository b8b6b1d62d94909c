"""Section 3.1: layer and batch normalisation, after or before each sub-layer, at several depths."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from dragoman.bench.stats import SampleStats
from dragoman.lab.laboratory import Laboratory, TrainedModel, perplexity
from dragoman.lab.plots import line_picture
from dragoman.lab.seeds import (
    MIN_TRAINING_SECONDS,
    comparison_phrase,
    last_common_validation_step,
    metric_curve,
    over_seeds,
    training_seconds,
    validation_loss_at,
)
from dragoman.model_files import read_tokenizers
from dragoman.models.architectures import build_model
from dragoman.models.transducer import Source
from dragoman.report import Cell, ExperimentReport, Json, ReportPicture, ReportTable
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, PAD, START
from dragoman.training.loss import projected_cross_entropy

TITLE = "Section 3.1: normalisation"
QUESTION = "What is the effect of layer and batch normalisation, after or before each sub-layer, at several depths?"
CLAIM = (
    "section 3.1: the output of each sub-layer is LayerNorm(x + Sublayer(x)): layer normalisation after the sub-layer. "
    "The paper reports no comparison."
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
_BATCH_PAIRS = 64  # per batch whose gradient is measured
_GRADIENT_BATCHES = 3  # over which gradients are averaged
_STACKS = ("encoder", "decoder")


def run(lab: Laboratory) -> ExperimentReport:
    """Train every kind at every depth, and measure the gradients at the first step."""
    depths, seeds, seconds = plan_depths(lab.budget_seconds)
    findings, rows, trainings, curves, gradients = [], list[tuple[Cell, ...]](), [], {}, dict[str, Json]()
    for depth in depths:
        models = {
            kind: [_train_model(lab, depth, kind, lab.seed + seed, seconds[depth]) for seed in range(seeds)]
            for kind in NORMALISATIONS
        }
        step = last_common_validation_step(model for trained in models.values() for model in trained)
        perplexities = {
            kind: over_seeds(trained, lambda model: perplexity(validation_loss_at(model, step)))  # noqa: B023
            for kind, trained in models.items()
        }
        findings.append(depth_finding(depth, step, perplexities))
        curves[f"{depth} layers"] = {
            kind: metric_curve(trained[0], "validation", "loss") for kind, trained in models.items()
        }
        for kind, trained in models.items():
            steps = over_seeds(trained, lambda model: model.steps)
            final = over_seeds(trained, lambda model: model.perplexity)
            rows.append((kind, depth, f"{steps:,.0f}", step, f"{perplexities[kind]:,.2f}", f"{final:,.2f}"))
            trainings.append(_training_result(depth, kind, trained, step))
            gradients[f"{depth} layers, {kind}"] = lab.measure_once(
                f"gradients-{depth}-{'-'.join(NORMALISATIONS[kind])}",
                lambda model=trained[0]: _initial_gradients(lab, model),  # type: ignore[misc]
                depth=depth,
            )
    header = ("normalisation", "layers", "steps", "compared step", "perplexity there", "final perplexity")
    parts = (
        _explanation(seconds, seeds),
        ReportTable("Validation perplexity per token", header, rows),
        line_picture(
            lab.folder / "curves.png", "Validation loss of each kind and depth (first seed).", curves,
            x_label="step", y_label="validation loss, nats per token", height=3.4,
        ),
        _draw_gradients(lab, gradients, max(depths)),
        _gradient_table(gradients),
    )  # fmt: skip
    findings.append(_gradient_finding(gradients, max(depths)))
    return ExperimentReport(tuple(findings), parts, {"trainings": trainings, "gradients": gradients})


def plan_depths(budget_seconds: float) -> tuple[tuple[int, ...], int, dict[int, float]]:
    """Return the depths, the number of seeds, and the seconds per training at each depth; deeper models get more."""
    depths = (2, 6, 12) if budget_seconds >= 300 else (2, 6) if budget_seconds >= 90 else (1, 3)
    weights = {depth: depth + 4.0 for depth in depths}

    def seconds(depth: int, seeds: int) -> float:
        share = weights[depth] / sum(weights.values())
        return training_seconds(budget_seconds / (len(NORMALISATIONS) * seeds) * share)

    seeds = 2 if seconds(depths[0], 2) >= MIN_TRAINING_SECONDS else 1
    return depths, seeds, {depth: seconds(depth, seeds) for depth in depths}


def _train_model(lab: Laboratory, depth: int, kind: str, seed: int, seconds: float) -> TrainedModel:
    normalisation, norm = NORMALISATIONS[kind]
    settings = {**NARROW_SETTINGS, "model.layers": depth, "model.normalisation": normalisation, "model.norm": norm}
    return lab.train_model(f"{depth}-{normalisation}-{norm}-{seed}", settings, seconds=seconds, seed=seed)


def _training_result(depth: int, kind: str, models: list[TrainedModel], step: int) -> dict[str, Json]:
    return {
        "layers": depth, "kind": kind, "step": step,
        "validation_loss": over_seeds(models, lambda model: validation_loss_at(model, step)).to_json(),
        "steps": [model.steps for model in models], "diverged": [model.diverged for model in models],
        "curves": [metric_curve(model, "validation", "loss") for model in models],
    }  # fmt: skip


# Gradients at the first step


def _initial_gradients(lab: Laboratory, trained: TrainedModel) -> dict[str, list[float]]:
    """Return the gradient norm of each layer of a newly initialised model, as means over the first batches."""
    recipe = trained.run.read_recipe()
    source, target = read_tokenizers(trained.run, recipe.tokenizer.joint)
    pairs = lab.corpus.pairs("train")
    means: dict[str, list[float]] = {}
    for number in range(_GRADIENT_BATCHES):
        torch.manual_seed(lab.seed)
        model = build_model(recipe.model, len(source), len(target))
        batch = pairs[number * _BATCH_PAIRS : (number + 1) * _BATCH_PAIRS] or pairs[:_BATCH_PAIRS]
        for stack, norms in layer_gradients(model, _encode_batch(batch, source, target)).items():
            before = means.get(stack, [0.0] * len(norms))
            means[stack] = [old + new / _GRADIENT_BATCHES for old, new in zip(before, norms, strict=True)]
    return means


def _encode_batch(pairs: list[tuple[str, str]], source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """Return sources (B S), prefixes and targets (B T)."""
    sources = [[*source.encode(text), END] for text, _ in pairs]
    targets = [[*target.encode(text), END] for _, text in pairs]
    return _pad(sources), _pad([[START, *row[:-1]] for row in targets]), _pad(targets)


def _pad(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def layer_gradients(model: Any, batch: tuple[Tensor, Tensor, Tensor]) -> dict[str, list[float]]:
    """Return the norm of the gradient of the mean loss in each layer of each stack, from first to last."""
    source, prefix, target = batch
    model.train()
    hidden = model.hidden_states(prefix, model.encode(Source.from_ids(source)))
    loss, _ = projected_cross_entropy(hidden, model.output_weight, target, 0.0)
    torch.autograd.backward(loss / (target != PAD).sum())
    return {stack: [_gradient_norm(layer) for layer in getattr(model, stack)] for stack in _STACKS}


def _gradient_norm(layer: nn.Module) -> float:
    return float(nn.utils.get_total_norm([cast(Tensor, parameter.grad) for parameter in layer.parameters()]))


# Report


def _explanation(seconds: Mapping[int, float], seeds: int) -> str:
    times = ", ".join(f"{value:.0f} seconds with {depth} layers" for depth, value in seconds.items())
    return (
        f"Width {NARROW_SETTINGS['model.width']}, the same number of layers in encoder and decoder, the same learning "
        f"rate for all (peak {NARROW_SETTINGS['training.rate']}). Training time: {times}; seeds: {seeds}. Kinds differ "
        "in steps per second (batch normalisation cannot divide a batch among threads), so perplexities are compared "
        "at the last step at which all kinds of a depth were validated."
    )


def _draw_gradients(lab: Laboratory, gradients: Mapping[str, Json], depth: int) -> ReportPicture:
    kinds = {kind: gradients[f"{depth} layers, {kind}"] for kind in NORMALISATIONS}
    panels = {
        stack: {kind: (range(1, len(norms[stack]) + 1), norms[stack]) for kind, norms in kinds.items()}
        for stack in _STACKS
    }
    caption = f"Gradient norm of each layer at the first step, {depth} layers in each stack."
    return line_picture(
        lab.folder / "gradients.png", caption, panels, x_label="layer", y_label="gradient norm", height=3.4, bottom=0
    )


def _gradient_table(gradients: dict[str, Json]) -> ReportTable:
    rows = tuple(
        (name, *(norms[stack][layer] for stack in _STACKS for layer in (0, -1))) for name, norms in gradients.items()
    )
    header = ("model", "encoder, first layer", "encoder, last", "decoder, first", "decoder, last")
    note = f"Newly initialised models; mean of {_GRADIENT_BATCHES} batches of {_BATCH_PAIRS} pairs."
    return ReportTable("Gradient norm at the first step", header, rows, note)


def _gradient_finding(gradients: Mapping[str, Json], depth: int) -> str:
    post, pre = (gradients[f"{depth} layers, {kind}"]["decoder"] for kind in (_PAPER, _LAYER_PRE))
    return (
        f"At the first step, in a decoder of {depth} layers, the gradient norm of the last layer is "
        f"{post[-1] / post[0]:.2f} times that of the first with post-norm, and {pre[-1] / pre[0]:.2f} times with "
        "pre-norm (layer normalisation)."
    )


def depth_finding(depth: int, step: int, perplexities: Mapping[str, SampleStats]) -> str:
    """Return a sentence that compares all kinds at one depth with the paper's."""
    values = "; ".join(f"{kind} {perplexities[kind]:,.2f}" for kind in NORMALISATIONS)
    if len(perplexities[_PAPER].values) < 2:
        comparison = "Each kind was trained once, so differences may be due to chance"
    else:
        comparison = "; ".join(
            f"{kind} is {comparison_phrase(perplexities[kind], perplexities[_PAPER])} the paper’s"
            for kind in NORMALISATIONS
            if kind != _PAPER
        )
    return f"Perplexity with {depth} layers at step {step}: {values}. {comparison[0].upper()}{comparison[1:]}."
