"""Section 5.3: the learning rate of equation 3, and what its warm-up is for."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from dragoman.bench.stats import SampleStats
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plots import draw_lines, save_figure, subplots
from dragoman.lab.report import ExperimentReport, Json, Picture, ReportTable
from dragoman.lab.seeds import (
    SeedPlan,
    compare_variants,
    decimal_formatter,
    draw_training_losses,
    last_common_validation_step,
    metric_curve,
    plan_seeds,
    seed_statistics,
    validation_loss_at,
)
from dragoman.model_files import read_tokenizers
from dragoman.recipe import TrainingConfig
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END
from dragoman.training.schedule import schedule

TITLE = "Section 5.3: the learning rate and its warm-up"
QUESTION = "How does the learning rate move, and what happens without a warm-up?"
CLAIM = (
    "Section 5.3: the learning rate rises in a straight line for 4,000 steps, then falls with the inverse square root "
    "of the step. What happens without the rise is not said."
)

PAPER_SETTINGS = {  # d_model and warm-up
    f"d_model {width}, warm-up {warmup:,}": (width, warmup) for width, warmup in ((512, 4000), (512, 8000), (256, 4000))
}
_LAST_STEP, _STEP_INTERVAL = 20_000, 50  # of the curves of the learning rate
_LAYERS, _WIDTH, _WARMUP = 4, 64, 100  # of the trainings
# Equation 3 is scaled down to this peak: for so short a warm-up and so small a width its own would be 0.0125. Of peaks,
# two were tried, each in one training with warm-up: at 0.0088 (equation 3's own for 200 steps) the validation loss was
# 5.8 after 300 steps and had been lower before; at 0.002 it was 4.6 after 200 and falling. No other was tried.
_PEAK_RATE = 0.002
# As the paper trains: norm after each sub-layer, no clipping.
COMMON_SETTINGS: dict[str, Any] = {
    "model.norm": "post", "model.layers": _LAYERS, "model.width": _WIDTH, "model.inner_width": 2 * _WIDTH,
    "training.batch_tokens": 512, "training.clip": 0.0, "training.validate_every": 50,
}  # fmt: skip
_NOAM_WARMUP, _NOAM_COLD = f"equation 3, warm-up {_WARMUP}", "equation 3 without its rise"
_CONSTANT_WARMUP, _CONSTANT_COLD = (
    f"constant {_PEAK_RATE:.2g} after warm-up {_WARMUP}",
    f"constant {_PEAK_RATE:.2g} from the first step",
)
_VARIANTS: dict[str, dict[str, Any]] = {
    _NOAM_WARMUP: {"training.rate": _PEAK_RATE, "training.warmup": _WARMUP},
    _NOAM_COLD: {
        "training.rate": _PEAK_RATE * _WARMUP**0.5,
        "training.warmup": 1,
    },  # the same curve, but for its beginning
    _CONSTANT_WARMUP: {"training.rate": _PEAK_RATE, "training.warmup": _WARMUP, "training.schedule": "constant"},
    _CONSTANT_COLD: {"training.rate": _PEAK_RATE, "training.warmup": 1, "training.schedule": "constant"},
}


def run(lab: Laboratory) -> ExperimentReport:
    """Draw the learning rate of the paper's settings, then train with and without a warm-up."""
    plan = plan_seeds(lab.budget_seconds, len(_VARIANTS), lab.seed)
    models = {
        name: [
            lab.train_model(f"{number}-{seed}", {**COMMON_SETTINGS, **settings}, seconds=plan.seconds, seed=seed)
            for seed in plan.seeds
        ]
        for number, (name, settings) in enumerate(_VARIANTS.items())
    }
    guessing = lab.measure_once("guessing", lambda: _unigram_loss(lab, models[_NOAM_WARMUP][0]))
    common = last_common_validation_step(model for trained in models.values() for model in trained)
    losses = {
        name: seed_statistics([validation_loss_at(model, common) for model in trained])
        for name, trained in models.items()
    }
    fates = {name: [training_outcome(model, guessing) for model in trained] for name, trained in models.items()}
    parts = (
        _draw_rates(lab), _peak_table(), _training_table(models, losses, common, fates, _training_note(guessing, plan)),
        _draw_trainings(lab, models, guessing),
    )  # fmt: skip
    results = {
        "guessing_loss": guessing,
        "trainings": [_result(name, models[name], losses[name], fates[name]) for name in models],
        "step_compared": common,
        "seconds_each": plan.seconds,
        "seeds": list(plan.seeds),
    }
    return ExperimentReport(_findings(losses, common, fates, guessing), parts, results)


# What came of a training


def _unigram_loss(lab: Laboratory, trained: TrainedModel) -> float:
    """Return the loss on the validation text of guessing every piece by its frequency in the training text."""
    recipe = trained.run.read_recipe()
    _, tokenizer = read_tokenizers(trained.run, recipe.tokenizer.joint)
    counts = _count_pieces(tokenizer, lab.corpus.pairs("train"))
    total = sum(counts.values()) + len(tokenizer)  # one more of each, so that nothing is impossible
    pieces = _count_pieces(tokenizer, lab.corpus.pairs("valid"))
    return -sum(
        count * math.log((counts[piece] + 1) / total) for piece, count in pieces.items()
    ) / sum(pieces.values())  # fmt: skip


def _count_pieces(tokenizer: Tokenizer, pairs: list[tuple[str, str]]) -> Counter[int]:
    """Count the pieces of all targets, with their ends."""
    return Counter(piece for _, target in pairs for piece in (*tokenizer.encode(target), END))


