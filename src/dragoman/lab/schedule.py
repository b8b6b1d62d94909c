"""Section 5.3: the learning rate of equation 3, and the effect of its warm-up."""

import math
from collections.abc import Mapping
from typing import Any

from dragoman.bench.stats import SampleStats
from dragoman.lab.comparison import TrainedComparison, has_learned, train_comparison
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
from dragoman.recipe import TrainingConfig
from dragoman.report import ExperimentReport, ReportFormula, ReportPicture, ReportTable
from dragoman.training.schedule import schedule

TITLE = "Section 5.3: the learning rate and its warm-up"
QUESTION = "How does the learning rate change over time, and what happens without a warm-up?"
CLAIM = (
    "section 5.3: the learning rate rises linearly for 4,000 steps, then falls with the inverse square root of the "
    "step. The paper does not report training without warm-up."
)

EQUATION = ReportFormula(
    "<i>lrate</i> = <i>d</i><sub>model</sub><sup>−0.5</sup> · min(<i>step</i><sup>−0.5</sup>, "
    "<i>step</i> · <i>warmup_steps</i><sup>−1.5</sup>)",
    "(3)",
)
PAPER_SETTINGS = {  # d_model and warm-up
    f"d_model {width}, warm-up {warmup:,}": (width, warmup) for width, warmup in ((512, 4000), (512, 8000), (256, 4000))
}
_LAST_STEP, _STEP_INTERVAL = 20_000, 50  # of the plotted learning rates
_LAYERS, _WIDTH, _WARMUP = 4, 64, 100  # of the trained models
# Equation 3 is scaled to this peak; for so short a warm-up and so small a width, its own peak would be 0.0125. Two
# peaks were tried, in one training with warm-up each: at 0.0088 (equation 3 for 200 steps) the validation
# loss was 5.8 after 300 steps and rising; at 0.002 it was 4.6 after 200 steps and falling.
_PEAK_RATE = 0.002
# As in the paper: post-norm, no clipping.
COMMON_SETTINGS: dict[str, Any] = {
    "model.norm": "post", "model.layers": _LAYERS, "model.width": _WIDTH, "model.inner_width": 2 * _WIDTH,
    "training.batch_tokens": 512, "training.clip": 0.0,
}  # fmt: skip
_NOAM_WARMUP, _NOAM_COLD = f"equation 3, warm-up {_WARMUP}", "equation 3 without warm-up"
_CONSTANT_WARMUP = f"constant {_PEAK_RATE:.2g} after warm-up {_WARMUP}"
_CONSTANT_COLD = f"constant {_PEAK_RATE:.2g} from the first step"
_VARIANTS: dict[str, dict[str, Any]] = {
    _NOAM_WARMUP: {"training.schedule": "noam", "training.rate": _PEAK_RATE, "training.warmup": _WARMUP},
    # The same rates from step _WARMUP on:
    _NOAM_COLD: {"training.schedule": "noam", "training.rate": _PEAK_RATE * _WARMUP**0.5, "training.warmup": 1},
    _CONSTANT_WARMUP: {"training.rate": _PEAK_RATE, "training.warmup": _WARMUP, "training.schedule": "constant"},
    _CONSTANT_COLD: {"training.rate": _PEAK_RATE, "training.warmup": 1, "training.schedule": "constant"},
}


_LEARNING_STEPS = 600  # with warm-up; small batches and post-norm make it learn more slowly than the small model


def build_comparison() -> Comparison:
    """Return the trainings: equation 3 and a constant rate, with and without warm-up."""
    return Comparison(
        {name: {**COMMON_SETTINGS, **settings} for name, settings in _VARIANTS.items()},
        equal="steps",
        learning_steps=_LEARNING_STEPS,
        optional=((_CONSTANT_WARMUP, _CONSTANT_COLD),),
    )


def run(lab: Laboratory) -> ExperimentReport:
    """Draw the learning rate for the paper's settings, then train with and without warm-up."""
    parts = (
        EQUATION,
        line_picture(
            lab.folder / "rates.png",
            "Equation 3: the learning rate rises linearly during the warm-up, then falls with the inverse square root.",
            {"": {name: learning_rates(*setting) for name, setting in PAPER_SETTINGS.items()}},
            x_label="step", y_label="learning rate", height=4.0, markers=False,
        ),
        _peak_table(),
    )  # fmt: skip
    trained = train_comparison(lab, build_comparison())
    if not trained.learned:
        return trained.refusal(parts=parts)
    losses = {name: over_seeds(models, lambda model: model.validation_loss) for name, models in trained.models.items()}
    outcomes = {
        name: [training_outcome(model, trained.unigram_loss) for model in models]
        for name, models in trained.models.items()
    }
    trainings = [
        {"variant": name, "settings": {**COMMON_SETTINGS, **_VARIANTS[name]}, "outcomes": outcomes[name],
         **seed_results(models)}
        for name, models in trained.models.items()
    ]  # fmt: skip
    return ExperimentReport(
        _findings(losses, trained, outcomes),
        (*parts, *trained.parts(), _training_table(trained, outcomes), _draw_trainings(lab, trained)),
        {"trainings": trainings, "comparison": trained.results()},
    )


