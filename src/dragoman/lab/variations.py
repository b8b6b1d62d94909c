"""Table 3: what each choice of the Transformer is worth, one changed at a time, scaled down to the time there is."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from dragoman.lab.architectures import count_flops_per_token
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plots import COLOURS, label_axes, save_figure, subplots
from dragoman.lab.report import Cell, ExperimentReport, Json, Picture, ReportTable
from dragoman.processes import available_cores

TITLE = "Table 3: variations of the Transformer"
QUESTION = "What do perplexity and BLEU become when one choice of the paper is changed and all others stay?"
CLAIM = (
    "Section 6.2: one head is 0.9 BLEU worse than the best number of them, and too many are worse again (A); narrower "
    "keys hurt (B); bigger models are better (C); dropout helps a lot against over-fitting (D); learned positions give "
    "nearly the same as sinusoids (E)."
)

BASE_SETTINGS: dict[str, Any] = {
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
_GROUPS = {
    "": "", "A": "heads, of the same width in all", "B": "narrower keys", "C": "size", "D": "regularisation",
    "E": "positions",
}  # fmt: skip
_SEEDS = 3
_STUDENT_T = 2.78  # standard errors: Student's t for 2 · (3 − 1) degrees of freedom at 95 %
_OVERHEAD_SECONDS = 9.0  # beside the training of a model: to start, to prepare the text, to translate
_MIN_STEPS = 20
_PILOT_STEPS = 60


def run(lab: Laboratory) -> ExperimentReport:
    """Train every variation with several seeds for the same number of steps."""
    steps = lab.measure_once("steps", lambda: _affordable_steps(lab))
    pairs = lab.corpus.pairs("test")
    orders = {
        f"{_folder_name(each)}-{number + 1}": (
            {**BASE_SETTINGS, **each.settings, "training.steps": steps},
            lab.seed + number,
        )
        for number in range(_SEEDS)
        for each in VARIATIONS
    }
    trained = lab.train_in_parallel(orders)
    rows = {
        each.name: [
            score_model(lab, f"{_folder_name(each)}-{number + 1}", orders, trained, pairs) for number in range(_SEEDS)
        ]
        for each in VARIATIONS
    }
    parts = (_explanation(steps), variations_table(rows), *_draw(lab, rows))
    return ExperimentReport(variation_findings(rows), parts, {"steps": steps, "rows": rows})


def _folder_name(variation: Variation) -> str:
    """Return a name without spaces."""
    return variation.name.replace(" ", "-").replace("(", "").replace(")", "")


def _explanation(steps: int) -> str:
    """Say what was equal, and what a difference is measured against."""
    return (
        f"Each row is {_SEEDS} models of different seeds, trained for {steps:,} steps with one choice changed. Numbers "
        "are means ± the standard deviation over the seeds. A row is called better or worse than the base only if the "
        f"means are further apart than {_STUDENT_T} standard errors of their difference, which chance alone "
        "does once in "
        f"twenty comparisons; there are {len(VARIATIONS) - 1} of them. Perplexity with label smoothing is of the right "
        "piece alone, without what the smoothing costs."
    )


def _affordable_steps(lab: Laboratory) -> int:
    """Return how many steps all models can make in the time there is, by the speed of a short training on each core."""
    began_at = time.monotonic()
    settings = {**BASE_SETTINGS, "training.steps": _PILOT_STEPS}
    pilots = lab.train_in_parallel(
        {f"pilot-{core + 1}": (settings, lab.seed + core) for core in range(available_cores())}
    )
    vocabulary = len(pilots["pilot-1"].translator.target_tokenizer)
    operations = {each.name: _variation_flops(lab, each, vocabulary) for each in VARIATIONS}
    costs = [max(1.0, operations[each.name] / operations["base"]) for each in VARIATIONS]
    left = (lab.budget_seconds - (time.monotonic() - began_at)) * available_cores()
    seconds_per_step = max(pilot.seconds / max(pilot.steps, 1) for pilot in pilots.values())
    spare = left - _SEEDS * len(VARIATIONS) * _OVERHEAD_SECONDS
    return max(_MIN_STEPS, int(spare / (_SEEDS * sum(costs) * seconds_per_step)))


def _variation_flops(lab: Laboratory, variation: Variation, vocabulary: int) -> float:
    """Count what a target token costs in a variation."""
    settings = {**BASE_SETTINGS, **variation.settings}
    how = lab.build_recipe(lab.model_run("none"), settings, 1.0, lab.seed, lab.corpus).model
    return count_flops_per_token(how, vocabulary, vocabulary)


def score_model(
    lab: Laboratory,
    name: str,
    orders: Mapping[str, tuple[Mapping[str, Any], int]],
    trained: Mapping[str, TrainedModel],
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

    found: dict[str, Json] = lab.measure_once(f"score {name}", measure, settings=dict(settings))
    return found


# What is shown


def _mean_and_deviation(rows: Sequence[dict[str, Json]], key: str) -> tuple[float, float]:
    """Return the mean and the standard deviation of a number over the seeds."""
    values = [row[key] for row in rows]
    return mean(values), stdev(values)


def is_significant(ours: tuple[float, float], base: tuple[float, float], count: int = _SEEDS) -> bool:
    """Say whether two means are further apart than Student's test allows chance to bring them in one case of twenty."""
    error: float = ((ours[1] ** 2 + base[1] ** 2) / count) ** 0.5
    return abs(ours[0] - base[0]) > _STUDENT_T * error


