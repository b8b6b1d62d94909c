"""Section 3.1: layer against batch normalisation, after each sub-layer or before it, at several depths."""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from dragoman.bench.measure import Measure
from dragoman.lab.drawing import draw_lines, panels, save
from dragoman.lab.laboratory import Laboratory, Trained
from dragoman.lab.repeats import (
    LEAST_SECONDS,
    common_validation,
    digits,
    line,
    loss_at,
    over_seeds,
    training_seconds,
    verdict,
)
from dragoman.lab.report import Json, Picture, Report, Table
from dragoman.model.architectures import build
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, PAD, START
from dragoman.training.loss import projected_cross_entropy

TITLE = "Section 3.1: normalisation"
QUESTION = "What do layer and batch normalisation, after or before each sub-layer, do at several depths?"
CLAIM = (
    "Section 3.1: the output of each sub-layer is LayerNorm(x + Sublayer(x)): layer normalisation, after it. The paper "
    "compares this with nothing else."
)

KINDS = {
    "layer, post (the paper)": ("layer", "post"),
    "layer, pre": ("layer", "pre"),
    "batch, post": ("batch", "post"),
    "batch, pre": ("batch", "pre"),
}
PAPER, FIRST = "layer, post (the paper)", "layer, pre"
NARROW: dict[str, Any] = {
    "model.width": 64, "model.inner_width": 128, "training.batch_tokens": 512, "training.rate": 0.003,
    "training.validate_every": 25,
}  # fmt: skip
PAIRS = 64  # of the batch whose gradient is looked at
FIRST_BATCHES = 3  # whose gradients are averaged

Models = dict[tuple[int, str], list[Trained]]


def run(lab: Laboratory) -> Report:
    """Train every kind at every depth, and look at the gradients that they begin with."""
    depths, seeds, seconds = plan(lab.budget_seconds)
    models: Models = {
        (depth, kind): [ordered(lab, depth, kind, lab.seed + number, seconds[depth]) for number in range(seeds)]
        for depth in depths
        for kind in KINDS
    }
    common = {depth: common_validation(each for kind in KINDS for each in models[depth, kind]) for depth in depths}
    losses = {key: over_seeds([loss_at(model, common[key[0]]) for model in found]) for key, found in models.items()}
    gradients = {
        f"{depth} layers, {kind}": kept_gradients(lab, found[0], depth, kind) for (depth, kind), found in models.items()
    }
    parts = (
        explanation(seconds, seeds), table(models, losses, common), draw_curves(lab, models, depths),
        draw_gradients(lab, gradients, max(depths)), gradient_table(gradients),
    )  # fmt: skip
    results = {
        "trainings": [result(key, found, losses[key], common[key[0]]) for key, found in models.items()],
        "gradients": gradients,
    }
    return Report(findings(losses, gradients, common), parts, results)


def plan(budget_seconds: float) -> tuple[tuple[int, ...], int, dict[int, float]]:
    """Share the time out: return the depths, the number of seeds, and the seconds of one training at each depth.

    A deep model gets more of it, though not as much more as its steps take.
    """
    depths = (2, 6, 12) if budget_seconds >= 300 else (2, 6) if budget_seconds >= 90 else (1, 3)
    parts = sum(map(weight, depths))

    def seconds(depth: int, seeds: int) -> float:
        return training_seconds(budget_seconds / (len(KINDS) * seeds) * weight(depth) / parts)

    seeds = 2 if seconds(depths[0], 2) >= LEAST_SECONDS else 1
    return depths, seeds, {depth: seconds(depth, seeds) for depth in depths}


def weight(depth: int) -> float:
    """Return the part of the time that a depth gets."""
    return depth + 4.0


def ordered(lab: Laboratory, depth: int, kind: str, seed: int, seconds: float) -> Trained:
    """Train one kind at one depth."""
    normalisation, order = KINDS[kind]
    settings = {**NARROW, "model.layers": depth, "model.normalisation": normalisation, "model.norm": order}
    return lab.trained(f"{depth}-{normalisation}-{order}-{seed}", settings, seconds=seconds, seed=seed)


