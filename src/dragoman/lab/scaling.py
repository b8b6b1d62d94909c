"""Section 3.2.1: why dot products are divided by √d_k."""

import math

import torch
from torch import Tensor

from dragoman.bench.stats import SampleStats
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plots import draw_lines, save_figure, subplots
from dragoman.lab.seeds import (
    SeedPlan,
    common_steps,
    compare_variants,
    decimal_formatter,
    draw_training_losses,
    metric_curve,
    plan_seeds,
    seed_statistics,
    train_variants,
)
from dragoman.report import ExperimentReport, Json, ReportPicture, ReportTable

TITLE = "Section 3.2.1: why 1/√d_k"
QUESTION = "What happens to the softmax, to its gradient and to training if dot products are not scaled?"
CLAIM = (
    "Section 3.2.1: the dot product of two vectors of independent numbers with variance 1 has variance d_k; for large "
    "d_k that is suspected to push the softmax to where its gradients are extremely small, and 1/√d_k counteracts it."
)

TRAINED_KEY_WIDTHS = (8, 256)  # a small and a large d_k
_KEY_WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_QUERIES, _KEYS = 500, 64  # random vectors per width; each query has keys of its own
_SCORES = {"scaled": "scaled_dot", "not scaled": "dot"}
_HEADS = 2
_AVERAGED_STEPS = 20  # before the compared step, over which the training loss is averaged

_ScoreVariant = tuple[int, str]  # d_k, and a key of _SCORES


def run(lab: Laboratory) -> ExperimentReport:
    """Measure random dot products and their softmax, then train with and without scaling."""
    rows = lab.measure_once("softmax", lambda: [random_softmax_statistics(width, lab.seed) for width in _KEY_WIDTHS])
    variants = {
        (width, name): (
            f"{score}-{width}",
            {"model.heads": _HEADS, "model.key_width": width, "model.score": score},
        )
        for width in TRAINED_KEY_WIDTHS
        for name, score in _SCORES.items()
    }
    seed_plan = plan_seeds(lab.budget_seconds, len(variants), lab.seed)
    models = train_variants(lab, variants, seed_plan)
    steps = {
        width: common_steps(model for name in _SCORES for model in models[width, name]) for width in TRAINED_KEY_WIDTHS
    }
    losses = {
        (width, name): seed_statistics([_training_loss_at(model, steps[width]) for model in trained])
        for (width, name), trained in models.items()
    }
    parts = (
        _softmax_table(rows), _draw_softmax(lab, rows), _training_table(models, losses, steps, seed_plan),
        _draw_training(lab, models),
    )  # fmt: skip
    results = {
        "softmax": rows, "training": [_training_result(key, models[key], losses[key]) for key in models],
        "seconds_each": seed_plan.seconds, "seeds": list(seed_plan.seeds),
    }  # fmt: skip
    return ExperimentReport((*_softmax_findings(rows), *_training_findings(losses, steps)), parts, results)


# Random vectors


def random_softmax_statistics(key_width: int, seed: int) -> dict[str, float]:
    """Return statistics of the softmax over dot products of random vectors with mean 0 and variance 1."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(_QUERIES, key_width, 1, generator=generator)
    keys = torch.randn(_QUERIES, _KEYS, key_width, generator=generator)
    products = (keys @ queries)[..., 0].double()  # queries × keys
    scaled = products / math.sqrt(key_width)
    return {
        "d_k": key_width,
        "variance": float(products.var()),
        "variance, scaled": float(scaled.var()),
        **softmax_statistics(products),
        **{f"{name}, scaled": value for name, value in softmax_statistics(scaled).items()},
    }


def softmax_statistics(scores: Tensor) -> dict[str, float]:
    """Return the entropy of the softmax, its largest weight and its gradient norm, as means over the rows."""
    weights = scores.softmax(dim=-1)
    entropy = -(weights * scores.log_softmax(dim=-1)).sum(-1)
    return {
        "entropy": float(entropy.mean()),
        "largest weight": float(weights.amax(-1).mean()),
        "gradient": float(jacobian_norm(weights).mean()),
    }


def jacobian_norm(weights: Tensor) -> Tensor:
    """Return the Frobenius norm of each row's softmax Jacobian, diag(p) − p pᵀ, without building it."""
    squares = weights.square()
    total = squares.sum(-1)
    return (total - 2 * (squares * weights).sum(-1) + total.square()).clamp_min(0).sqrt()


# Trainings


def _training_loss_at(model: TrainedModel, step: int) -> float:
    """Return the mean training loss of the last steps up to this one; variants differ in steps per second."""
    steps, losses = metric_curve(model, "train", "nll")
    window = [loss for at, loss in zip(steps, losses, strict=True) if step - _AVERAGED_STEPS < at <= step]
    return math.inf if model.diverged or not window else sum(window) / len(window)


def _training_result(variant: _ScoreVariant, models: list[TrainedModel], losses: SampleStats) -> dict[str, Json]:
    return {
        "d_k": variant[0], "score": _SCORES[variant[1]], "training_loss": losses.to_json(),
        "validation_loss": seed_statistics([model.validation_loss for model in models]).to_json(),
        "steps": [model.steps for model in models], "diverged": [model.diverged for model in models],
        "training_curves": [metric_curve(model, "train", "nll") for model in models],
    }  # fmt: skip