def variations_table(rows: Mapping[str, Sequence[dict[str, Json]]]) -> ReportTable:
    """Return the paper's table 3 for this corpus."""
    lines: list[tuple[Cell, ...]] = []
    for each in VARIATIONS:
        ours = rows[each.name]
        perplexity, points = _mean_and_deviation(ours, "perplexity"), _mean_and_deviation(ours, "bleu")
        verdict = (
            ""
            if each.name == "base"
            else compare_with_base(perplexity, _mean_and_deviation(rows["base"], "perplexity"))
        )
        seconds = f"{mean(row['seconds'] for row in ours):.0f}"
        numbers = (f"{perplexity[0]:.3f} ± {perplexity[1]:.3f}", f"{points[0]:.1f} ± {points[1]:.1f}")
        lines.append((each.group, each.name, *numbers, ours[0]["parameters"], seconds, verdict))
    header = ("row", "change", "perplexity", "BLEU", "parameters", "seconds", "perplexity against base")
    return ReportTable("Variations, one change at a time", header, tuple(lines))


def compare_with_base(ours: tuple[float, float], base: tuple[float, float]) -> str:
    """Say how a perplexity compares."""
    if not is_significant(ours, base):
        return "no clear difference"
    return "better" if ours[0] < base[0] else "worse"


def _draw(lab: Laboratory, rows: Mapping[str, Sequence[dict[str, Json]]]) -> tuple[Picture]:
    """Draw the perplexity of every row, each seed a point, with the base's spread behind them."""
    figure, (axes,) = subplots(height=6)
    names = [each.name for each in reversed(VARIATIONS)]
    middle, width = _mean_and_deviation(rows["base"], "perplexity")
    axes.axvspan(middle - width, middle + width, color="#c9ccd1", alpha=0.5)
    for place, name in enumerate(names):
        colour = COLOURS[list(_GROUPS).index(next(each.group for each in VARIATIONS if each.name == name))]
        values = [row["perplexity"] for row in rows[name]]
        axes.plot(values, [place] * len(values), "o", color=colour, markersize=4)
        axes.plot([mean(values)], [place], "|", color=colour, markersize=14)
    axes.set_yticks(range(len(names)), names)
    label_axes(axes, x_label="validation perplexity per piece", y_label="")
    caption = "Perplexity of each variation: a point a seed, a line their mean; the grey band is the base's spread."
    return (Picture(save_figure(figure, lab.folder / "variations.png"), caption),)


def variation_findings(rows: Mapping[str, Sequence[dict[str, Json]]]) -> tuple[str, ...]:
    """Say which changes made a difference, group by group."""
    base = _mean_and_deviation(rows["base"], "perplexity")
    said = [
        f"The base has perplexity {base[0]:.3f} ± {base[1]:.3f} and BLEU "
        f"{_mean_and_deviation(rows['base'], 'bleu')[0]:.1f}."
    ]
    for group, what in list(_GROUPS.items())[1:]:
        verdicts: dict[str, list[str]] = {}
        for each in (row for row in VARIATIONS if row.group == group):
            ours = _mean_and_deviation(rows[each.name], "perplexity")
            change = f"{ours[0] - base[0]:+.3f}".replace("-", "−")
            verdicts.setdefault(compare_with_base(ours, base), []).append(f"{each.name} ({change})")
        told = "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in sorted(verdicts.items()))
        said.append(f"{group}, {what}, perplexity against the base: {told}.")
    return tuple(said)
