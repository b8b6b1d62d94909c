"""Table 2: the Transformer and earlier architectures with the same corpus, vocabulary, parameters and time."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dragoman.evaluation.scores import compare_systems, score_translations
from dragoman.lab.comparison import train_comparison
from dragoman.lab.corpus import LengthRange, SentencePairs, bleu_in_range, format_range
from dragoman.lab.laboratory import Laboratory, TrainedModel, count_parameters, prepare_run
from dragoman.lab.plan import Comparison
from dragoman.lab.plots import Lines, add_shared_legend, draw_lines, save_picture, subplots
from dragoman.model_config import MODEL_CONFIGS, ModelConfig
from dragoman.models.architectures import build_model
from dragoman.models.attention import unfused_attention
from dragoman.models.transducer import Source
from dragoman.report import Cell, ExperimentReport, Json, ReportPicture, ReportTable, format_number
from dragoman.tokens import END, RESERVED_TOKENS, START

TITLE = "Table 2: the Transformer and earlier architectures"
QUESTION = "How well do recurrent, convolutional and attention models translate after the same time at the same size?"
CLAIM = (
    "section 6.1: on WMT 2014 the Transformer has a higher BLEU (28.4 and 41.8) than earlier recurrent and "
    "convolutional models, at a fraction of their training cost."
)

# Learning rates were chosen on the validation text in trainings of 12 to 30 seconds (docs/log.md): recurrent models
# learn fastest with 0.01, all others with the default of the laboratory, 0.005.
_RECURRENT = {"model.architecture": "recurrent", "training.rate": 0.01}
_BAG = {"model.architecture": "bag_of_embeddings", "model.kernel": 4}
CONTENDERS: dict[str, dict[str, Any]] = {
    "averaged embeddings": _BAG,
    "concatenated embeddings": {**_BAG, "model.pooling": "concatenate", "model.longest": 64},
    "recurrent, no attention": {**_RECURRENT, "model.score": "none"},
    "recurrent, additive": {**_RECURRENT, "model.score": "additive"},
    "recurrent, dot product": {**_RECURRENT, "model.score": "dot"},
    "recurrent, general": {**_RECURRENT, "model.score": "general"},
    "recurrent, scaled dot product": {**_RECURRENT, "model.score": "scaled_dot"},
    "convolutional (ConvS2S)": {"model.architecture": "convs2s", "model.layers": 4},
    "dilated (ByteNet)": {"model.architecture": "bytenet", "model.layers": 5},
    "Transformer": {},
}
_TRANSFORMER, _NO_ATTENTION = "Transformer", "recurrent, no attention"
RECURRENT_WITH_ATTENTION = [name for name in CONTENDERS if name.startswith("recurrent") and name != _NO_ATTENTION]
_WIDTHS = range(16, 513, 2)  # from which the width of a model is chosen
_OPTIONAL = (  # left out in this order if time is short
    ("averaged embeddings", "concatenated embeddings"),
    ("recurrent, dot product", "recurrent, general", "recurrent, scaled dot product"),
    ("dilated (ByteNet)",),
    ("convolutional (ConvS2S)",),
)
_LENGTH_RANGES = 4  # of source lengths
_SIGNIFICANCE = 0.05


def run(lab: Laboratory) -> ExperimentReport:
    """Train every architecture for the same time and score its translations of test sentences."""
    vocabulary = lab.measure_once(
        "vocabulary", lambda: len(prepare_run(lab.build_recipe("speed", {})).target_tokenizer)
    )
    parameters = count_settings_parameters({}, vocabulary, lab)
    settings = {name: match_parameters(name, parameters, vocabulary, lab) for name in CONTENDERS}
    trained = train_comparison(lab, Comparison(settings, equal="time", max_seeds=1, optional=_OPTIONAL))
    if len(trained.learned) < 2:
        return trained.refusal()
    pairs = lab.corpus.pairs("test")
    rows = {
        name: _score_model(lab, name, trained.plan.settings(name), model, pairs)
        for name, (model,) in trained.learned_models.items()
    }
    ranges = quantile_ranges(pairs)
    by_length = {
        name: [bleu_in_range(row["translations"], pairs, lengths) for lengths in ranges] for name, row in rows.items()
    }
    middles = [(fewest + most) / 2 for fewest, most in ranges]
    curves: dict[str, Any] = {
        name: tuple(zip(*row.pop("curve"), strict=True)) or ((), ()) for name, row in rows.items()
    }
    header = ("model", *(f"{format_range(lengths)} words" for lengths in ranges))
    parts = (
        _explanation(parameters),
        *trained.parts(),
        _quality_table(rows),
        ReportTable(
            "BLEU by source length", header,
            [(name, *(f"{value:.1f}" for value in values)) for name, values in by_length.items()],
        ),
        _draw(
            lab.folder / "bleu-by-length.png", "BLEU by source length.",
            {name: (middles, values) for name, values in by_length.items()},
            x_label="words in the source", y_label="BLEU on the test text",
        ),
        _draw(
            lab.folder / "learning-curves.png", "Validation loss by training time.", curves,
            x_label="seconds of training", y_label="validation loss, nats per token", markers=False,
        ),
    )  # fmt: skip
    findings = _findings(rows, by_length, pairs, ranges)
    for name, row in rows.items():
        row["by_length"] = dict(zip(map(format_range, ranges), by_length[name], strict=True))
    results = {"contenders": rows, "comparison": trained.results()}
    return ExperimentReport((*findings, *trained.findings()), parts, results)


def _score_model(
    lab: Laboratory, name: str, settings: Mapping[str, Any], model: TrainedModel, pairs: SentencePairs
) -> dict[str, Json]:

    def measure() -> Json:
        translations = model.translate_sources(pairs)
        scores = score_translations(translations, [target for _, target in pairs])
        config, source = model.translator.recipe.model, model.translator.source_tokenizer
        return {
            "bleu": scores.bleu.value, "interval": scores.bleu.interval, "chrf": scores.chrf.value,
            "signature": scores.bleu.signature, "translations": translations,
            "flops_per_token": count_flops_per_token(config, len(source), len(model.translator.target_tokenizer)),
        }  # fmt: skip

    scores = lab.measure_once(f"score {name}", measure, settings=dict(settings))
    validations = [event for event in model.events if event["event"] == "validation" and "loss" in event]
    return {
        **scores,
        "settings": dict(settings),
        "width": model.translator.recipe.model.width,
        "parameters": model.parameters,
        "perplexity": model.perplexity,
        "steps": model.steps,
        "seconds": model.seconds,
        "tokens": model.target_tokens,
        "curve": [(event["seconds"], event["loss"]) for event in validations],
    }


# Size and cost of a model


def match_parameters(name: str, parameters: int, vocabulary: int, lab: Laboratory) -> dict[str, Any]:
    """Return the settings of an architecture with the width that comes closest to a number of parameters."""
    settings = CONTENDERS[name]
    if name == _TRANSFORMER:
        return dict(settings)

    def size(width: int) -> int:
        return count_settings_parameters(width_settings(settings, width), vocabulary, lab)

    large = bisect_left(_WIDTHS, parameters, hi=len(_WIDTHS) - 1, key=size)  # parameters increase with the width
    best = min(_WIDTHS[max(0, large - 1) : large + 1], key=lambda width: abs(size(width) - parameters))
    return width_settings(settings, best)


def width_settings(settings: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return settings with another width, and with an inner width in proportion if the architecture has one."""
    has_inner_width = "inner_width" in MODEL_CONFIGS[settings["model.architecture"]].model_fields
    return {**settings, "model.width": width, **({"model.inner_width": 2 * width} if has_inner_width else {})}


