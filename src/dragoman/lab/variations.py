"""Table 3: what each choice of the Transformer is worth, one changed at a time, scaled down to the time there is."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from dragoman.lab.architectures import counted_operations
from dragoman.lab.drawing import COLOURS, label, panels, save
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.report import Cell, Json, Picture, Report, Table

TITLE = "Table 3: variations of the Transformer"
QUESTION = "What do perplexity and BLEU become when one choice of the paper is changed and all others stay?"

BASE: dict[str, Any] = {
    "tokenizer.size": 1500, "model.layers": 2, "model.width": 64, "model.inner_width": 256, "model.heads": 4,
    "training.label_smoothing": 0.1, "training.validate_every": 1_000_000, "training.checkpoint_every": 50,
}  # fmt: skip


@dataclass(frozen=True)
class Variation:
    """A row of the table: what is changed, and in which group of rows."""

    group: str
    name: str
    settings: Mapping[str, Any]


VARIATIONS = (
    Variation("", "base", {}),
    Variation("A", "1 head", {"model.heads": 1}),
    Variation("A", "2 heads", {"model.heads": 2}),
    Variation("A", "8 heads", {"model.heads": 8}),
    Variation("A", "16 heads", {"model.heads": 16}),
    Variation("B", "keys of 4 (d_k)", {"model.key_width": 4}),
    Variation("B", "keys of 8 (d_k)", {"model.key_width": 8}),
    Variation("C", "1 layer (N)", {"model.layers": 1}),
    Variation("C", "4 layers (N)", {"model.layers": 4}),
    Variation("C", "width 32 (d_model)", {"model.width": 32}),
    Variation("C", "width 128 (d_model)", {"model.width": 128}),
    Variation("C", "inner width 128 (d_ff)", {"model.inner_width": 128}),
    Variation("C", "inner width 512 (d_ff)", {"model.inner_width": 512}),
    Variation("D", "no dropout", {"model.dropout": 0.0}),
    Variation("D", "dropout 0.2", {"model.dropout": 0.2}),
    Variation("D", "no label smoothing", {"training.label_smoothing": 0.0}),
    Variation("D", "label smoothing 0.2", {"training.label_smoothing": 0.2}),
    Variation("E", "learned positions", {"model.positions": "learned"}),
)
GROUPS = {
    "": "", "A": "heads, of the same width in all", "B": "narrower keys", "C": "size", "D": "regularisation",
    "E": "positions",
}  # fmt: skip
SEEDS = 3
OVERHEAD_SECONDS = 5.0  # beside the training of a model
LEAST_STEPS = 20
PILOT_STEPS = 60


def run(lab: Laboratory) -> Report:
    """Train every variation with several seeds for the same number of steps."""
    steps = lab.kept("steps", lambda: affordable_steps(lab))
    pairs = lab.material.pairs("test")
    rows = {each.name: [one(lab, each, steps, number, pairs) for number in range(SEEDS)] for each in VARIATIONS}
    parts = (explanation(steps), table(rows), *draw(lab, rows))
    return Report(findings(rows), parts, {"steps": steps, "rows": rows})


def explanation(steps: int) -> str:
    """Say what was equal, and what a difference is measured against."""
    return (
        f"Each row is {SEEDS} models of different seeds, trained for {steps:,} steps with one choice changed. Numbers "
        "are means ± the standard deviation over the seeds. A row is called different from the base only if the two "
        "means are further apart than twice the standard error of their difference."
    )


def affordable_steps(lab: Laboratory) -> int:
    """Return how many steps all models can make in the time there is, by the speed of a short training."""
    began_at = time.monotonic()
    pilot = lab.trained("pilot", {**BASE, "training.steps": PILOT_STEPS}, seconds=lab.budget_seconds)
    vocabulary = len(pilot.translator.target_tokenizer)
    left = lab.budget_seconds - (time.monotonic() - began_at) - SEEDS * len(VARIATIONS) * OVERHEAD_SECONDS
    operations = {each.name: operations_of(lab, each, vocabulary) for each in VARIATIONS}
    costs = [max(1.0, operations[each.name] / operations["base"]) for each in VARIATIONS]
    seconds_per_step = pilot.seconds / max(pilot.steps, 1)
    return max(LEAST_STEPS, int(left / (SEEDS * sum(costs) * seconds_per_step)))


def operations_of(lab: Laboratory, variation: Variation, vocabulary: int) -> float:
    """Count what a target token costs in a variation."""
    settings = {**BASE, **variation.settings}
    how = lab.recipe(lab.place("none"), settings, 1.0, lab.seed, lab.material).model
    return counted_operations(how, vocabulary, vocabulary)


def one(
    lab: Laboratory, variation: Variation, steps: int, number: int, pairs: Sequence[tuple[str, str]]
) -> dict[str, Json]:
    """Train and score one model."""
    name = f"{variation.name} {number + 1}"
    settings = {**BASE, **variation.settings, "training.steps": steps}

    def measure() -> Json:
        place = name.replace(" ", "-").replace("(", "").replace(")", "")
        trained = lab.trained(place, settings, seconds=lab.budget_seconds, seed=lab.seed + number)
        return {
            "perplexity": trained.perplexity, "bleu": trained.bleu(pairs), "parameters": trained.parameters,
            "seconds": trained.seconds, "seed": lab.seed + number, "settings": settings,
        }  # fmt: skip

    found: dict[str, Json] = lab.kept(name, measure, settings=settings)
    return found


# What is shown


def spread(rows: Sequence[dict[str, Json]], key: str) -> tuple[float, float]:
    """Return the mean and the standard deviation of a number over the seeds."""
    values = [row[key] for row in rows]
    return mean(values), stdev(values)


def differs(ours: tuple[float, float], base: tuple[float, float], count: int = SEEDS) -> bool:
    """Say whether two means are further apart than twice the standard error of their difference."""
    error: float = ((ours[1] ** 2 + base[1] ** 2) / count) ** 0.5
    return abs(ours[0] - base[0]) > 2 * error


def table(rows: Mapping[str, Sequence[dict[str, Json]]]) -> Table:
    """Return the paper's table 3 for this corpus."""
    lines: list[tuple[Cell, ...]] = []
    for each in VARIATIONS:
        ours = rows[each.name]
        perplexity, points = spread(ours, "perplexity"), spread(ours, "bleu")
        verdict = "" if each.name == "base" else verdict_of(perplexity, spread(rows["base"], "perplexity"))
        seconds = f"{mean(row['seconds'] for row in ours):.0f}"
        numbers = (f"{perplexity[0]:.3f} ± {perplexity[1]:.3f}", f"{points[0]:.1f} ± {points[1]:.1f}")
        lines.append((each.group, each.name, *numbers, ours[0]["parameters"], seconds, verdict))
    header = ("row", "change", "perplexity", "BLEU", "parameters", "seconds", "perplexity against base")
    return Table("Variations, one change at a time", header, tuple(lines))