# The gradients of the first batches


def kept_gradients(lab: Laboratory, trained: Trained, depth: int, kind: str) -> Json:
    """Measure the first gradients of one kind at one depth, once."""
    name = f"gradients-{depth}-{'-'.join(KINDS[kind])}"
    return lab.kept(name, lambda: first_gradients(lab, trained, lab.seed), depth=depth)


def first_gradients(lab: Laboratory, trained: Trained, seed: int) -> dict[str, list[float]]:
    """Return the length of the gradient of each layer's parameters before any of them has learned anything."""
    recipe = trained.run.read_recipe()
    source, target = trained.run.read_tokenizers(recipe.tokenizer.joint)
    pairs = lab.material.pairs("train")
    total: dict[str, list[float]] = {}
    for number in range(FIRST_BATCHES):
        torch.manual_seed(seed)
        model = build(recipe.model, len(source), len(target))
        some = pairs[number * PAIRS : (number + 1) * PAIRS] or pairs[:PAIRS]
        for stack, lengths in layer_gradients(model, batch_of(some, source, target)).items():
            before = total.get(stack, [0.0] * len(lengths))
            total[stack] = [old + new / FIRST_BATCHES for old, new in zip(before, lengths, strict=True)]
    return total


def batch_of(pairs: list[tuple[str, str]], source: Tokenizer, target: Tokenizer) -> tuple[Tensor, Tensor, Tensor]:
    """Return sources (B S), prefixes and targets (B T) of some pairs."""
    sources = [[*source.encode(text), END] for text, _ in pairs]
    targets = [[*target.encode(text), END] for _, text in pairs]
    return padded(sources), padded([[START, *row[:-1]] for row in targets]), padded(targets)


