"""Section 5.3: the learning rate of equation 3, and what its warm-up is for."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from dragoman.bench.measure import Measure
from dragoman.lab.drawing import draw_lines, panels, save
from dragoman.lab.laboratory import Laboratory, Trained
from dragoman.lab.repeats import (
    Repeats,
    common_validation,
    compared,
    digits,
    draw_losses,
    line,
    loss_at,
    over_seeds,
    repeats,
)
from dragoman.lab.report import Json, Picture, Report, Table
from dragoman.recipe import Training
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END
from dragoman.training.schedule import schedule

TITLE = "Section 5.3: the learning rate and its warm-up"
QUESTION = "How does the learning rate move, and what happens without a warm-up?"
CLAIM = (
    "Section 5.3: the learning rate rises in a straight line for 4,000 steps, then falls with the inverse square root "
    "of the step. What happens without the rise is not said."
)

SETTINGS = {  # d_model and warm-up
    f"d_model {width}, warm-up {warmup:,}": (width, warmup) for width, warmup in ((512, 4000), (512, 8000), (256, 4000))
}
LAST_STEP, EVERY = 20_000, 50  # of the curves of the learning rate
LAYERS, WIDTH, WARMUP = 4, 64, 100  # of the trainings
# Equation 3 is scaled down to this peak: for so short a warm-up and so small a width its own would be 0.0125. Of peaks,
# two were tried, each in one training with warm-up: at 0.0088 (equation 3's own for 200 steps) the validation loss was
# 5.8 after 300 steps and had been lower before; at 0.002 it was 4.6 after 200 and falling. No other was tried.
PEAK = 0.002
# As the paper trains: norm after each sub-layer, no clipping.
COMMON: dict[str, Any] = {
    "model.norm": "post", "model.layers": LAYERS, "model.width": WIDTH, "model.inner_width": 2 * WIDTH,
    "training.batch_tokens": 512, "training.clip": 0.0, "training.validate_every": 50,
}  # fmt: skip
WARM, COLD = f"equation 3, warm-up {WARMUP}", "equation 3 without its rise"
FLAT_WARM, FLAT_COLD = f"constant {PEAK:.2g} after warm-up {WARMUP}", f"constant {PEAK:.2g} from the first step"
VARIANTS: dict[str, dict[str, Any]] = {
    WARM: {"training.rate": PEAK, "training.warmup": WARMUP},
    COLD: {"training.rate": PEAK * WARMUP**0.5, "training.warmup": 1},  # the same curve, but for its beginning
    FLAT_WARM: {"training.rate": PEAK, "training.warmup": WARMUP, "training.schedule": "constant"},
    FLAT_COLD: {"training.rate": PEAK, "training.warmup": 1, "training.schedule": "constant"},
}


def run(lab: Laboratory) -> Report:
    """Draw the learning rate of the paper's settings, then train with and without a warm-up."""
    plan = repeats(lab.budget_seconds, len(VARIANTS), lab.seed)
    models = {
        name: [
            lab.trained(f"{number}-{seed}", {**COMMON, **settings}, seconds=plan.seconds, seed=seed)
            for seed in plan.seeds
        ]
        for number, (name, settings) in enumerate(VARIANTS.items())
    }
    guessing = lab.kept("guessing", lambda: frequency_loss(lab, models[WARM][0]))
    common = common_validation(model for trained in models.values() for model in trained)
    losses = {name: over_seeds([loss_at(model, common) for model in trained]) for name, trained in models.items()}
    fates = {name: [fate(model, guessing) for model in trained] for name, trained in models.items()}
    parts = (
        draw_rates(lab), peak_table(), training_table(models, losses, common, fates, note(guessing, plan)),
        draw_trainings(lab, models, guessing),
    )  # fmt: skip
    results = {
        "guessing_loss": guessing,
        "trainings": [result(name, models[name], losses[name], fates[name]) for name in models],
        "step_compared": common,
        "seconds_each": plan.seconds,
        "seeds": list(plan.seeds),
    }
    return Report(findings(losses, common, fates, guessing), parts, results)


# What came of a training


def frequency_loss(lab: Laboratory, trained: Trained) -> float:
    """Return the loss on the validation text of guessing every piece by its frequency in the training text."""
    recipe = trained.run.read_recipe()
    _, tokenizer = trained.run.read_tokenizers(recipe.tokenizer.joint)
    counts = counted(tokenizer, lab.material.pairs("train"))
    total = sum(counts.values()) + len(tokenizer)  # one more of each, so that nothing is impossible
    pieces = counted(tokenizer, lab.material.pairs("valid"))
    return -sum(
        count * math.log((counts[piece] + 1) / total) for piece, count in pieces.items()
    ) / sum(pieces.values())  # fmt: skip


def counted(tokenizer: Tokenizer, pairs: list[tuple[str, str]]) -> Counter[int]:
    """Count the pieces of all targets, with their ends."""
    return Counter(piece for _, target in pairs for piece in (*tokenizer.encode(target), END))


