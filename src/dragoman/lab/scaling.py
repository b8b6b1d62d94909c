"""Section 3.2.1: why the dot products are divided by √d_k."""

import math
from typing import Any

import torch
from torch import Tensor

from dragoman.bench.stats import SampleStats
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plots import draw_lines, save_figure, subplots
from dragoman.lab.report import ExperimentReport, Json, Picture, ReportTable
from dragoman.lab.seeds import (
    SeedPlan,
    common_steps,
    compare_variants,
    decimal_formatter,
    draw_training_losses,
    metric_curve,
    plan_seeds,
    seed_statistics,
)

TITLE = "Section 3.2.1: why 1/√d_k"
QUESTION = "What happens to the softmax, to its gradient and to training when dot products are not scaled?"
CLAIM = (
    "Section 3.2.1: the dot product of two vectors of independent numbers with variance 1 has variance d_k; for large "
    "d_k that is suspected to push the softmax to where its gradients are extremely small, and 1/√d_k counteracts it."
)

_KEY_WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_QUERIES, _KEYS = 500, 64  # drawn for each width; each query meets keys of its own
TRAINED_KEY_WIDTHS = (8, 256)  # small and large d_k
_SCORES = {"scaled": "scaled_dot", "not scaled": "dot"}
_HEADS = 2
_AVERAGED_STEPS = 20  # steps before the one at which trainings are compared, whose losses are averaged


def run(lab: Laboratory) -> ExperimentReport:
    """Measure random dot products and their softmax, then train with and without scaling."""
    rows = lab.measure_once("softmax", lambda: [random_softmax_statistics(width, lab.seed) for width in _KEY_WIDTHS])
    plan = plan_seeds(lab.budget_seconds, len(TRAINED_KEY_WIDTHS) * len(_SCORES), lab.seed)
    models = {
        (width, name): [_train_key_width(lab, width, name, seed, plan.seconds) for seed in plan.seeds]
        for width in TRAINED_KEY_WIDTHS
        for name in _SCORES
    }
    steps = {
        width: common_steps(each for name in _SCORES for each in models[width, name]) for width in TRAINED_KEY_WIDTHS
    }
    losses = {
        key: seed_statistics([_training_loss_at(model, steps[key[0]]) for model in found])
        for key, found in models.items()
    }
    parts = (
        _softmax_table(rows), _draw_softmax(lab, rows), _training_table(models, losses, steps, plan),
        _draw_training(lab, models),
    )  # fmt: skip
    results = {"softmax": rows, "training": [_training_result(key, models[key], losses[key]) for key in models]}
    found = (*_softmax_findings(rows), *_training_findings(losses, steps))
    return ExperimentReport(found, parts, {**results, "seconds_each": plan.seconds, "seeds": list(plan.seeds)})


# Random vectors


def random_softmax_statistics(key_width: int, seed: int) -> dict[str, float]:
    """Draw queries and keys with mean 0 and variance 1; return what their dot products do to a softmax over keys."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(_QUERIES, key_width, 1, generator=generator)
    keys = torch.randn(_QUERIES, _KEYS, key_width, generator=generator)
    products = (keys @ queries)[..., 0].double()  # queries × keys
    scaled = products / math.sqrt(key_width)
    return {
        "d_k": key_width,
        "variance": float(products.var()),
        "variance, scaled": float(scaled.var()),
        **{f"{what}{mark}": value for mark, scores in (("", products), (", scaled", scaled))
           for what, value in softmax_statistics(scores).items()},
    }  # fmt: skip


def softmax_statistics(scores: Tensor) -> dict[str, float]:
    """Return, as means over the rows of scores, the entropy of the softmax, its largest weight and its gradient."""
    weights = scores.softmax(dim=-1)
    entropy = -(weights * scores.log_softmax(dim=-1)).sum(-1)
    return {
        "entropy": float(entropy.mean()),
        "largest weight": float(weights.amax(-1).mean()),
        "gradient": float(jacobian_norm(weights).mean()),
    }


def jacobian_norm(weights: Tensor) -> Tensor:
    """Return the length (Frobenius norm) of each row's softmax Jacobian, diag(p) − p pᵀ, without building it."""
    squares = weights.square()
    total = squares.sum(-1)
    return (total - 2 * (squares * weights).sum(-1) + total.square()).clamp_min(0).sqrt()


# Trainings


def _train_key_width(lab: Laboratory, width: int, name: str, seed: int, seconds: float) -> TrainedModel:
    """Train with keys of one width, scaled or not."""
    settings: dict[str, Any] = {"model.heads": _HEADS, "model.key_width": width, "model.score": _SCORES[name]}
    return lab.train_model(f"{_SCORES[name]}-{width}-{seed}", settings, seconds=seconds, seed=seed)


def _training_loss_at(trained: TrainedModel, step: int) -> float:
    """Return the mean training loss of the last steps up to this one.

    Both kinds read the same batches in the same order, but do not make as many steps in the same time.
    """
    steps, losses = metric_curve(trained, "train", "nll")
    before = [loss for at, loss in zip(steps, losses, strict=True) if step - _AVERAGED_STEPS < at <= step]
    return math.inf if trained.diverged or not before else sum(before) / len(before)


def _training_result(key: tuple[int, str], models: list[TrainedModel], losses: SampleStats) -> dict[str, Json]:
    """Return what one setting came to, with its curves."""
    return {
        "d_k": key[0], "score": _SCORES[key[1]], "training_loss": losses.to_json(),
        "validation_loss": seed_statistics([model.validation_loss for model in models]).to_json(),
        "steps": [model.steps for model in models], "diverged": [model.diverged for model in models],
        "training_curves": [metric_curve(model, "train", "nll") for model in models],
    }  # fmt: skip


