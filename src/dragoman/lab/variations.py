"""Table 3: variations of the Transformer, one setting changed at a time, scaled down to the budget."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from dragoman.lab.comparison import TrainedComparison, train_comparison
from dragoman.lab.corpus import SentencePairs
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plan import Comparison
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

_BASE = "base"
BASE_SETTINGS: dict[str, Any] = {
    "model.layers": 2, "model.width": 64, "model.inner_width": 256, "model.heads": 4, "training.schedule": "linear",
    "training.batch_tokens": 512, "training.validate_every": 1_000_000, "training.average": 1,
    "training.threads": 1,
}  # fmt: skip


@dataclass(frozen=True)
class _Variation:
    """A row of the table: the changed settings, and the group of the row."""

    group: str
    name: str
    settings: Mapping[str, Any]


VARIATIONS = (
    _Variation("", _BASE, {}),
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
_OPTIONAL = (  # left out in this order if time is short
    ("2 heads", "8 heads"),
    ("keys of 8 (d_k)", "inner width 128 (d_ff)", "inner width 512 (d_ff)"),
    ("width 32 (d_model)", "dropout 0.3", "label smoothing 0.2"),
    ("1 layer (N)", "4 layers (N)", "width 128 (d_model)"),
)
_STUDENT_T = {2: 4.30, 3: 2.78}  # at 95 %, by the number of seeds, with 2 · (seeds − 1) degrees of freedom
_LEARNING_STEPS = 300  # batches are half as large as those of the small model

_Rows = Mapping[str, Sequence[dict[str, Json]]]  # the scores of each variation, one per seed


def build_comparison() -> Comparison:
    """Return the trainings: every variation with two or three seeds, one model per core at a time."""
    names = [variation.name for variation in VARIATIONS]
    return Comparison(
        {variation.name: {**BASE_SETTINGS, **variation.settings} for variation in VARIATIONS},
        equal="steps",
        learning_steps=_LEARNING_STEPS,
        min_seeds=min(_STUDENT_T),
        max_seeds=max(_STUDENT_T),
        optional=tuple(tuple(name for name in group if name in names) for group in _OPTIONAL),
        at_once=available_cores(),
    )


def run(lab: Laboratory) -> ExperimentReport:
    """Train every variation with several seeds for the same number of steps."""
    trained = train_comparison(lab, build_comparison())
    if _BASE not in trained.learned or len(trained.learned) < 2:
        return trained.refusal()
    pairs = lab.corpus.pairs("test")
    rows = {
        name: [
            score_model(lab, f"{name} {seed}", model, pairs, trained.plan.settings(name))
            for seed, model in zip(trained.plan.seeds, models, strict=True)
        ]
        for name, models in trained.learned_models.items()
    }
    parts = (_explanation(trained), *trained.parts(), variations_table(rows), _draw(lab, rows))
    findings = (*variation_findings(rows), *trained.findings())
    return ExperimentReport(findings, parts, {"rows": rows, "comparison": trained.results()})


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


def _explanation(trained: TrainedComparison) -> str:
    return (
        f"Each row is the mean ± standard deviation over {len(trained.plan.seeds)} seeds, with one setting changed. A "
        "row counts as better or worse than the base only if the means differ by more than "
        f"{_STUDENT_T[len(trained.plan.seeds)]} standard errors, which happens by chance in one of twenty comparisons; "
        f"the table has {len(trained.learned) - 1}. Perplexity is computed on the reference tokens, without label "
        "smoothing."
    )


def _mean_and_deviation(rows: Sequence[dict[str, Json]], key: str) -> tuple[float, float]:
    values = [row[key] for row in rows if math.isfinite(row[key])]
    return mean(values), stdev(values) if len(values) > 1 else math.nan


def is_significant(ours: tuple[float, float], base: tuple[float, float], seeds: int) -> bool:
    """Return whether two means with their standard deviations differ by Student's t-test at 95 %."""
    error: float = ((ours[1] ** 2 + base[1] ** 2) / seeds) ** 0.5
    return abs(ours[0] - base[0]) > _STUDENT_T[seeds] * error


def compare_with_base(ours: tuple[float, float], base: tuple[float, float], seeds: int) -> str:
    """Return "better", "worse" or "no clear difference" for a perplexity."""
    if not is_significant(ours, base, seeds):
        return "no clear difference"
    return "better" if ours[0] < base[0] else "worse"


def variations_table(rows: _Rows) -> ReportTable:
    """Return the paper's table 3 for this corpus."""
    base = _mean_and_deviation(rows[_BASE], "perplexity")
    cells: list[tuple[Cell, ...]] = []
    for variation in (candidate for candidate in VARIATIONS if candidate.name in rows):
        scores = rows[variation.name]
        perplexity, bleu = _mean_and_deviation(scores, "perplexity"), _mean_and_deviation(scores, "bleu")
        comparison = "" if variation.name == _BASE else compare_with_base(perplexity, base, len(scores))
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
    middle, width = _mean_and_deviation(rows[_BASE], "perplexity")
    axes.axvspan(middle - width, middle + width, color="#c9ccd1", alpha=0.5)
    variations = [variation for variation in VARIATIONS[::-1] if variation.name in rows]
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
    base, bleu = _mean_and_deviation(rows[_BASE], "perplexity"), _mean_and_deviation(rows[_BASE], "bleu")
    findings = [f"The base has perplexity {base[0]:.3f} ± {base[1]:.3f} and BLEU {bleu[0]:.1f}."]
    for group, description in list(_GROUPS.items())[1:]:
        comparisons: dict[str, list[str]] = {}
        for variation in VARIATIONS:
            if variation.group != group or variation.name not in rows:
                continue
            ours = _mean_and_deviation(rows[variation.name], "perplexity")
            change = f"{variation.name} ({format_number(ours[0] - base[0], '+.3f')})"
            comparisons.setdefault(compare_with_base(ours, base, len(rows[_BASE])), []).append(change)
        text = "; ".join(f"{comparison}: {', '.join(names)}" for comparison, names in sorted(comparisons.items()))
        if comparisons:
            findings.append(f"{group}, {description}, perplexity compared with the base: {text}.")
    return tuple(findings)