def count_settings_parameters(settings: Mapping[str, Any], vocabulary: int, lab: Laboratory) -> int:
    """Count the parameters of the small model with changed settings."""
    return count_parameters(lab.build_recipe("none", settings).model, vocabulary, vocabulary)


def count_flops_per_token(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, length: int = 12
) -> float:
    """Count the floating-point operations of forward and backward pass per target token.

    Double precision and unfused attention are used, since the counter does not see fused kernels.
    """
    model = build_model(config, source_vocabulary, target_vocabulary).train()
    cast(nn.Module, model).double()
    tokens = torch.randint(RESERVED_TOKENS, min(source_vocabulary, target_vocabulary), (8, length))
    source = torch.cat([tokens, torch.full((8, 1), END)], dim=1)
    prefix = torch.cat([torch.full((8, 1), START), tokens], dim=1)
    with unfused_attention(), FlopCounterMode(display=False) as counter:
        total = (model.hidden_states(prefix, model.encode(Source.from_ids(source))) @ model.output_weight.T).sum()
        torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    return float(counter.get_total_flops() / prefix.numel())


def quantile_ranges(pairs: SentencePairs) -> list[LengthRange]:
    """Divide the source lengths into ranges with about as many sentences each."""
    lengths = np.array([len(source.split()) for source, _ in pairs])
    cuts = sorted({int(cut) for cut in np.quantile(lengths, np.linspace(0, 1, _LENGTH_RANGES + 1)[1:], method="lower")})
    return [(before + 1, cut) for before, cut in zip([int(lengths.min()) - 1, *cuts], cuts, strict=False)]


