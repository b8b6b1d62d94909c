"""Table 3: variations of the Transformer, one setting changed at a time, scaled down to the budget."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from dragoman.lab.architectures import count_flops_per_token
from dragoman.lab.corpus import SentencePairs
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plots import COLOURS, label_axes, save_picture, subplots
from dragoman.processes import available_cores
from dragoman.report import Cell, ExperimentReport, Json, ReportPicture, ReportTable, format_number

TITLE = "Table 3: variations of the Transformer"
QUESTION = "How do perplexity and BLEU change if one setting of the paper's model is changed?"
CLAIM = (
    "section 6.2: one head is 0.9 BLEU worse than the best number of heads, and quality also drops with too many (A); "
    "smaller keys hurt (B); bigger models are better (C); dropout is very helpful against over-fitting (D); learned "
    "positions give nearly the same results as sinusoids (E)."
)

BASE_SETTINGS: dict[str, Any] = {
    "model.layers": 2, "model.width": 64, "model.inner_width": 256, "model.heads": 4, "training.schedule": "linear",
    "training.batch_tokens": 512, "training.validate_every": 1_000_000, "training.average": 1,
}  # fmt: skip


@dataclass(frozen=True)
class _Variation:
    """A row of the table: the changed settings, and the group of the row."""

    group: str
    name: str
    settings: Mapping[str, Any]


VARIATIONS = (
    _Variation("", "base", {}),
    _Variation("A", "1 head", {"model.heads": 1}),
    _Variation("A", "2 heads", {"model.heads": 2}),
    _Variation("A", "8 heads", {"model.heads": 8}),
    _Variation("A", "16 heads", {"model.heads": 16}),
    _Variation("B", "keys of 4 (d_k)", {"model.key_width": 4}),
    _Variation("B", "keys of 8 (d_k)", {"model.key_width": 8}),
    _Variation("C", "1 layer (N)", {"model.layers": 1}),
    _Variation("C", "4 layers (N)", {"model.layers": 4}),
    _Variation("C", "width 32 (d_model)", {"model.width": 32}),
    _Variation("C", "width 128 (d_model)", {"model.width": 128}),
    _Variation("C", "inner width 128 (d_ff)", {"model.inner_width": 128}),
    _Variation("C", "inner width 512 (d_ff)", {"model.inner_width": 512}),
    _Variation("D", "dropout 0.1", {"model.dropout": 0.1}),
    _Variation("D", "dropout 0.3", {"model.dropout": 0.3}),
    _Variation("D", "no label smoothing", {"training.label_smoothing": 0.0}),
    _Variation("D", "label smoothing 0.2", {"training.label_smoothing": 0.2}),
    _Variation("E", "learned positions", {"model.positions": "learned"}),
)
_GROUPS = {
    "": "", "A": "heads, the same total width", "B": "smaller keys", "C": "size", "D": "regularisation",
    "E": "positions",
}  # fmt: skip
_SEEDS = 3
_STUDENT_T = 2.78  # at 95 % with 2 · (3 − 1) degrees of freedom
_OVERHEAD_SECONDS = 9.0  # per model, for starting, preparing the data and translating
_MIN_STEPS = 20
_PILOT_STEPS = 60

_Rows = Mapping[str, Sequence[dict[str, Json]]]  # the scores of each variation, one per seed


def run(lab: Laboratory) -> ExperimentReport:
    """Train every variation with several seeds for the same number of steps."""
    steps = lab.measure_once("steps", lambda: _affordable_steps(lab))
    pairs = lab.corpus.pairs("test")
    trainings = {  # all variations with one seed before any with the next
        f"{re.sub('[()]', '', variation.name).replace(' ', '-')}-{seed + 1}": (variation, lab.seed + seed)
        for seed in range(_SEEDS)
        for variation in VARIATIONS
    }
    models = lab.train_in_parallel(
        {
            name: ({**BASE_SETTINGS, **variation.settings, "training.steps": steps}, seed)
            for name, (variation, seed) in trainings.items()
        }
    )
    rows: dict[str, list[dict[str, Json]]] = {variation.name: [] for variation in VARIATIONS}
    for name, (variation, _) in trainings.items():
        settings = {**variation.settings, "training.steps": steps}
        rows[variation.name].append(score_model(lab, name, models[name], pairs, settings))
    parts = (_explanation(steps), variations_table(rows), _draw(lab, rows))
    return ExperimentReport(variation_findings(rows), parts, {"steps": steps, "rows": rows})


def _affordable_steps(lab: Laboratory) -> int:
    """Return the number of steps that all models can make within the budget, by the speed of short trainings."""
    started_at = time.monotonic()
    settings = {**BASE_SETTINGS, "training.steps": _PILOT_STEPS}
    pilots = lab.train_in_parallel(
        {f"pilot-{core + 1}": (settings, lab.seed + core) for core in range(available_cores())}
    )
    vocabulary = len(pilots["pilot-1"].translator.target_tokenizer)
    configs = (lab.build_recipe("none", {**BASE_SETTINGS, **variation.settings}).model for variation in VARIATIONS)
    flops = [count_flops_per_token(config, vocabulary, vocabulary) for config in configs]
    costs = [max(1.0, cost / flops[0]) for cost in flops]  # relative to the base
    core_seconds = (lab.budget_seconds - (time.monotonic() - started_at)) * available_cores()
    seconds_per_step = max(pilot.seconds / max(pilot.steps, 1) for pilot in pilots.values())
    training_seconds = core_seconds - _SEEDS * len(VARIATIONS) * _OVERHEAD_SECONDS
    return max(_MIN_STEPS, int(training_seconds / (_SEEDS * sum(costs) * seconds_per_step)))


def score_model(
    lab: Laboratory, name: str, model: TrainedModel, pairs: SentencePairs, settings: Mapping[str, Any]
) -> dict[str, Json]:
    """Return the scores of a model, measured once."""

    def measure() -> Json:
        return {
            "perplexity": model.perplexity, "bleu": model.bleu(pairs), "parameters": model.parameters,
            "seconds": model.seconds, "settings": dict(settings),
        }  # fmt: skip

    return lab.measure_once(f"score {name}", measure, settings=dict(settings))  # type: ignore[no-any-return]


# Report


def _explanation(steps: int) -> str:
    return (
        f"Each row is the mean ± standard deviation over {_SEEDS} seeds, with one setting changed, after {steps:,} "
        "steps. A row counts as better or worse than the base only if the means differ by more than "
        f"{_STUDENT_T} standard errors, which happens by chance in one of twenty comparisons; the table has "
        f"{len(VARIATIONS) - 1}. Perplexity is computed on the reference tokens, without label smoothing."
    )


def _mean_and_deviation(rows: Sequence[dict[str, Json]], key: str) -> tuple[float, float]:
    values = [row[key] for row in rows]
    return mean(values), stdev(values)


def is_significant(ours: tuple[float, float], base: tuple[float, float], count: int = _SEEDS) -> bool:
    """Return whether two means with their standard deviations differ by Student's t-test at 95 %."""
    error: float = ((ours[1] ** 2 + base[1] ** 2) / count) ** 0.5
    return abs(ours[0] - base[0]) > _STUDENT_T * error


