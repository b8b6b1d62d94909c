"""Table 2: the Transformer and its rivals, with the same corpus, vocabulary, number of parameters and time."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dragoman.evaluation.scores import compare_systems, score_translations
from dragoman.lab.laboratory import Laboratory, TrainedModel, count_parameters
from dragoman.lab.lengths import LengthRange, bleu_in_range, format_range
from dragoman.lab.plots import add_shared_legend, draw_lines, save_figure, subplots
from dragoman.lab.report import Cell, ExperimentReport, Json, Picture, ReportTable, format_difference
from dragoman.model_config import ModelConfig
from dragoman.models.architectures import build_model
from dragoman.models.attention import unfused_attention
from dragoman.models.transducer import Source
from dragoman.tokens import END, RESERVED_TOKENS, START

TITLE = "Table 2: the Transformer and its rivals"
QUESTION = "What do recurrence, convolution and attention reach with the same text, size and time?"
CLAIM = (
    "Section 6.1: on WMT 2014 the Transformer has a better BLEU (28.4 and 41.8) than the recurrent and convolutional "
    "models before it, at a fraction of their cost of training."
)

_RECURRENT_RATE = {"training.rate": 0.01}
# The learning rate of each was chosen on the validation text by trainings of 12 to 30 seconds (docs/log.md): the
# recurrent models learn fastest with 0.01, all others with the laboratory's 0.005.
CONTENDERS: dict[str, dict[str, Any]] = {
    "averaged embeddings": {"model.architecture": "bag_of_embeddings", "model.kernel": 4},
    "concatenated embeddings": {
        "model.architecture": "bag_of_embeddings",
        "model.pooling": "concatenate",
        "model.kernel": 4,
        "model.longest": 64,
    },
    "recurrent, no attention": {"model.architecture": "recurrent", "model.score": "none", **_RECURRENT_RATE},
    "recurrent, additive": {"model.architecture": "recurrent", "model.score": "additive", **_RECURRENT_RATE},
    "recurrent, dot product": {"model.architecture": "recurrent", "model.score": "dot", **_RECURRENT_RATE},
    "recurrent, general": {"model.architecture": "recurrent", "model.score": "general", **_RECURRENT_RATE},
    "recurrent, scaled dot product": {
        "model.architecture": "recurrent",
        "model.score": "scaled_dot",
        **_RECURRENT_RATE,
    },
    "convolutional (ConvS2S)": {"model.architecture": "convs2s", "model.layers": 4},
    "dilated (ByteNet)": {"model.architecture": "bytenet", "model.layers": 5},
    "Transformer": {},
}
_TRANSFORMER, _NO_ATTENTION = "Transformer", "recurrent, no attention"
RECURRENT_WITH_ATTENTION = [name for name in CONTENDERS if name.startswith("recurrent") and name != _NO_ATTENTION]
_WIDTHS = range(16, 513, 2)  # that a contender may have
_OVERHEAD_SECONDS = 12.0  # beside the training of a model: preparing its data, translating the validation and test text
_MIN_TRAINING_SHARE = 0.2  # of the time of a model that is spent on training it, however short it is
_LENGTH_RANGES = 4  # of sentence lengths, with about as many test sentences in each
_SIGNIFICANCE = 0.05  # of probability that chance alone made a difference: from here on it is called none


def run(lab: Laboratory) -> ExperimentReport:
    """Train every contender for the same time and see how well it translates sentences that it has not seen."""
    each = lab.budget_seconds / len(CONTENDERS)
    seconds = max(_MIN_TRAINING_SHARE * each, each - _OVERHEAD_SECONDS)
    pairs = lab.corpus.pairs("test")
    vocabulary = len(lab.train_model("Transformer", {}, seconds=seconds).translator.target_tokenizer)
    goal = count_settings_parameters({}, vocabulary, lab)
    rows = {
        name: _train_and_score(lab, name, match_parameters(name, goal, vocabulary, lab), seconds, pairs)
        for name in CONTENDERS
    }
    lengths = quantile_ranges(pairs)
    by_length = {
        name: [bleu_in_range(row["translations"], pairs, each) for each in lengths] for name, row in rows.items()
    }
    pictures = _draw(lab, rows, by_length, lengths)
    for name, row in rows.items():
        row["by_length"] = dict(zip(map(format_range, lengths), by_length[name], strict=True))
    parts = (_explanation(seconds, goal), _quality_table(rows), _length_table(by_length, lengths), *pictures)
    results = {name: {key: value for key, value in row.items() if key != "curve"} for name, row in rows.items()}
    return ExperimentReport(
        _findings(rows, by_length, pairs, lengths), parts, {"contenders": results, "seconds_each": seconds}
    )


def _explanation(seconds: float, goal: int) -> str:
    """Say what was equal."""
    return (
        f"Every model read the same sentences with the same vocabulary, had about {goal:,} parameters (the width of "
        f"each was chosen for that) and {seconds:.0f} seconds of training with all cores. Operations are counted: the "
        "matrix products of forward and backward pass, a multiplication and an addition for each weight."
    )


# One contender


def _train_and_score(
    lab: Laboratory, name: str, settings: Mapping[str, Any], seconds: float, pairs: Sequence[tuple[str, str]]
) -> dict[str, Json]:
    """Train one model and score it; what was found is kept."""
    trained = lab.train_model(name.replace(",", "").replace(" ", "-"), settings, seconds=seconds)

    def measure() -> Json:
        translations = trained.translate_sources(pairs)
        found = score_translations(translations, [target for _, target in pairs])
        return {
            "bleu": found.bleu.value, "interval": found.bleu.interval, "chrf": found.chrf.value,
            "signature": found.bleu.signature, "translations": translations,
            "operations_per_token": _training_flops_per_token(trained),
        }  # fmt: skip

    kept = lab.measure_once(f"score {name}", measure, settings=dict(settings), seconds=seconds)
    return {
        **kept,
        "settings": dict(settings),
        "width": trained.translator.recipe.model.width,
        "parameters": trained.parameters,
        "perplexity": trained.perplexity,
        "steps": trained.steps,
        "seconds": trained.seconds,
        "tokens": trained.target_tokens,
        "curve": [(e["seconds"], e["loss"]) for e in trained.events if e["event"] == "validation" and "loss" in e],
    }


def match_parameters(name: str, parameters: int, vocabulary: int, lab: Laboratory) -> dict[str, Any]:
    """Return the settings of a contender, as wide as it takes to have the number of parameters that all have."""
    settings = CONTENDERS[name]
    if name == _TRANSFORMER:
        return dict(settings)

    def size(width: int) -> int:
        return count_settings_parameters({**settings, **width_settings(width)}, vocabulary, lab)

    large = bisect_left(_WIDTHS, parameters, hi=len(_WIDTHS) - 1, key=size)  # a wider model never has fewer parameters
    best = min(_WIDTHS[max(0, large - 1) : large + 1], key=lambda width: abs(size(width) - parameters))
    return {**settings, **width_settings(best)}


def width_settings(width: int) -> dict[str, Any]:
    """Return the settings of a width; the inner layers keep their proportion."""
    return {"model.width": width, "model.inner_width": 2 * width}


def count_settings_parameters(settings: Mapping[str, Any], vocabulary: int, lab: Laboratory) -> int:
    """Count the parameters of a model without giving it memory."""
    how = lab.build_recipe(lab.model_run("none"), settings, 1.0, lab.seed, lab.corpus).model
    return count_parameters(how, vocabulary, vocabulary)


def _training_flops_per_token(trained: TrainedModel) -> float:
    """Count the operations of a training step for each target token, on sentences of a usual length."""
    how, pieces = trained.translator.recipe.model, trained.translator.target_tokenizer
    return count_flops_per_token(how, len(trained.translator.source_tokenizer), len(pieces))


def count_flops_per_token(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, length: int = 12
) -> float:
    """Count what one batch takes, forward and backward.

    In double precision, and with plain products for attention, nothing goes past the counter.
    """
    model = build_model(config, source_vocabulary, target_vocabulary).train()
    cast(nn.Module, model).double()
    words = torch.randint(RESERVED_TOKENS, min(source_vocabulary, target_vocabulary), (8, length))
    source = torch.cat([words, torch.full((8, 1), END)], dim=1)
    prefix = torch.cat([torch.full((8, 1), START), words], dim=1)
    with unfused_attention(), FlopCounterMode(display=False) as counter:
        total = (model.hidden_states(prefix, model.encode(Source.from_ids(source))) @ model.output_weight.T).sum()
        torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    return float(counter.get_total_flops() / prefix.numel())


# Sentence lengths


def quantile_ranges(pairs: Sequence[tuple[str, str]]) -> list[LengthRange]:
    """Cut the lengths of the sources into ranges with about as many sentences in each."""
    lengths = np.array([len(source.split()) for source, _ in pairs])
    cuts = sorted({int(cut) for cut in np.quantile(lengths, np.linspace(0, 1, _LENGTH_RANGES + 1)[1:], method="lower")})
    return [(before + 1, cut) for before, cut in zip([int(lengths.min()) - 1, *cuts], cuts, strict=False)]


# What is shown


def _quality_table(rows: Mapping[str, dict[str, Json]]) -> ReportTable:
    """Return the paper's table 2 for this corpus."""
    lines: list[tuple[Cell, ...]] = []
    for name, row in rows.items():
        cost = row["operations_per_token"] * row["tokens"]
        points = f"{row['bleu']:.1f} ± {row['interval']:.1f}"
        speed = round(row["tokens"] / max(row["seconds"], 1e-9))
        facts = (row["width"], row["parameters"], row["steps"], round(row["seconds"]), speed, f"{cost:.1e}")
        lines.append((name, points, row["perplexity"], *facts))
    header = ("model", "BLEU", "perplexity", "width", "parameters", "steps", "seconds", "tokens/s", "operations")
    note = (
        "BLEU on the test text with its 95 % interval; perplexity per piece on the validation text. One training of "
        "each: intervals and p-values are about the choice of test sentences, not about the luck of a training."
    )
    return ReportTable("Quality and cost of training", header, tuple(lines), note)


