"""Table 3: what each choice of the Transformer is worth, one changed at a time, scaled down to the time there is."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from dragoman.lab.architectures import counted_operations
from dragoman.lab.drawing import COLOURS, label, panels, save
from dragoman.lab.laboratory import Laboratory, Trained
from dragoman.lab.report import Cell, Json, Picture, Report, Table
from dragoman.tasks.train import cores

TITLE = "Table 3: variations of the Transformer"
QUESTION = "What do perplexity and BLEU become when one choice of the paper is changed and all others stay?"
CLAIM = (
    "Section 6.2: one head is 0.9 BLEU worse than the best number of them, and too many are worse again (A); narrower "
    "keys hurt (B); bigger models are better (C); dropout helps a lot against over-fitting (D); learned positions give "
    "nearly the same as sinusoids (E)."
)

BASE: dict[str, Any] = {
    "model.layers": 2, "model.width": 64, "model.inner_width": 256, "model.heads": 4, "training.schedule": "linear",
    "training.batch_tokens": 512, "training.validate_every": 1_000_000, "training.average": 1,
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
    Variation("D", "dropout 0.1", {"model.dropout": 0.1}),
    Variation("D", "dropout 0.3", {"model.dropout": 0.3}),
    Variation("D", "no label smoothing", {"training.label_smoothing": 0.0}),
    Variation("D", "label smoothing 0.2", {"training.label_smoothing": 0.2}),
    Variation("E", "learned positions", {"model.positions": "learned"}),
)
GROUPS = {
    "": "", "A": "heads, of the same width in all", "B": "narrower keys", "C": "size", "D": "regularisation",
    "E": "positions",
}  # fmt: skip
SEEDS = 3
STUDENT = 2.78  # standard errors: Student's t for 2 · (3 − 1) degrees of freedom at 95 %
OVERHEAD_SECONDS = 9.0  # beside the training of a model: to start, to prepare the text, to translate
LEAST_STEPS = 20
PILOT_STEPS = 60


def run(lab: Laboratory) -> Report:
    """Train every variation with several seeds for the same number of steps."""
    steps = lab.kept("steps", lambda: affordable_steps(lab))
    pairs = lab.material.pairs("test")
    orders = {
        f"{folder_name(each)}-{number + 1}": ({**BASE, **each.settings, "training.steps": steps}, lab.seed + number)
        for number in range(SEEDS)
        for each in VARIATIONS
    }
    trained = lab.trained_together(orders)
    rows = {
        each.name: [one(lab, f"{folder_name(each)}-{number + 1}", orders, trained, pairs) for number in range(SEEDS)]
        for each in VARIATIONS
    }
    parts = (explanation(steps), table(rows), *draw(lab, rows))
    return Report(findings(rows), parts, {"steps": steps, "rows": rows})


def folder_name(variation: Variation) -> str:
    """Return a name without spaces."""
    return variation.name.replace(" ", "-").replace("(", "").replace(")", "")


def explanation(steps: int) -> str:
    """Say what was equal, and what a difference is measured against."""
    return (
        f"Each row is {SEEDS} models of different seeds, trained for {steps:,} steps with one choice changed. Numbers "
        "are means ± the standard deviation over the seeds. A row is called better or worse than the base only if the "
        f"means are further apart than {STUDENT} standard errors of their difference, which chance alone does once in "
        f"twenty comparisons; there are {len(VARIATIONS) - 1} of them. Perplexity with label smoothing is of the right "
        "piece alone, without what the smoothing costs."
    )


def affordable_steps(lab: Laboratory) -> int:
    """Return how many steps all models can make in the time there is, by the speed of a short training on each core."""
    began_at = time.monotonic()
    settings = {**BASE, "training.steps": PILOT_STEPS}
    pilots = lab.trained_together({f"pilot-{core + 1}": (settings, lab.seed + core) for core in range(cores())})
    vocabulary = len(pilots["pilot-1"].translator.target_tokenizer)
    operations = {each.name: operations_of(lab, each, vocabulary) for each in VARIATIONS}
    costs = [max(1.0, operations[each.name] / operations["base"]) for each in VARIATIONS]
    left = (lab.budget_seconds - (time.monotonic() - began_at)) * cores()
    seconds_per_step = max(pilot.seconds / max(pilot.steps, 1) for pilot in pilots.values())
    spare = left - SEEDS * len(VARIATIONS) * OVERHEAD_SECONDS
    return max(LEAST_STEPS, int(spare / (SEEDS * sum(costs) * seconds_per_step)))


def operations_of(lab: Laboratory, variation: Variation, vocabulary: int) -> float:
    """Count what a target token costs in a variation."""
    settings = {**BASE, **variation.settings}
    how = lab.recipe(lab.place("none"), settings, 1.0, lab.seed, lab.material).model
    return counted_operations(how, vocabulary, vocabulary)


def one(
    lab: Laboratory,
    name: str,
    orders: Mapping[str, tuple[Mapping[str, Any], int]],
    trained: Mapping[str, Trained],
    pairs: Sequence[tuple[str, str]],
) -> dict[str, Json]:
    """Score one model."""
    settings, seed = orders[name]

    def measure() -> Json:
        model = trained[name]
        return {
            "perplexity": model.perplexity, "bleu": model.bleu(pairs), "parameters": model.parameters,
            "seconds": model.seconds, "seed": seed, "settings": dict(settings),
        }  # fmt: skip

    found: dict[str, Json] = lab.kept(f"score {name}", measure, settings=dict(settings))
    return found


# What is shown


def spread(rows: Sequence[dict[str, Json]], key: str) -> tuple[float, float]:
    """Return the mean and the standard deviation of a number over the seeds."""
    values = [row[key] for row in rows]
    return mean(values), stdev(values)


def differs(ours: tuple[float, float], base: tuple[float, float], count: int = SEEDS) -> bool:
    """Say whether two means are further apart than Student's test allows chance to bring them in one case of twenty."""
    error: float = ((ours[1] ** 2 + base[1] ** 2) / count) ** 0.5
    return abs(ours[0] - base[0]) > STUDENT * error


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
        return "no clear difference"
    return "better" if ours[0] < base[0] else "worse"


def draw(lab: Laboratory, rows: Mapping[str, Sequence[dict[str, Json]]]) -> tuple[Picture]:
    """Draw the perplexity of every row, each seed a point, with the base's spread behind them."""
    figure, (axes,) = panels(height=6)
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
        verdicts: dict[str, list[str]] = {}
        for each in (row for row in VARIATIONS if row.group == group):
            ours = spread(rows[each.name], "perplexity")
            change = f"{ours[0] - base[0]:+.3f}".replace("-", "−")
            verdicts.setdefault(verdict_of(ours, base), []).append(f"{each.name} ({change})")
        told = "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in sorted(verdicts.items()))
        said.append(f"{group}, {what}, perplexity against the base: {told}.")
    return tuple(said)
