"""Section 3.2.1: why the dot products are divided by √d_k."""

import math
from typing import Any

import torch
from torch import Tensor

from dragoman.bench.measure import Measure
from dragoman.lab.drawing import draw_lines, panels, save
from dragoman.lab.laboratory import Laboratory, Trained
from dragoman.lab.repeats import Repeats, common_steps, compared, digits, draw_losses, line, over_seeds, repeats
from dragoman.lab.report import Json, Picture, Report, Table

TITLE = "Section 3.2.1: why 1/√d_k"
QUESTION = "What happens to the softmax, to its gradient and to training when dot products are not scaled?"
CLAIM = (
    "Section 3.2.1: the dot product of two vectors of independent numbers with variance 1 has variance d_k; for large "
    "d_k that is suspected to push the softmax to where its gradients are extremely small, and 1/√d_k counteracts it."
)

KEY_WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
QUERIES, KEYS = 500, 64  # drawn for each width; each query meets keys of its own
TRAINED_WIDTHS = (8, 256)  # small and large d_k
SCORES = {"scaled": "scaled_dot", "not scaled": "dot"}
HEADS = 2
LAST = 20  # steps before the one at which trainings are compared, whose losses are averaged


def run(lab: Laboratory) -> Report:
    """Measure random dot products and their softmax, then train with and without scaling."""
    rows = lab.kept("softmax", lambda: [softmax_row(width, lab.seed) for width in KEY_WIDTHS])
    plan = repeats(lab.budget_seconds, len(TRAINED_WIDTHS) * len(SCORES), lab.seed)
    models = {
        (width, name): [ordered(lab, width, name, seed, plan.seconds) for seed in plan.seeds]
        for width in TRAINED_WIDTHS
        for name in SCORES
    }
    steps = {width: common_steps(each for name in SCORES for each in models[width, name]) for width in TRAINED_WIDTHS}
    losses = {key: over_seeds([loss_at(model, steps[key[0]]) for model in found]) for key, found in models.items()}
    parts = (
        softmax_table(rows), draw_softmax(lab, rows), training_table(models, losses, steps, plan),
        draw_training(lab, models),
    )  # fmt: skip
    results = {"softmax": rows, "training": [training_result(key, models[key], losses[key]) for key in models]}
    found = (*softmax_findings(rows), *training_findings(losses, steps))
    return Report(found, parts, {**results, "seconds_each": plan.seconds, "seeds": list(plan.seeds)})


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


def loss_at(trained: Trained, step: int) -> float:
    """Return the mean training loss of the last steps up to this one.

    Both kinds read the same batches in the same order, but do not make as many steps in the same time.
    """
    steps, losses = line(trained, "train", "nll")
    before = [loss for at, loss in zip(steps, losses, strict=True) if step - LAST < at <= step]
    return math.inf if trained.diverged or not before else sum(before) / len(before)


def training_result(key: tuple[int, str], models: list[Trained], losses: Measure) -> dict[str, Json]:
    """Return what one setting came to, with its curves."""
    return {
        "d_k": key[0], "score": SCORES[key[1]], "training_loss": losses.to_json(),
        "validation_loss": over_seeds([model.loss for model in models]).to_json(),
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
    figure, axes = panels(3, height=3.0)
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
        panel.set_xticks(widths[::2], list(map(str, widths[::2])))
    axes[0].set_yscale("log")
    for panel in axes[1:]:
        panel.set_ylim(bottom=0)
    caption = "Variance of the scores, entropy of the softmax over them and size of its gradient against d_k, without "
    return Picture(save(figure, lab.folder / "softmax.png"), caption + "and with the scaling by 1/√d_k.")


def training_table(
    models: dict[tuple[int, str], list[Trained]], losses: dict[tuple[int, str], Measure], steps: dict[int, int],
    plan: Repeats,
) -> Table:  # fmt: skip
    """Return how the trainings went: after as many steps, and in the end."""
    three = digits(3)
    rows = tuple(
        (f"d_k = {width}, {name}", steps[width], losses[width, name].written(three),
         over_seeds([model.steps for model in trained]).written(digits(0)),
         over_seeds([model.loss for model in trained]).written(three), sum(model.diverged for model in trained))
        for (width, name), trained in models.items()
    )  # fmt: skip
    header = ("scores", "steps compared", "training loss then", "steps made", "validation loss in the end", "diverged")
    note = (
        f"Losses in nats per piece; the training loss is the mean of {LAST} steps. In the same time the "
        f"trainings do not make the same number of steps. {plan}"
    )
    return Table("Training with and without scaling", header, rows, note)


def draw_training(lab: Laboratory, models: dict[tuple[int, str], list[Trained]]) -> Picture:
    """Draw the training loss over the steps, a panel for each d_k."""
    figure, axes = panels(len(TRAINED_WIDTHS), height=3.8)
    for panel, width in zip(axes, TRAINED_WIDTHS, strict=True):
        draw_losses(panel, {name: models[width, name] for name in SCORES}, title=f"d_k = {width}")
    file = save(figure, lab.folder / "training.png")
    return Picture(file, "Training loss with and without scaling, for narrow and for wide keys (first seed).")


def softmax_findings(rows: Json) -> tuple[str, ...]:
    """Say what random dot products do to a softmax."""
    shares = [row["variance"] / row["d_k"] for row in rows]
    first, last = rows[0], rows[-1]
    steepest = max(rows, key=lambda row: row["gradient"])
    scaled = [row["gradient, scaled"] for row in rows]
    return (
        f"The variance of the dot products is {min(shares):.2f} to {max(shares):.2f} times d_k, from d_k = "
        f"{first['d_k']} to {last['d_k']}; section 3.2.1 derives d_k.",
        f"At d_k = {last['d_k']} a softmax over {KEYS} keys gives the heaviest of them "
        f"{100 * last['largest weight']:.0f} % of the weight without scaling and "
        f"{100 * last['largest weight, scaled']:.0f} % with it (entropy {last['entropy']:.2f} and "
        f"{last['entropy, scaled']:.2f} nats).",
        f"Without scaling the gradient through that softmax falls from {steepest['gradient']:.3f} at d_k = "
        f"{steepest['d_k']} to {last['gradient']:.3f} at d_k = {last['d_k']}; with scaling it stays between "
        f"{min(scaled):.3f} and {max(scaled):.3f}.",
    )


def training_findings(losses: dict[tuple[int, str], Measure], steps: dict[int, int]) -> list[str]:
    """Say which kind learns faster, step for step."""
    return [
        compared(
            f"Training loss at d_k = {width} after {steps[width]} steps",
            {name: losses[width, name] for name in SCORES},
            digits(3),
        )
        for width in TRAINED_WIDTHS
    ]