def _length_table(by_length: Mapping[str, list[float]], lengths: Sequence[LengthRange]) -> ReportTable:
    """Return BLEU by sentence length."""
    header = ("model", *(f"{format_range(each)} words" for each in lengths))
    rows = tuple((name, *(f"{value:.1f}" for value in values)) for name, values in by_length.items())
    return ReportTable("BLEU by the length of the source", header, rows)


def _draw(
    lab: Laboratory,
    rows: Mapping[str, dict[str, Json]],
    by_length: Mapping[str, list[float]],
    lengths: list[LengthRange],
) -> tuple[Picture, Picture]:
    """Draw BLEU against the length of the source, and the loss against time."""
    figure, (axes,) = subplots(height=4.8)
    middles = [(least + most) / 2 for least, most in lengths]
    lines = {name: (middles, values) for name, values in by_length.items()}
    draw_lines(axes, lines, x_label="words in the source", y_label="BLEU on the test text", legend=False)
    _add_legend(figure, axes)
    first = Picture(
        save_figure(figure, lab.folder / "bleu-by-length.png"), "BLEU by the length of the source sentence."
    )
    figure, (axes,) = subplots(height=4.8)
    curves = {name: tuple(zip(*row["curve"], strict=True)) for name, row in rows.items() if row["curve"]}
    up = "validation loss per piece (nats)"
    draw_lines(axes, curves, x_label="seconds of training", y_label=up, markers=False, legend=False)  # type: ignore[arg-type]
    _add_legend(figure, axes)
    second = Picture(
        save_figure(figure, lab.folder / "learning-curves.png"), "Validation loss against the time of training."
    )
    return first, second


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Let the line of the Transformer stand out, and name all of them below."""
    for line in axes.get_lines():
        if line.get_label() == _TRANSFORMER:
            line.set(color="black", linewidth=2.5, linestyle="-", zorder=3)
    add_shared_legend(figure, axes, columns=3)


def _findings(
    rows: Mapping[str, dict[str, Json]],
    by_length: Mapping[str, list[float]],
    pairs: Sequence[tuple[str, str]],
    lengths: Sequence[LengthRange],
) -> tuple[str, ...]:
    """Say who was better than whom, and whether that can be chance."""
    best = min(RECURRENT_WITH_ATTENTION, key=lambda name: float(rows[name]["perplexity"]))
    order = sorted(rows, key=lambda name: -rows[name]["bleu"])
    ranked = ", ".join(f"{name} {rows[name]['bleu']:.1f}" for name in order)
    return (
        f"BLEU after the same time, with the same number of parameters, the best first: {ranked}.",
        _compare_by_bootstrap(_TRANSFORMER, best, rows, pairs),
        _compare_by_bootstrap(best, _NO_ATTENTION, rows, pairs),
        length_finding(_TRANSFORMER, best, by_length, lengths),
        length_finding(best, _NO_ATTENTION, by_length, lengths),
    )


def _compare_by_bootstrap(
    one: str, other: str, rows: Mapping[str, dict[str, Json]], pairs: Sequence[tuple[str, str]]
) -> str:
    """Compare two contenders by paired bootstrap resampling."""
    references = [target for _, target in pairs]
    found = compare_systems(rows[one]["translations"], rows[other]["translations"], references)
    difference = rows[one]["bleu"] - rows[other]["bleu"]
    if found.p_value >= _SIGNIFICANCE:
        return (
            f"{one} is not clearly better or worse than {other} ({format_difference(difference)} BLEU, p = "
            f"{found.p_value:.3f})."
        )
    word = "better" if difference > 0 else "worse"
    return f"{one} is {abs(difference):.1f} BLEU {word} than {other} (p = {found.p_value:.3f})."


def length_finding(one: str, other: str, by_length: Mapping[str, list[float]], lengths: Sequence[LengthRange]) -> str:
    """Say how the difference between two contenders changes with the length of the sentence."""
    differences = [ours - theirs for ours, theirs in zip(by_length[one], by_length[other], strict=True)]
    first, last = format_range(lengths[0]), format_range(lengths[-1])
    grows = len(differences) > 1 and abs(differences[-1]) == max(map(abs, differences))
    return (
        f"{one} against {other}: {format_difference(differences[0])} BLEU on sentences of {first} words, "
        f"{format_difference(differences[-1])} on those of {last}; the difference is "
        f"{'' if grows else 'not '}largest on the "
        "longest."
    )