def verdict_of(ours: tuple[float, float], base: tuple[float, float]) -> str:
    """Say how a perplexity compares."""
    if not differs(ours, base):
        return "no difference beyond noise"
    return "better" if ours[0] < base[0] else "worse"


def draw(lab: Laboratory, rows: Mapping[str, Sequence[dict[str, Json]]]) -> tuple[Picture]:
    """Draw the perplexity of every row, each seed a point, with the base's spread behind them."""
    figure, (axes,) = panels(width=9, height=6)
    names = [each.name for each in reversed(VARIATIONS)]
    middle, width = spread(rows["base"], "perplexity")
    axes.axvspan(middle - width, middle + width, color="#c9ccd1", alpha=0.5)
    for place, name in enumerate(names):
        colour = COLOURS[list(GROUPS).index(next(each.group for each in VARIATIONS if each.name == name))]
        values = [row["perplexity"] for row in rows[name]]
        axes.plot(values, [place] * len(values), "o", color=colour, markersize=4)
        axes.plot([mean(values)], [place], "|", color=colour, markersize=14)
    axes.set_yticks(range(len(names)), names)
    label(axes, across="validation perplexity per piece", up="")
    caption = "Perplexity of each variation: a point a seed, a line their mean; the grey band is the base's spread."
    return (Picture(save(figure, lab.folder / "variations.png"), caption),)


def findings(rows: Mapping[str, Sequence[dict[str, Json]]]) -> tuple[str, ...]:
    """Say which changes made a difference, group by group."""
    base = spread(rows["base"], "perplexity")
    said = [f"The base has perplexity {base[0]:.3f} ± {base[1]:.3f} and BLEU {spread(rows['base'], 'bleu')[0]:.1f}."]
    for group, what in list(GROUPS.items())[1:]:
        verdicts = []
        for each in (row for row in VARIATIONS if row.group == group):
            ours = spread(rows[each.name], "perplexity")
            verdicts.append(f"{each.name}: {verdict_of(ours, base)} ({ours[0] - base[0]:+.3f})")
        said.append(f"({group}, {what}) {'; '.join(verdicts)}.")
    return tuple(said)
