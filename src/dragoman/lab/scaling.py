"""Section 3.2.1: why dot products are divided by √d_k."""

import math
from collections.abc import Mapping
from statistics import mean

import torch
from torch import Tensor

from dragoman.bench.stats import SampleStats
from dragoman.lab.comparison import TrainedComparison, train_comparison
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plan import Comparison
from dragoman.lab.plots import draw_lines, line_picture, save_picture, subplots
from dragoman.lab.seeds import (
    chance_sentence,
    compare_variants,
    metric_curve,
    over_seeds,
    seed_columns,
    seed_results,
    training_curves,
)
from dragoman.report import ExperimentReport, Json, ReportPicture, ReportTable

TITLE = "Section 3.2.1: why 1/√d_k"
QUESTION = "What happens to the softmax, to its gradient and to training if dot products are not scaled?"
CLAIM = (
    "section 3.2.1: the dot product of two vectors of independent numbers with variance 1 has variance d_k; for large "
    "d_k that is suspected to push the softmax into regions where its gradients are extremely small, and 1/√d_k "
    "counteracts it."
)

TRAINED_KEY_WIDTHS = (8, 256)  # a small and a large d_k
_KEY_WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
_QUERIES, _KEYS = 500, 64  # random vectors per width; each query has keys of its own
_SCORES = {"scaled": "scaled_dot", "not scaled": "dot"}
_HEADS = 2
_AVERAGED_STEPS = 20  # the last ones, over which the training loss is averaged


def _variant_name(key_width: int, scores: str) -> str:
    return f"d_k = {key_width}, {scores}"


def build_comparison() -> Comparison:
    """Return the trainings: narrow and wide keys, with and without scaling."""
    return Comparison(
        {
            _variant_name(width, name): {"model.heads": _HEADS, "model.key_width": width, "model.score": score}
            for width in TRAINED_KEY_WIDTHS
            for name, score in _SCORES.items()
        },
        equal="steps",
        optional=(tuple(_variant_name(min(TRAINED_KEY_WIDTHS), name) for name in _SCORES),),
    )


def run(lab: Laboratory) -> ExperimentReport:
    """Measure random dot products and their softmax, then train with and without scaling."""
    rows = lab.measure_once("softmax", lambda: [random_softmax_statistics(width, lab.seed) for width in _KEY_WIDTHS])
    findings, parts = _softmax_findings(rows), (_softmax_table(rows), _draw_softmax(lab, rows))
    trained = train_comparison(lab, build_comparison())
    if len(trained.learned) < 2:
        return trained.refusal(findings, parts, softmax=rows)
    losses = {name: _training_losses(models) for name, models in trained.learned_models.items()}
    results = {
        "softmax": rows, "comparison": trained.results(),
        "training": [
            {"variant": name, "training_loss": losses[name].to_json(), **seed_results(trained.models[name])}
            for name in losses
        ],
    }  # fmt: skip
    return ExperimentReport(
        (*findings, *trained.findings(), *_training_findings(losses, trained)),
        (*parts, *trained.parts(), _training_table(losses, trained), _draw_training(lab, trained)),
        results,
    )


def _training_losses(models: list[TrainedModel]) -> SampleStats:
    """Return the mean training loss of the last steps."""

    def loss(model: TrainedModel) -> float:
        _, losses = metric_curve(model, "train", "nll")
        return math.inf if model.diverged or not losses else mean(losses[-_AVERAGED_STEPS:])

    return over_seeds(models, loss)


def _training_findings(losses: Mapping[str, SampleStats], trained: TrainedComparison) -> list[str]:
    """Compare the scores with and without scaling for each width of which both models have learned."""
    findings = []
    for width in TRAINED_KEY_WIDTHS:
        names = {score: _variant_name(width, score) for score in _SCORES}
        if all(name in losses for name in names.values()):
            steps = trained.plan.steps[names["scaled"]]
            both = {score: losses[name] for score, name in names.items()}
            findings.append(compare_variants(f"Training loss at d_k = {width} after {steps:,} steps", both))
    return findings


def _training_table(losses: Mapping[str, SampleStats], trained: TrainedComparison) -> ReportTable:
    rows = [
        (name, f"{loss:,.3f}", *seed_columns(models := trained.models[name]), sum(model.diverged for model in models))
        for name, loss in losses.items()
    ]
    header = ("scores", "training loss", "steps", "final validation loss", "diverged")
    note = (
        f"Losses in nats per token; the training loss is the mean of the last {_AVERAGED_STEPS} steps. "
        f"{chance_sentence(len(trained.plan.seeds))}"
    )
    return ReportTable("Training with and without scaling", header, rows, note)


def _draw_training(lab: Laboratory, trained: TrainedComparison) -> ReportPicture:
    curves = training_curves(trained.learned_models)
    panels = {
        f"d_k = {width}": {score: curves[name] for score in _SCORES if (name := _variant_name(width, score)) in curves}
        for width in TRAINED_KEY_WIDTHS
    }
    return line_picture(
        lab.folder / "training.png",
        "Training loss with and without scaling, for narrow and for wide keys (first seed).",
        {title: lines for title, lines in panels.items() if lines},
        x_label="step", y_label="training loss, nats per token", height=3.8, markers=False,
    )  # fmt: skip


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
    caption = (
        "Variance of the scores, entropy of their softmax and norm of its gradient by d_k, with and without 1/√d_k."
    )
    return save_picture(figure, lab.folder / "softmax.png", caption)


def _softmax_findings(rows: Json) -> tuple[str, ...]:
    ratios = [row["variance"] / row["d_k"] for row in rows]
    first, last = rows[0], rows[-1]
    steepest = max(rows, key=lambda row: row["gradient"])
    scaled = [row["gradient, scaled"] for row in rows]
    return (
        f"The variance of the dot products is {min(ratios):.2f} to {max(ratios):.2f} times d_k for d_k from "
        f"{first['d_k']} to {last['d_k']}; section 3.2.1 derives a variance of d_k.",
        f"At d_k = {last['d_k']} the largest weight of a softmax over {_KEYS} keys is "
        f"{100 * last['largest weight']:.0f} % without scaling and {100 * last['largest weight, scaled']:.0f} % with "
        f"scaling (entropy {last['entropy']:.2f} and {last['entropy, scaled']:.2f} nats).",
        f"Without scaling, the gradient through that softmax falls from {steepest['gradient']:.3f} at d_k = "
        f"{steepest['d_k']} to {last['gradient']:.3f} at d_k = {last['d_k']}; with scaling it stays between "
        f"{min(scaled):.3f} and {max(scaled):.3f}.",
    )
