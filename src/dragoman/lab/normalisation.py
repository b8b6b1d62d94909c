"""Section 3.1: layer and batch normalisation, after or before each sub-layer, at several depths."""

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from dragoman.bench.stats import SampleStats
from dragoman.lab.comparison import train_comparison
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plan import Comparison
from dragoman.lab.plots import line_picture
from dragoman.lab.seeds import comparison_phrase, metric_curve, over_seeds
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
}  # fmt: skip
_DEPTHS = (2, 6, 12)  # the deeper ones only if time allows
_LEARNING_STEPS = 400  # of the paper's normalisation; batches are half as large as those of the small model
_BATCH_PAIRS = 64  # per batch whose gradient is measured
_GRADIENT_BATCHES = 3  # over which gradients are averaged
_STACKS = ("encoder", "decoder")


def _variant_name(depth: int, kind: str) -> str:
    """Return the name of a kind of normalisation at a depth."""
    return f"{depth} layers, {kind}"


def build_comparison() -> Comparison:
    """Return the trainings: every kind at every depth."""
    return Comparison(
        {
            _variant_name(depth, kind): {
                **NARROW_SETTINGS, "model.layers": depth, "model.normalisation": normalisation, "model.norm": norm,
            }
            for depth in _DEPTHS
            for kind, (normalisation, norm) in NORMALISATIONS.items()
        },
        equal="steps",
        learning_steps=_LEARNING_STEPS,
        max_seeds=2,
        optional=tuple(tuple(_variant_name(depth, kind) for kind in NORMALISATIONS) for depth in _DEPTHS[:0:-1]),
    )  # fmt: skip


def run(lab: Laboratory) -> ExperimentReport:
    """Train every kind at every depth, and measure the gradients at the first step."""
    trained = train_comparison(lab, build_comparison())
    depths = [depth for depth in _DEPTHS if _variant_name(depth, _PAPER) in trained.models]
    gradients: dict[str, Json] = {
        name: lab.measure_once(f"gradients of {name}", partial(_initial_gradients, lab, models[0]))
        for name, models in trained.models.items()
    }
    gradient_finding = _gradient_finding(gradients, max(depths))
    gradient_parts = (_draw_gradients(lab, gradients, max(depths)), _gradient_table(gradients))
    if len(trained.learned) < 2:
        return trained.refusal((gradient_finding,), gradient_parts, gradients=gradients)
    findings, rows, curves = [], list[tuple[Cell, ...]](), {}
    for depth in depths:
        models = {
            kind: trained.models[name]
            for kind in NORMALISATIONS
            if (name := _variant_name(depth, kind)) in trained.learned
        }
        perplexities = {kind: over_seeds(same, lambda model: model.perplexity) for kind, same in models.items()}
        steps = trained.plan.steps[_variant_name(depth, _PAPER)]
        if len(models) > 1:
            findings.append(depth_finding(depth, steps, perplexities))
        rows += [(kind, depth, steps, f"{value:,.2f}") for kind, value in perplexities.items()]
        curves[f"{depth} layers"] = {kind: metric_curve(same[0], "validation", "loss") for kind, same in models.items()}
    header = ("normalisation", "layers", "steps", "perplexity")
    parts = (
        _EXPLANATION,
        *trained.parts(),
        ReportTable("Validation perplexity per token", header, rows),
        line_picture(
            lab.folder / "curves.png", "Validation loss of each kind and depth (first seed).", curves,
            x_label="step", y_label="validation loss, nats per token", height=3.4,
        ),
        *gradient_parts,
    )  # fmt: skip
    trainings = [_training_result(name, models) for name, models in trained.models.items()]
    results = {"trainings": trainings, "gradients": gradients, "comparison": trained.results()}
    return ExperimentReport((*findings, *trained.findings(), gradient_finding), parts, results)


def _training_result(name: str, models: list[TrainedModel]) -> dict[str, Json]:
    return {
        "variant": name, "steps": [model.steps for model in models], "diverged": [model.diverged for model in models],
        "validation_loss": over_seeds(models, lambda model: model.validation_loss).to_json(),
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


_EXPLANATION = (
    f"Width {NARROW_SETTINGS['model.width']}, the same number of layers in encoder and decoder, the same learning "
    f"rate for all (peak {NARROW_SETTINGS['training.rate']}). Kinds differ in steps per second (batch normalisation "
    "cannot divide a batch among threads), so they are compared after the same number of steps."
)


def _draw_gradients(lab: Laboratory, gradients: Mapping[str, Json], depth: int) -> ReportPicture:
    kinds = {kind: gradients[_variant_name(depth, kind)] for kind in NORMALISATIONS}
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
    post, pre = (gradients[_variant_name(depth, kind)]["decoder"] for kind in (_PAPER, _LAYER_PRE))
    return (
        f"At the first step, in a decoder of {depth} layers, the gradient norm of the last layer is "
        f"{post[-1] / post[0]:.2f} times that of the first with post-norm, and {pre[-1] / pre[0]:.2f} times with "
        "pre-norm (layer normalisation)."
    )


def depth_finding(depth: int, steps: int, perplexities: Mapping[str, SampleStats]) -> str:
    """Return a sentence that compares the kinds that have learned at one depth with the paper's."""
    values = "; ".join(f"{kind} {value:,.2f}" for kind, value in perplexities.items())
    finding = f"Perplexity with {depth} layers after {steps:,} steps: {values}."
    if max(len(value.values) for value in perplexities.values()) < 2:
        return f"{finding} Each kind was trained once, so differences may be due to chance."
    if _PAPER not in perplexities:
        return finding
    comparison = "; ".join(
        f"{kind} is {comparison_phrase(value, perplexities[_PAPER])} the paper’s"
        for kind, value in perplexities.items()
        if kind != _PAPER
    )
    return f"{finding} {comparison[0].upper()}{comparison[1:]}."