def training_outcome(model: TrainedModel, unigram_loss: float) -> str:
    """Describe the outcome of a training in a few words."""
    loss = model.validation_loss
    if not math.isfinite(loss):
        return "diverged, loss not finite"
    if loss >= unigram_loss:
        return "stuck, not better than unigram frequencies"
    if not has_learned(loss, unigram_loss):
        return "hardly better than unigram frequencies"
    _, losses = metric_curve(model, "validation", "loss")
    if loss > min(losses) + 0.5:
        return "ended more than 0.5 nats above its best loss"
    return "learned"


# Report


def learning_rates(width: int, warmup: int) -> tuple[list[float], list[float]]:
    """Return steps and the learning rates of equation 3."""
    rate = schedule(TrainingConfig(warmup=warmup), width)
    steps = [1, *range(_STEP_INTERVAL, _LAST_STEP + 1, _STEP_INTERVAL)]
    return [float(step) for step in steps], [rate(step) for step in steps]


def _peak_table() -> ReportTable:
    rows = []
    for name, (width, warmup) in PAPER_SETTINGS.items():
        rate = schedule(TrainingConfig(warmup=warmup), width)
        rows.append((name, warmup, f"{rate(warmup):.2e}", f"{rate(100_000):.2e}"))
    return ReportTable("Peaks of equation 3", ("setting", "peak at step", "peak rate", "rate at step 100,000"), rows)


def _training_table(trained: TrainedComparison, outcomes: Mapping[str, list[str]]) -> ReportTable:
    rows = [
        (name, *seed_columns(models), "; ".join(sorted(set(outcomes[name])))) for name, models in trained.models.items()
    ]
    note = (
        f"Losses in nats per token. {chance_sentence(len(trained.plan.seeds))} Post-norm, {_LAYERS} layers, width "
        f"{_WIDTH}, no clipping. Equation 3 is scaled to a peak of {_PEAK_RATE}; without warm-up it starts at "
        f"{_PEAK_RATE * _WARMUP**0.5:.2g}, falls with the inverse square root of the step, and equals the rate with "
        f"warm-up from step {_WARMUP} on. The unigram loss, that of predicting every token by its frequency, is "
        f"{trained.unigram_loss:.2f}."
    )
    header = ("learning rate", "steps", "final validation loss", "outcome")
    return ReportTable("Training with and without warm-up", header, rows, note)


def _draw_trainings(lab: Laboratory, trained: TrainedComparison) -> ReportPicture:
    figure, (axes,) = subplots(height=4.4)
    curves = training_curves(trained.models)
    draw_lines(axes, curves, x_label="step", y_label="training loss, nats per token", markers=False)
    axes.axhline(trained.unigram_loss, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylim(0, 1.6 * trained.unigram_loss)
    caption = "Training loss with and without warm-up (first seed). Dotted: the unigram loss."
    return save_picture(figure, lab.folder / "warmup.png", caption)


def _findings(
    losses: Mapping[str, SampleStats], trained: TrainedComparison, outcomes: Mapping[str, list[str]]
) -> tuple[str, ...]:
    compared = (
        ("Equation 3", _NOAM_WARMUP, _NOAM_COLD),
        (f"A constant rate of {_PEAK_RATE:g}", _CONSTANT_WARMUP, _CONSTANT_COLD),
    )
    final = (f"{name} – {' or '.join(sorted(set(words)))}" for name, words in outcomes.items())
    return (
        *(
            compare_variants(
                f"{rate}, validation loss after {trained.plan.steps[warm]:,} steps",
                {f"with {_WARMUP} steps of warm-up": losses[warm], "without": losses[cold]},
            )
            for rate, warm, cold in compared
            if {warm, cold} <= set(trained.learned)
        ),
        *trained.findings(),
        f"At the end (the unigram loss is {trained.unigram_loss:.2f}): {'; '.join(final)}.",
    )