def fate(trained: Trained, guessing: float) -> str:
    """Say in a word what became of a training."""
    loss = trained.loss
    if not math.isfinite(loss):
        return "diverged, the loss no number any more"
    if loss >= guessing:
        return "stuck, no better than guessing"
    _, losses = line(trained, "validation", "loss")
    if loss > min(losses) + 0.5:
        return "fell back by more than 0.5 nats"
    return "learned"


def result(name: str, models: list[Trained], losses: Measure, fates: list[str]) -> dict[str, Json]:
    """Return what one variant came to, with its curves."""
    return {
        "variant": name, "settings": {**COMMON, **VARIANTS[name]}, "fates": fates,
        "validation_loss_compared": losses.to_json(), "steps": [model.steps for model in models],
        "validation_loss": over_seeds([model.loss for model in models]).to_json(),
        "training_curves": [line(model, "train", "nll") for model in models],
    }  # fmt: skip


# What is shown


def rates(width: int, warmup: int) -> tuple[list[float], list[float]]:
    """Return the steps and the learning rates of equation 3."""
    rate = schedule(Training(warmup=warmup), width)
    steps = [1, *range(EVERY, LAST_STEP + 1, EVERY)]
    return [float(step) for step in steps], [rate(step) for step in steps]


def draw_rates(lab: Laboratory) -> Picture:
    """Draw the learning rate over the steps for three settings."""
    figure, (axes,) = panels(height=4.0)
    lines = {name: rates(*setting) for name, setting in SETTINGS.items()}
    draw_lines(axes, lines, across="step", up="learning rate", markers=False)
    caption = "Equation 3: the learning rate rises in a straight line for warm-up steps, then falls with the inverse "
    return Picture(save(figure, lab.folder / "rates.png"), caption + "square root of the step.")


def peak_table() -> Table:
    """Return where each curve has its peak."""
    rows = []
    for name, (width, warmup) in SETTINGS.items():
        rate = schedule(Training(warmup=warmup), width)
        rows.append((name, warmup, f"{rate(warmup):.2e}", f"{rate(100_000):.2e}"))
    return Table("Peaks of equation 3", ("setting", "peak at step", "peak rate", "rate at step 100,000"), tuple(rows))


def training_table(
    models: Mapping[str, list[Trained]], losses: Mapping[str, Measure], common: int, fates: Mapping[str, list[str]],
    note: str,
) -> Table:  # fmt: skip
    """Return how the trainings went: after as many steps, and in the end."""
    three = digits(3)
    rows = tuple(
        (name, losses[name].written(three), over_seeds([model.steps for model in trained]).written(digits(0)),
         over_seeds([model.loss for model in trained]).written(three), "; ".join(sorted(set(fates[name]))))
        for name, trained in models.items()
    )  # fmt: skip
    header = ("learning rate", f"validation loss by step {common}", "steps made", "validation loss in the end", "fate")
    return Table("Training with and without warm-up", header, rows, note)


def note(guessing: float, plan: Repeats) -> str:
    """Say how all of them were trained."""
    return (
        f"Losses in nats per piece. {plan} Post-norm, {LAYERS} layers, width {WIDTH}, no clipping. Equation 3 is "
        f"scaled to a peak of {PEAK}; without its rise it begins at {PEAK * WARMUP**0.5:.2g}, falls with the inverse "
        f"square root of the step, and is the same from step {WARMUP} on. Guessing every piece by its frequency would "
        f"have a loss of {guessing:.2f}."
    )


def draw_trainings(lab: Laboratory, models: Mapping[str, list[Trained]], guessing: float) -> Picture:
    """Draw the training loss over the steps."""
    figure, (axes,) = panels(height=4.4)
    draw_losses(axes, models)
    axes.axhline(guessing, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylim(0, 1.6 * guessing)
    file = save(figure, lab.folder / "warmup.png")
    return Picture(file, "Training loss with and without warm-up (first seed). Dotted: guessing pieces by frequency.")


def findings(losses: dict[str, Measure], common: int, fates: dict[str, list[str]], guessing: float) -> tuple[str, ...]:
    """Say what was found, in sentences."""
    rise = f"with {WARMUP} steps of warm-up"
    told = [f"{name} – {' or '.join(sorted(set(fates[name])))}" for name in losses]
    return (
        compared(
            f"Equation 3, validation loss by step {common}", {rise: losses[WARM], "without": losses[COLD]}, digits(3)
        ),
        compared(
            f"A constant rate of {PEAK:g}, validation loss by step {common}",
            {rise: losses[FLAT_WARM], "without": losses[FLAT_COLD]},
            digits(3),
        ),
        f"In the end (guessing pieces by their frequency has a loss of {guessing:.2f}): {'; '.join(told)}.",
    )