def compare_with_base(ours: tuple[float, float], base: tuple[float, float]) -> str:
    """Return "better", "worse" or "no clear difference" for a perplexity."""
    if not is_significant(ours, base):
        return "no clear difference"
    return "better" if ours[0] < base[0] else "worse"


def variations_table(rows: _Rows) -> ReportTable:
    """Return the paper's table 3 for this corpus."""
    base = _mean_and_deviation(rows["base"], "perplexity")
    cells: list[tuple[Cell, ...]] = []
    for variation in VARIATIONS:
        scores = rows[variation.name]
        perplexity, bleu = _mean_and_deviation(scores, "perplexity"), _mean_and_deviation(scores, "bleu")
        comparison = "" if variation.name == "base" else compare_with_base(perplexity, base)
        cells.append(
            (
                variation.group, variation.name, f"{perplexity[0]:.3f} ± {perplexity[1]:.3f}",
                f"{bleu[0]:.1f} ± {bleu[1]:.1f}", scores[0]["parameters"],
                f"{mean(row['seconds'] for row in scores):.0f}", comparison,
            )
        )  # fmt: skip
    header = ("row", "change", "perplexity", "BLEU", "parameters", "seconds", "perplexity compared with base")
    return ReportTable("Variations, one change at a time", header, cells)


def _draw(lab: Laboratory, rows: _Rows) -> ReportPicture:
    figure, (axes,) = subplots(height=6)
    middle, width = _mean_and_deviation(rows["base"], "perplexity")
    axes.axvspan(middle - width, middle + width, color="#c9ccd1", alpha=0.5)
    variations = VARIATIONS[::-1]
    for height, variation in enumerate(variations):
        colour = COLOURS[list(_GROUPS).index(variation.group)]
        values = [row["perplexity"] for row in rows[variation.name]]
        axes.plot(values, [height] * len(values), "o", color=colour, markersize=4)
        axes.plot([mean(values)], [height], "|", color=colour, markersize=14)
    axes.set_yticks(range(len(variations)), [variation.name for variation in variations])
    label_axes(axes, x_label="validation perplexity per token")
    caption = "Perplexity of each variation: one point per seed, a line at the mean; grey: the deviation of the base."
    return save_picture(figure, lab.folder / "variations.png", caption)


def variation_findings(rows: _Rows) -> tuple[str, ...]:
    """Return a sentence on the base and one per group of variations."""
    base, bleu = _mean_and_deviation(rows["base"], "perplexity"), _mean_and_deviation(rows["base"], "bleu")
    findings = [f"The base has perplexity {base[0]:.3f} ± {base[1]:.3f} and BLEU {bleu[0]:.1f}."]
    for group, description in list(_GROUPS.items())[1:]:
        comparisons: dict[str, list[str]] = {}
        for variation in (candidate for candidate in VARIATIONS if candidate.group == group):
            ours = _mean_and_deviation(rows[variation.name], "perplexity")
            change = f"{variation.name} ({format_number(ours[0] - base[0], '+.3f')})"
            comparisons.setdefault(compare_with_base(ours, base), []).append(change)
        text = "; ".join(f"{comparison}: {', '.join(names)}" for comparison, names in sorted(comparisons.items()))
        findings.append(f"{group}, {description}, perplexity compared with the base: {text}.")
    return tuple(findings)
