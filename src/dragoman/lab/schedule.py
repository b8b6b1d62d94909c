"""Section 5.3: the learning rate of equation 3, and the effect of its warm-up."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from dragoman.bench.stats import SampleStats
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plots import draw_lines, line_picture, save_picture, subplots
from dragoman.lab.seeds import (
    compare_variants,
    last_common_validation_step,
    metric_curve,
    over_seeds,
    plan_seeds,
    seed_columns,
    seed_results,
    train_variants,
    training_curves,
    validation_loss_at,
)
from dragoman.model_files import read_tokenizers
from dragoman.recipe import TrainingConfig
from dragoman.report import Cell, ExperimentReport, ReportPicture, ReportTable
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END
from dragoman.training.schedule import schedule

TITLE = "Section 5.3: the learning rate and its warm-up"
QUESTION = "How does the learning rate change over time, and what happens without a warm-up?"
CLAIM = (
    "section 5.3: the learning rate rises linearly for 4,000 steps, then falls with the inverse square root of the "
    "step. The paper does not report training without warm-up."
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
    "training.batch_tokens": 512, "training.clip": 0.0, "training.validate_every": 50,
}  # fmt: skip
_NOAM_WARMUP, _NOAM_COLD = f"equation 3, warm-up {_WARMUP}", "equation 3 without warm-up"
_CONSTANT_WARMUP = f"constant {_PEAK_RATE:.2g} after warm-up {_WARMUP}"
_CONSTANT_COLD = f"constant {_PEAK_RATE:.2g} from the first step"
_VARIANTS: dict[str, dict[str, Any]] = {
    _NOAM_WARMUP: {"training.rate": _PEAK_RATE, "training.warmup": _WARMUP},
    # The same rates from step _WARMUP on:
    _NOAM_COLD: {"training.rate": _PEAK_RATE * _WARMUP**0.5, "training.warmup": 1},
    _CONSTANT_WARMUP: {"training.rate": _PEAK_RATE, "training.warmup": _WARMUP, "training.schedule": "constant"},
    _CONSTANT_COLD: {"training.rate": _PEAK_RATE, "training.warmup": 1, "training.schedule": "constant"},
}


def run(lab: Laboratory) -> ExperimentReport:
    """Draw the learning rate for the paper's settings, then train with and without warm-up."""
    seed_plan = plan_seeds(lab.budget_seconds, len(_VARIANTS), lab.seed)
    variants = {
        name: (str(number), {**COMMON_SETTINGS, **settings})
        for number, (name, settings) in enumerate(_VARIANTS.items())
    }
    models = train_variants(lab, variants, seed_plan)
    unigram_loss = lab.measure_once("unigram loss", lambda: _unigram_loss(lab, models[_NOAM_WARMUP][0]))
    step = last_common_validation_step(model for trained in models.values() for model in trained)
    losses, outcomes, rows, trainings = {}, {}, list[tuple[Cell, ...]](), []
    for name, trained in models.items():
        losses[name] = over_seeds(trained, lambda model: validation_loss_at(model, step))
        outcomes[name] = [training_outcome(model, unigram_loss) for model in trained]
        rows.append((name, f"{losses[name]:,.3f}", *seed_columns(trained), "; ".join(sorted(set(outcomes[name])))))
        settings, loss = {**COMMON_SETTINGS, **_VARIANTS[name]}, losses[name].to_json()
        variant = {"variant": name, "settings": settings, "outcomes": outcomes[name], "validation_loss_compared": loss}
        trainings.append({**variant, **seed_results(trained)})
    header = ("learning rate", f"validation loss at step {step}", "steps", "final validation loss", "outcome")
    note = (
        f"Losses in nats per token. {seed_plan} Post-norm, {_LAYERS} layers, width {_WIDTH}, no clipping. Equation 3 "
        f"is scaled to a peak of {_PEAK_RATE}; without warm-up it starts at {_PEAK_RATE * _WARMUP**0.5:.2g}, falls "
        f"with the inverse square root of the step, and equals the rate with warm-up from step {_WARMUP} on. The "
        f"unigram loss, that of predicting every token by its frequency, is {unigram_loss:.2f}."
    )
    parts = (
        line_picture(
            lab.folder / "rates.png",
            "Equation 3: the learning rate rises linearly during the warm-up, then falls with the inverse square root.",
            {"": {name: learning_rates(*setting) for name, setting in PAPER_SETTINGS.items()}},
            x_label="step", y_label="learning rate", height=4.0, markers=False,
        ),
        _peak_table(),
        ReportTable("Training with and without warm-up", header, rows, note),
        _draw_trainings(lab, models, unigram_loss),
    )  # fmt: skip
    results = {
        "unigram_loss": unigram_loss, "trainings": trainings, "compared_step": step,
        "seconds_each": seed_plan.seconds, "seeds": list(seed_plan.seeds),
    }  # fmt: skip
    return ExperimentReport(_findings(losses, step, outcomes, unigram_loss), parts, results)


# Outcomes of trainings


def _unigram_loss(lab: Laboratory, model: TrainedModel) -> float:
    """Return the validation loss of predicting every token by its frequency in the training text."""
    recipe = model.run.read_recipe()
    _, tokenizer = read_tokenizers(model.run, recipe.tokenizer.joint)
    counts = _count_tokens(tokenizer, lab.corpus.pairs("train"))
    total = sum(counts.values()) + len(tokenizer)  # add-one smoothing
    tokens = _count_tokens(tokenizer, lab.corpus.pairs("valid"))
    loss = -sum(count * math.log((counts[token] + 1) / total) for token, count in tokens.items())
    return loss / sum(tokens.values())


def _count_tokens(tokenizer: Tokenizer, pairs: list[tuple[str, str]]) -> Counter[int]:
    return Counter(token for _, target in pairs for token in (*tokenizer.encode(target), END))


def training_outcome(model: TrainedModel, unigram_loss: float) -> str:
    """Describe the outcome of a training in a few words."""
    loss = model.validation_loss
    if not math.isfinite(loss):
        return "diverged, loss not finite"
    if loss >= unigram_loss:
        return "stuck, not better than unigram frequencies"
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


def _draw_trainings(lab: Laboratory, models: Mapping[str, list[TrainedModel]], unigram_loss: float) -> ReportPicture:
    figure, (axes,) = subplots(height=4.4)
    curves = training_curves(models)
    draw_lines(axes, curves, x_label="step", y_label="training loss, nats per token", markers=False)
    axes.axhline(unigram_loss, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylim(0, 1.6 * unigram_loss)
    caption = "Training loss with and without warm-up (first seed). Dotted: the unigram loss."
    return save_picture(figure, lab.folder / "warmup.png", caption)


def _findings(
    losses: Mapping[str, SampleStats], step: int, outcomes: Mapping[str, list[str]], unigram_loss: float
) -> tuple[str, ...]:
    compared = (
        ("Equation 3", _NOAM_WARMUP, _NOAM_COLD),
        (f"A constant rate of {_PEAK_RATE:g}", _CONSTANT_WARMUP, _CONSTANT_COLD),
    )
    final = (f"{name} – {' or '.join(sorted(set(words)))}" for name, words in outcomes.items())
    return (
        *(
            compare_variants(
                f"{rate}, validation loss at step {step}",
                {f"with {_WARMUP} steps of warm-up": losses[warm], "without": losses[cold]},
            )
            for rate, warm, cold in compared
        ),
        f"At the end (the unigram loss is {unigram_loss:.2f}): {'; '.join(final)}.",
    )