# Report


def _explanation(parameters: int) -> str:
    return (
        f"All models have the same training text and vocabulary, about {parameters:,} parameters (the width is chosen "
        "accordingly) and the same training time on all cores. FLOPs are counted, not estimated: those of the matrix "
        "products in the forward and backward pass, where a multiplication with its addition counts as two."
    )


def _quality_table(rows: Mapping[str, dict[str, Json]]) -> ReportTable:
    cells: list[tuple[Cell, ...]] = []
    for name, row in rows.items():
        bleu = f"{row['bleu']:.1f} ± {row['interval']:.1f}"
        speed = round(row["tokens"] / max(row["seconds"], 1e-9))
        size = (row["width"], row["parameters"], row["steps"], round(row["seconds"]))
        cells.append((name, bleu, row["perplexity"], *size, speed, f"{row['flops_per_token'] * row['tokens']:.1e}"))
    header = ("model", "BLEU", "perplexity", "width", "parameters", "steps", "seconds", "tokens/s", "training FLOPs")
    note = (
        "BLEU on the test text with its 95 % interval; perplexity per token on the validation text. Each model "
        "was trained once: intervals and p-values reflect the choice of test sentences, not of the seed."
    )
    return ReportTable("Quality and training cost", header, cells, note)


def _draw(path: Path, caption: str, lines: Lines, **options: Any) -> ReportPicture:
    figure, (axes,) = subplots(height=4.8)
    draw_lines(axes, lines, legend=False, **options)
    for line in axes.get_lines():
        if line.get_label() == _TRANSFORMER:
            line.set(color="black", linewidth=2.5, linestyle="-", zorder=3)
    add_shared_legend(figure, axes)
    return save_picture(figure, path, caption)


def _findings(
    rows: Mapping[str, dict[str, Json]], by_length: Mapping[str, list[float]], pairs: SentencePairs,
    ranges: Sequence[LengthRange],
) -> tuple[str, ...]:  # fmt: skip
    ranked = sorted(rows, key=lambda name: -rows[name]["bleu"])
    scores = ", ".join(f"{name} {rows[name]['bleu']:.1f}" for name in ranked)
    findings = [f"BLEU after the same training time with the same number of parameters, best first: {scores}."]
    recurrent = [name for name in RECURRENT_WITH_ATTENTION if name in rows]
    if not recurrent:
        return tuple(findings)
    best = min(recurrent, key=lambda name: float(rows[name]["perplexity"]))
    compared = [pair for pair in ((_TRANSFORMER, best), (best, _NO_ATTENTION)) if set(pair) <= rows.keys()]
    findings += [_compare_by_bootstrap(*pair, rows, pairs) for pair in compared]
    findings += [length_finding(*pair, by_length, ranges) for pair in compared]
    return tuple(findings)


def _compare_by_bootstrap(name: str, other: str, rows: Mapping[str, dict[str, Json]], pairs: SentencePairs) -> str:
    """Compare two models by paired bootstrap resampling."""
    references = [target for _, target in pairs]
    p_value = compare_systems(rows[name]["translations"], rows[other]["translations"], references).p_value
    difference = rows[name]["bleu"] - rows[other]["bleu"]
    if p_value >= _SIGNIFICANCE:
        change = f"{format_number(difference, '+.1f')} BLEU, p = {p_value:.3f}"
        return f"{name} is not clearly better or worse than {other} ({change})."
    word = "better" if difference > 0 else "worse"
    return f"{name} is {abs(difference):.1f} BLEU {word} than {other} (p = {p_value:.3f})."


def length_finding(name: str, other: str, by_length: Mapping[str, list[float]], ranges: Sequence[LengthRange]) -> str:
    """Return a sentence on how the difference between two models changes with the source length."""
    differences = [ours - theirs for ours, theirs in zip(by_length[name], by_length[other], strict=True)]
    grows = len(differences) > 1 and abs(differences[-1]) == max(map(abs, differences))
    return (
        f"The BLEU of {name} minus that of {other} is {format_number(differences[0], '+.1f')} on sentences of "
        f"{format_range(ranges[0])} words and {format_number(differences[-1], '+.1f')} on sentences of "
        f"{format_range(ranges[-1])} words; the difference is {'' if grows else 'not '}largest on the longest "
        "sentences."
    )