# What is shown


def _softmax_table(rows: Json) -> ReportTable:
    """Return the measured row of each d_k."""
    header = (
        "d_k", "variance of q·k", "variance / d_k", "entropy", "entropy, scaled", "largest weight",
        "largest weight, scaled", "gradient", "gradient, scaled",
    )  # fmt: skip
    cells = tuple(
        (row["d_k"], row["variance"], row["variance"] / row["d_k"],
         *(row[what + mark] for what in ("entropy", "largest weight", "gradient") for mark in ("", ", scaled")))
        for row in rows
    )  # fmt: skip
    note = (
        f"Queries and keys with independent numbers of mean 0 and variance 1; softmax over {_KEYS} keys, whose entropy "
        f"is ln {_KEYS} = {math.log(_KEYS):.2f} at most. Gradient: the Frobenius norm of the Jacobian of the weights "
        f"with respect to the scores. Means over {_QUERIES:,} queries."
    )
    return ReportTable("Dot products of random vectors", header, cells, note)


def _draw_softmax(lab: Laboratory, rows: Json) -> Picture:
    """Draw variance, entropy and gradient over d_k."""
    figure, axes = subplots(3, height=3.0)
    widths = [row["d_k"] for row in rows]
    for panel, what, up in (
        (axes[0], "variance", "variance of the scores"),
        (axes[1], "entropy", "entropy of the softmax, nats"),
        (axes[2], "gradient", "gradient of the softmax (norm)"),
    ):
        lines = {name: (widths, [row[what + mark] for row in rows])
                 for name, mark in (("q·k", ""), ("q·k / √d_k", ", scaled"))}  # fmt: skip
        draw_lines(panel, lines, x_label="d_k", y_label=up)
        panel.set_xscale("log", base=2)
        panel.set_xticks(widths[::2], list(map(str, widths[::2])))
    axes[0].set_yscale("log")
    for panel in axes[1:]:
        panel.set_ylim(bottom=0)
    caption = "Variance of the scores, entropy of the softmax over them and size of its gradient against d_k, without "
    return Picture(save_figure(figure, lab.folder / "softmax.png"), caption + "and with the scaling by 1/√d_k.")


def _training_table(
    models: dict[tuple[int, str], list[TrainedModel]],
    losses: dict[tuple[int, str], SampleStats],
    steps: dict[int, int],
    seed_plan: SeedPlan,
) -> ReportTable:
    """Return how the trainings went: after as many steps, and in the end."""
    three = decimal_formatter(3)
    rows = tuple(
        (
            f"d_k = {width}, {name}",
            steps[width],
            losses[width, name].format(three),
            seed_statistics([model.steps for model in trained]).format(decimal_formatter(0)),
            seed_statistics([model.validation_loss for model in trained]).format(three),
            sum(model.diverged for model in trained),
        )
        for (width, name), trained in models.items()
    )
    header = ("scores", "steps compared", "training loss then", "steps made", "validation loss in the end", "diverged")
    note = (
        f"Losses in nats per piece; the training loss is the mean of {_AVERAGED_STEPS} steps. In the same time the "
        f"trainings do not make the same number of steps. {seed_plan}"
    )
    return ReportTable("Training with and without scaling", header, rows, note)


def _draw_training(lab: Laboratory, models: dict[tuple[int, str], list[TrainedModel]]) -> Picture:
    """Draw the training loss over the steps, a panel for each d_k."""
    figure, axes = subplots(len(TRAINED_KEY_WIDTHS), height=3.8)
    for panel, width in zip(axes, TRAINED_KEY_WIDTHS, strict=True):
        draw_training_losses(panel, {name: models[width, name] for name in _SCORES}, title=f"d_k = {width}")
    file = save_figure(figure, lab.folder / "training.png")
    return Picture(file, "Training loss with and without scaling, for narrow and for wide keys (first seed).")


def _softmax_findings(rows: Json) -> tuple[str, ...]:
    """Say what random dot products do to a softmax."""
    shares = [row["variance"] / row["d_k"] for row in rows]
    first, last = rows[0], rows[-1]
    steepest = max(rows, key=lambda row: row["gradient"])
    scaled = [row["gradient, scaled"] for row in rows]
    return (
        f"The variance of the dot products is {min(shares):.2f} to {max(shares):.2f} times d_k, from d_k = "
        f"{first['d_k']} to {last['d_k']}; section 3.2.1 derives d_k.",
        f"At d_k = {last['d_k']} a softmax over {_KEYS} keys gives the heaviest of them "
        f"{100 * last['largest weight']:.0f} % of the weight without scaling and "
        f"{100 * last['largest weight, scaled']:.0f} % with it (entropy {last['entropy']:.2f} and "
        f"{last['entropy, scaled']:.2f} nats).",
        f"Without scaling the gradient through that softmax falls from {steepest['gradient']:.3f} at d_k = "
        f"{steepest['d_k']} to {last['gradient']:.3f} at d_k = {last['d_k']}; with scaling it stays between "
        f"{min(scaled):.3f} and {max(scaled):.3f}.",
    )


def _training_findings(losses: dict[tuple[int, str], SampleStats], steps: dict[int, int]) -> list[str]:
    """Say which kind learns faster, step for step."""
    return [
        compare_variants(
            f"Training loss at d_k = {width} after {steps[width]} steps",
            {name: losses[width, name] for name in _SCORES},
            decimal_formatter(3),
        )
        for width in TRAINED_KEY_WIDTHS
    ]