# Report


def _softmax_table(rows: Json) -> ReportTable:
    header = (
        "d_k", "variance of q·k", "variance / d_k", "entropy", "entropy, scaled", "largest weight",
        "largest weight, scaled", "gradient", "gradient, scaled",
    )  # fmt: skip
    cells = tuple(
        (row["d_k"], row["variance"], row["variance"] / row["d_k"],
         *(row[name + suffix] for name in ("entropy", "largest weight", "gradient") for suffix in ("", ", scaled")))
        for row in rows
    )  # fmt: skip
    note = (
        f"Queries and keys of independent numbers with mean 0 and variance 1; softmax over {_KEYS} keys, whose entropy "
        f"is at most ln {_KEYS} = {math.log(_KEYS):.2f}. Gradient: the Frobenius norm of the Jacobian of the weights "
        f"with respect to the scores. Means over {_QUERIES:,} queries."
    )
    return ReportTable("Dot products of random vectors", header, cells, note)


def _draw_softmax(lab: Laboratory, rows: Json) -> ReportPicture:
    figure, axes = subplots(3, height=3.0)
    widths = [row["d_k"] for row in rows]
    for panel, name, y_label in (
        (axes[0], "variance", "variance of the scores"),
        (axes[1], "entropy", "entropy of the softmax, nats"),
        (axes[2], "gradient", "gradient of the softmax (norm)"),
    ):
        lines = {label: (widths, [row[name + suffix] for row in rows])
                 for label, suffix in (("q·k", ""), ("q·k / √d_k", ", scaled"))}  # fmt: skip
        draw_lines(panel, lines, x_label="d_k", y_label=y_label)
        panel.set_xscale("log", base=2)
        panel.set_xticks(widths[::2], list(map(str, widths[::2])))
    axes[0].set_yscale("log")
    for panel in axes[1:]:
        panel.set_ylim(bottom=0)
    return ReportPicture(
        save_figure(figure, lab.folder / "softmax.png"),
        "Variance of the scores, entropy of their softmax and norm of its gradient by d_k, with and without scaling by "
        "1/√d_k.",
    )


def _training_table(
    models: dict[_ScoreVariant, list[TrainedModel]], losses: dict[_ScoreVariant, SampleStats], steps: dict[int, int],
    seed_plan: SeedPlan,
) -> ReportTable:  # fmt: skip
    three = decimal_formatter(3)
    rows = tuple(
        (f"d_k = {width}, {name}", steps[width], losses[width, name].format(three),
         seed_statistics([model.steps for model in trained]).format(decimal_formatter(0)),
         seed_statistics([model.validation_loss for model in trained]).format(three),
         sum(model.diverged for model in trained))
        for (width, name), trained in models.items()
    )  # fmt: skip
    header = ("scores", "compared step", "training loss at that step", "steps", "final validation loss", "diverged")
    note = (
        f"Losses in nats per token; the training loss is the mean over {_AVERAGED_STEPS} steps. The number of steps "
        f"in the same time differs between trainings. {seed_plan}"
    )
    return ReportTable("Training with and without scaling", header, rows, note)


def _draw_training(lab: Laboratory, models: dict[_ScoreVariant, list[TrainedModel]]) -> ReportPicture:
    figure, axes = subplots(len(TRAINED_KEY_WIDTHS), height=3.8)
    for panel, width in zip(axes, TRAINED_KEY_WIDTHS, strict=True):
        draw_training_losses(panel, {name: models[width, name] for name in _SCORES}, title=f"d_k = {width}")
    file = save_figure(figure, lab.folder / "training.png")
    return ReportPicture(file, "Training loss with and without scaling, for narrow and for wide keys (first seed).")


def _softmax_findings(rows: Json) -> tuple[str, ...]:
    ratios = [row["variance"] / row["d_k"] for row in rows]
    first, last = rows[0], rows[-1]
    steepest = max(rows, key=lambda row: row["gradient"])
    scaled = [row["gradient, scaled"] for row in rows]
    return (
        f"The variance of the dot products is {min(ratios):.2f} to {max(ratios):.2f} times d_k for d_k from "
        f"{first['d_k']} to {last['d_k']}; section 3.2.1 derives d_k.",
        f"At d_k = {last['d_k']} the largest weight of a softmax over {_KEYS} keys is "
        f"{100 * last['largest weight']:.0f} % without scaling and {100 * last['largest weight, scaled']:.0f} % with "
        f"scaling (entropy {last['entropy']:.2f} and {last['entropy, scaled']:.2f} nats).",
        f"Without scaling, the gradient through that softmax falls from {steepest['gradient']:.3f} at d_k = "
        f"{steepest['d_k']} to {last['gradient']:.3f} at d_k = {last['d_k']}; with scaling it stays between "
        f"{min(scaled):.3f} and {max(scaled):.3f}.",
    )


def _training_findings(losses: dict[_ScoreVariant, SampleStats], steps: dict[int, int]) -> list[str]:
    return [
        compare_variants(
            f"Training loss at d_k = {width} after {steps[width]} steps",
            {name: losses[width, name] for name in _SCORES},
            decimal_formatter(3),
        )
        for width in TRAINED_KEY_WIDTHS
    ]