def padded(rows: list[list[int]]) -> Tensor:
    """Put rows of tokens side by side, the shorter ones filled with PAD."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def layer_gradients(model: Any, batch: tuple[Tensor, Tensor, Tensor]) -> dict[str, list[float]]:
    """Return the length of the gradient of the mean loss in each layer of each stack, from the first to the last."""
    source, prefix, target = batch
    model.train()
    hidden = model.hidden(prefix, model.encode(source))
    loss, _ = projected_cross_entropy(hidden, model.output, target, 0.0)
    torch.autograd.backward(loss / (target != PAD).sum())
    return {stack: [gradient_length(layer) for layer in getattr(model, stack)] for stack in ("encoder", "decoder")}


def gradient_length(layer: nn.Module) -> float:
    """Return the length of the gradient of all parameters of a layer."""
    return float(nn.utils.get_total_norm([cast(Tensor, each.grad) for each in layer.parameters()]))


# What is shown


def explanation(seconds: Mapping[int, float], seeds: int) -> str:
    """Say what was trained."""
    shares = ", ".join(f"{value:.0f} seconds with {depth} layers" for depth, value in seconds.items())
    return (
        f"Width {NARROW['model.width']}, as many layers in the encoder as in the decoder, the same learning rate for "
        f"all (peak {NARROW['training.rate']}). Time of training: {shares}; seeds: {seeds}. Kinds do not make the same "
        "number of steps in the same time (batch normalisation cannot share a batch out to several threads), so that "
        "perplexities are compared at the last step at which all kinds of a depth were validated."
    )


def table(models: Models, losses: Mapping[tuple[int, str], Measure], common: Mapping[int, int]) -> Table:
    """Return perplexity by kind and depth."""
    two = digits(2)
    rows = tuple(
        (kind, depth, over_seeds([model.steps for model in found]).written(digits(0)), common[depth],
         perplexity(losses[depth, kind]).written(two), over_seeds([m.perplexity for m in found]).written(two))
        for (depth, kind), found in models.items()
    )  # fmt: skip
    header = ("normalisation", "layers", "steps made", "steps compared", "perplexity then", "perplexity at the end")
    return Table("Validation perplexity per piece", header, rows)


def perplexity(losses: Measure) -> Measure:
    """Turn losses into perplexities."""
    return Measure.of([math.exp(min(loss, 50.0)) for loss in losses.values])


def draw_curves(lab: Laboratory, models: Models, depths: tuple[int, ...]) -> Picture:
    """Draw the validation loss over the steps, a panel for each depth."""
    figure, axes = panels(len(depths), height=3.4)
    for panel, depth in zip(axes, depths, strict=True):
        lines = {kind: line(models[depth, kind][0], "validation", "loss") for kind in KINDS}
        draw_lines(panel, lines, title=f"{depth} layers", across="step", up="validation loss, nats per piece")
    return Picture(save(figure, lab.folder / "curves.png"), "Validation loss of each kind and depth (first seed).")


def draw_gradients(lab: Laboratory, gradients: dict[str, Json], depth: int) -> Picture:
    """Draw the first gradient over the layers of the deepest models."""
    figure, axes = panels(2, height=3.4)
    for panel, stack in zip(axes, ("encoder", "decoder"), strict=True):
        lines = {}
        for kind in KINDS:
            lengths = gradients[f"{depth} layers, {kind}"][stack]
            lines[kind] = [float(place) for place in range(1, len(lengths) + 1)], lengths
        draw_lines(panel, lines, title=stack, across="layer", up="length of the gradient")
        panel.set_ylim(bottom=0)
    file = save(figure, lab.folder / "gradients.png")
    return Picture(file, f"The gradient of each layer’s parameters at the first step, {depth} layers in each stack.")


def gradient_table(gradients: dict[str, Json]) -> Table:
    """Return the first gradients of the first and the last layer."""
    rows = tuple(
        (name, *(found[stack][place] for stack in ("encoder", "decoder") for place in (0, -1)))
        for name, found in gradients.items()
    )
    header = ("model", "encoder, first layer", "encoder, last", "decoder, first", "decoder, last")
    note = f"Before anything is learned; mean of {FIRST_BATCHES} batches of {PAIRS} pairs."
    return Table("Length of the gradient at the first step", header, rows, note)


def result(key: tuple[int, str], models: list[Trained], losses: Measure, step: int) -> dict[str, Json]:
    """Return what one kind came to at one depth."""
    return {
        "layers": key[0], "kind": key[1], "step": step, "validation_loss": losses.to_json(),
        "steps": [model.steps for model in models], "diverged": [model.diverged for model in models],
        "curves": [line(model, "validation", "loss") for model in models],
    }  # fmt: skip


def findings(
    losses: Mapping[tuple[int, str], Measure], gradients: dict[str, Json], common: Mapping[int, int]
) -> tuple[str, ...]:
    """Say what was found, in sentences; the trainings of a depth are compared at the same step."""
    deepest = max(common)
    after, before = (gradients[f"{deepest} layers, {kind}"]["decoder"] for kind in (PAPER, FIRST))
    return (
        *(finding(depth, step, {kind: perplexity(losses[depth, kind]) for kind in KINDS})
          for depth, step in common.items()),
        f"Before anything is learned, in a decoder of {deepest} layers, the gradient of the last layer is "
        f"{after[-1] / after[0]:.2f} times that of the first with layer norm after sub-layers, and "
        f"{before[-1] / before[0]:.2f} times with it before them.",
    )  # fmt: skip


def finding(depth: int, step: int, found: Mapping[str, Measure]) -> str:
    """Compare all kinds at one depth, each with the paper's."""
    values = "; ".join(f"{kind} {found[kind].written(digits(2))}" for kind in KINDS)
    if len(found[PAPER].values) < 2:
        said = "One training of each: nobody knows how much of that is chance"
    else:
        others = [kind for kind in KINDS if kind != PAPER]
        said = "; ".join(f"{kind} is {verdict(found[kind], found[PAPER])} the paper’s" for kind in others)
    return f"Perplexity with {depth} layers by step {step}: {values}. {said[0].upper()}{said[1:]}."
