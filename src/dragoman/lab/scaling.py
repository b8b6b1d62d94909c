"""Section 3.2.1: why the dot products are divided by √d_k."""

import math
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from dragoman.bench.measure import Measure
from dragoman.lab.drawing import draw_lines, panels, save
from dragoman.lab.laboratory import Laboratory, Trained
from dragoman.lab.repeats import Repeats, compared, digits, line, over_seeds, repeats
from dragoman.lab.report import Json, Picture, Report, Table
from dragoman.training.journal import running_mean

TITLE = "Section 3.2.1: why 1/√d_k"
QUESTION = "What happens to the softmax, to its gradient and to training when dot products are not scaled?"

KEY_WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
QUERIES, KEYS = 500, 64  # drawn for each width; each query meets keys of its own
TRAINED_WIDTHS = (8, 256)  # small and large d_k
SCORES = {"scaled": "scaled_dot", "not scaled": "dot"}
HEADS = 2


def run(lab: Laboratory) -> Report:
    """Measure random dot products and their softmax, then train with and without scaling."""
    rows = lab.kept("softmax", lambda: [softmax_row(width, lab.seed) for width in KEY_WIDTHS])
    plan = repeats(lab.budget_seconds, len(TRAINED_WIDTHS) * len(SCORES), lab.seed)
    models = {
        (width, name): [ordered(lab, width, name, seed, plan.seconds) for seed in plan.seeds]
        for width in TRAINED_WIDTHS
        for name in SCORES
    }
    losses = {key: over_seeds([last_loss(model) for model in trained]) for key, trained in models.items()}
    parts = (
        softmax_table(rows), draw_softmax(lab, rows), training_table(models, losses, plan), draw_training(lab, models),
    )  # fmt: skip
    results = {"softmax": rows, "training": [training_result(key, models[key], losses[key]) for key in models]}
    return Report(findings(rows, losses), parts, {**results, "seconds_each": plan.seconds, "seeds": list(plan.seeds)})


# Random vectors