def training_outcome(trained: TrainedModel, unigram_loss: float) -> str:
    """Say in a word what became of a training."""
    loss = trained.validation_loss
    if not math.isfinite(loss):
        return "diverged, the loss no number any more"
    if loss >= unigram_loss:
        return "stuck, no better than guessing"
    _, losses = metric_curve(trained, "validation", "loss")
    if loss > min(losses) + 0.5:
        return "fell back by more than 0.5 nats"
    return "learned"


def _result(name: str, models: list[TrainedModel], losses: SampleStats, fates: list[str]) -> dict[str, Json]:
    """Return what one variant came to, with its curves."""
    return {
        "variant": name, "settings": {**COMMON_SETTINGS, **_VARIANTS[name]}, "fates": fates,
        "validation_loss_compared": losses.to_json(), "steps": [model.steps for model in models],
        "validation_loss": seed_statistics([model.validation_loss for model in models]).to_json(),
        "training_curves": [metric_curve(model, "train", "nll") for model in models],
    }  # fmt: skip


# What is shown


def learning_rates(width: int, warmup: int) -> tuple[list[float], list[float]]:
    """Return the steps and the learning rates of equation 3."""
    rate = schedule(TrainingConfig(warmup=warmup), width)
    steps = [1, *range(_STEP_INTERVAL, _LAST_STEP + 1, _STEP_INTERVAL)]
    return [float(step) for step in steps], [rate(step) for step in steps]


def _draw_rates(lab: Laboratory) -> Picture:
    """Draw the learning rate over the steps for three settings."""
    figure, (axes,) = subplots(height=4.0)
    lines = {name: learning_rates(*setting) for name, setting in PAPER_SETTINGS.items()}
    draw_lines(axes, lines, x_label="step", y_label="learning rate", markers=False)
    caption = "Equation 3: the learning rate rises in a straight line for warm-up steps, then falls with the inverse "
    return Picture(save_figure(figure, lab.folder / "rates.png"), caption + "square root of the step.")


def _peak_table() -> ReportTable:
    """Return where each curve has its peak."""
    rows = []
    for name, (width, warmup) in PAPER_SETTINGS.items():
        rate = schedule(TrainingConfig(warmup=warmup), width)
        rows.append((name, warmup, f"{rate(warmup):.2e}", f"{rate(100_000):.2e}"))
    return ReportTable(
        "Peaks of equation 3", ("setting", "peak at step", "peak rate", "rate at step 100,000"), tuple(rows)
    )


def _training_table(
    models: Mapping[str, list[TrainedModel]],
    losses: Mapping[str, SampleStats],
    common: int,
    fates: Mapping[str, list[str]],
    note: str,
) -> ReportTable:
    """Return how the trainings went: after as many steps, and in the end."""
    three = decimal_formatter(3)
    rows = tuple(
        (
            name,
            losses[name].format(three),
            seed_statistics([model.steps for model in trained]).format(decimal_formatter(0)),
            seed_statistics([model.validation_loss for model in trained]).format(three),
            "; ".join(sorted(set(fates[name]))),
        )
        for name, trained in models.items()
    )
    header = ("learning rate", f"validation loss by step {common}", "steps made", "validation loss in the end", "fate")
    return ReportTable("Training with and without warm-up", header, rows, note)


def _training_note(unigram_loss: float, seed_plan: SeedPlan) -> str:
    """Say how all of them were trained."""
    return (
        f"Losses in nats per piece. {seed_plan} Post-norm, {_LAYERS} layers, width {_WIDTH}, no clipping. "
        "Equation 3 is "
        f"scaled to a peak of {_PEAK_RATE}; without its rise it begins at {_PEAK_RATE * _WARMUP**0.5:.2g}, "
        "falls with the inverse "
        f"square root of the step, and is the same from step {_WARMUP} on. Guessing every piece by its frequency would "
        f"have a loss of {unigram_loss:.2f}."
    )


def _draw_trainings(lab: Laboratory, models: Mapping[str, list[TrainedModel]], unigram_loss: float) -> Picture:
    """Draw the training loss over the steps."""
    figure, (axes,) = subplots(height=4.4)
    draw_training_losses(axes, models)
    axes.axhline(unigram_loss, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylim(0, 1.6 * unigram_loss)
    file = save_figure(figure, lab.folder / "warmup.png")
    return Picture(file, "Training loss with and without warm-up (first seed). Dotted: guessing pieces by frequency.")


def _findings(
    losses: dict[str, SampleStats], common: int, fates: dict[str, list[str]], unigram_loss: float
) -> tuple[str, ...]:
    """Say what was found, in sentences."""
    rise = f"with {_WARMUP} steps of warm-up"
    told = [f"{name} – {' or '.join(sorted(set(fates[name])))}" for name in losses]
    return (
        compare_variants(
            f"Equation 3, validation loss by step {common}",
            {rise: losses[_NOAM_WARMUP], "without": losses[_NOAM_COLD]},
            decimal_formatter(3),
        ),
        compare_variants(
            f"A constant rate of {_PEAK_RATE:g}, validation loss by step {common}",
            {rise: losses[_CONSTANT_WARMUP], "without": losses[_CONSTANT_COLD]},
            decimal_formatter(3),
        ),
        f"In the end (guessing pieces by their frequency has a loss of {unigram_loss:.2f}): {'; '.join(told)}.",
    )