def softmax_row(key_width: int, seed: int) -> dict[str, float]:
    """Draw queries and keys with mean 0 and variance 1; return what their dot products do to a softmax over keys."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(QUERIES, key_width, 1, generator=generator)
    keys = torch.randn(QUERIES, KEYS, key_width, generator=generator)
    products = (keys @ queries)[..., 0].double()  # queries × keys
    scaled = products / math.sqrt(key_width)
    return {
        "d_k": key_width,
        "variance": float(products.var()),
        "variance, scaled": float(scaled.var()),
        **{f"{what}{mark}": value for mark, scores in (("", products), (", scaled", scaled))
           for what, value in sharpness(scores).items()},
    }  # fmt: skip


def sharpness(scores: Tensor) -> dict[str, float]:
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


def ordered(lab: Laboratory, width: int, name: str, seed: int, seconds: float) -> Trained:
    """Train with keys of one width, scaled or not."""
    settings: dict[str, Any] = {"model.heads": HEADS, "model.key_width": width, "model.score": SCORES[name]}
    return lab.trained(f"{SCORES[name]}-{width}-{seed}", settings, seconds=seconds, seed=seed)


def last_loss(trained: Trained) -> float:
    """Return the validation loss at the end."""
    return math.log(trained.perplexity) if math.isfinite(trained.perplexity) else math.inf


def training_result(key: tuple[int, str], models: list[Trained], losses: Measure) -> dict[str, Json]:
    """Return what one setting came to, with its curves."""
    return {
        "d_k": key[0], "score": SCORES[key[1]], "validation_loss": losses.to_json(),
        "steps": [model.steps for model in models], "diverged": [model.diverged for model in models],
        "training_curves": [line(model, "train", "nll") for model in models],
    }  # fmt: skip


# What is shown


def softmax_table(rows: Json) -> Table:
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
        f"Queries and keys with independent numbers of mean 0 and variance 1; softmax over {KEYS} keys, whose entropy "
        f"is ln {KEYS} = {math.log(KEYS):.2f} at most. Gradient: the Frobenius norm of the Jacobian of the weights "
        f"with respect to the scores. Means over {QUERIES:,} queries."
    )
    return Table("Dot products of random vectors", header, cells, note)


def draw_softmax(lab: Laboratory, rows: Json) -> Picture:
    """Draw variance, entropy and gradient over d_k."""
    figure, axes = panels(3, width=3.9, height=3.6)
    widths = [row["d_k"] for row in rows]
    for panel, what, up in (
        (axes[0], "variance", "variance of the scores"),
        (axes[1], "entropy", "entropy of the softmax, nats"),
        (axes[2], "gradient", "gradient of the softmax (norm)"),
    ):
        lines = {name: (widths, [row[what + mark] for row in rows])
                 for name, mark in (("q·k", ""), ("q·k / √d_k", ", scaled"))}  # fmt: skip
        draw_lines(panel, lines, across="d_k", up=up)
        panel.set_xscale("log", base=2)
    for panel in (axes[0], axes[2]):
        panel.set_yscale("log")
    caption = "Variance of the scores, entropy of the softmax over them and size of its gradient against d_k, without "
    return Picture(save(figure, lab.folder / "softmax.png"), caption + "and with the scaling by 1/√d_k.")


def training_table(models: dict[tuple[int, str], list[Trained]], losses: dict[tuple[int, str], Measure],
                   plan: Repeats) -> Table:  # fmt: skip
    """Return how the trainings ended."""
    three = digits(3)
    rows = tuple(
        (f"d_k = {width}, {name}", losses[width, name].written(three),
         over_seeds([model.steps for model in trained]).written(digits(0)), sum(model.diverged for model in trained))
        for (width, name), trained in models.items()
    )  # fmt: skip
    header = ("scores", "validation loss, nats per piece", "steps", "diverged")
    return Table("Training with and without scaling", header, rows, str(plan))


def draw_training(lab: Laboratory, models: dict[tuple[int, str], list[Trained]]) -> Picture:
    """Draw the training loss over the steps, a panel for each d_k."""
    figure, axes = panels(len(TRAINED_WIDTHS), width=5.4, height=4.0)
    for panel, width in zip(axes, TRAINED_WIDTHS, strict=True):
        draw_losses(panel, {name: models[width, name] for name in SCORES}, f"d_k = {width}")
    file = save(figure, lab.folder / "training.png")
    return Picture(file, "Training loss with and without scaling, for narrow and for wide keys (first seed).")


def draw_losses(axes: Axes, models: dict[str, list[Trained]], title: str) -> None:
    """Draw the training loss of the first seed of each variant."""
    lines = {}
    for name, trained in models.items():
        steps, values = line(trained[0], "train", "nll")
        lines[name] = steps, running_mean(values)
    draw_lines(axes, lines, title=title, across="step", up="training loss, nats per piece", markers=False)


def findings(rows: Json, losses: dict[tuple[int, str], Measure]) -> tuple[str, ...]:
    """Say what was found, in sentences."""
    shares = [row["variance"] / row["d_k"] for row in rows]
    first, last = rows[0], rows[-1]
    return (
        f"The variance of the dot products is {min(shares):.2f} to {max(shares):.2f} times d_k, from d_k = "
        f"{first['d_k']} to {last['d_k']}; section 3.2.1 derives d_k.",
        f"At d_k = {last['d_k']} a softmax over {KEYS} keys has an entropy of {last['entropy']:.2f} nats without "
        f"scaling and {last['entropy, scaled']:.2f} with it, and gives its favourite {last['largest weight']:.0%} and "
        f"{last['largest weight, scaled']:.0%} of the weight.",
        f"The gradient through that softmax is {last['gradient, scaled'] / last['gradient']:.1f} times as large with "
        f"scaling at d_k = {last['d_k']}, and {first['gradient, scaled'] / first['gradient']:.1f} times at d_k = "
        f"{first['d_k']}.",
        *(
            compared(
                f"Validation loss at d_k = {width}", {name: losses[width, name] for name in SCORES}, digits(3)
            )
            for width in TRAINED_WIDTHS
        ),
    )  # fmt: skip
