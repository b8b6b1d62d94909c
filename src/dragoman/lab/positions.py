"""Section 3.5: properties of the sinusoids, and positional encodings on sentences longer than any in training."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from dragoman.bench.stats import SampleStats
from dragoman.lab.comparison import TrainedComparison, train_comparison
from dragoman.lab.corpus import LengthRange, SentencePairs, SplitCorpus, bleu_in_range, format_range, is_in_range
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.plan import Comparison
from dragoman.lab.plots import COLOURS, add_colorbar, draw_lines, label_axes, line_picture, save_picture, subplots
from dragoman.lab.seeds import chance_sentence, comparison_phrase, seed_statistics
from dragoman.models.positions import sinusoids
from dragoman.report import Cell, ExperimentReport, Json, ReportPart, ReportPicture, ReportTable

TITLE = "Section 3.5: positional encoding"
QUESTION = "What do the sinusoids look like, and do they help with sentences longer than any seen in training?"
CLAIM = (
    "section 3.5: PE(pos + k) is a linear function of PE(pos). Learned positions give nearly the same quality "
    "(table 3, row E); sinusoids were chosen because they may let a model extrapolate to sentences longer than those "
    "it has seen."
)

_POSITIONS, _WIDTH = 50, 128  # of the heat map
_OFFSETS = (1, 2, 5, 10, 50)  # k of the linear maps
_FITTED_POSITIONS = 400  # to which the maps are fitted
_PAPER = "sinusoidal"
_COMPARISON = Comparison(
    {kind: {"model.positions": kind} for kind in (_PAPER, "learned", "none")}, equal="steps", optional=(("none",),)
)
_SEEN_SHARE = 0.5  # of the training sentences: those short enough to be trained on
_MIN_SENTENCES = 20  # per range of lengths, for a meaningful BLEU

_FloatMatrix = npt.NDArray[np.float64]
_BleuByLength = dict[str, list[SampleStats]]  # of each kind: one sample over seeds per range of lengths


def run(lab: Laboratory) -> ExperimentReport:
    """Draw and analyse the sinusoids, then train on short sentences and translate long ones."""
    maps = lab.measure_once("maps", lambda: [offset_map_errors(offset) for offset in _OFFSETS])
    cut = median_length_cut(lab.corpus)
    short = lab.corpus.filter_shorter_than(cut, lab.folder / "short")
    findings: tuple[str, ...] = (_map_finding(maps),)
    parts: tuple[ReportPart, ...] = (_draw_sinusoids(lab), _draw_products(lab), _map_table(maps))
    trained = train_comparison(lab, _COMPARISON, corpus=short)
    if len(trained.learned) < 2:
        return trained.refusal(findings, parts, maps=maps, cut=cut)
    pairs = lab.corpus.pairs("test")
    ranges = seen_and_unseen_ranges(pairs, cut)
    scores = {
        kind: [
            _score_model(lab, f"bleu-{kind}-{seed}", model, pairs, ranges) | {"seed": seed}
            for seed, model in zip(trained.plan.seeds, models, strict=True)
        ]
        for kind, models in trained.learned_models.items()
    }
    bleu = {
        kind: [seed_statistics(values) for values in zip(*(row["bleu"] for row in rows), strict=True)]
        for kind, rows in scores.items()
    }
    findings += (*trained.findings(), *_length_findings(bleu, ranges, cut))
    parts += (
        _explanation(cut, trained), *trained.parts(), _length_table(bleu, trained, pairs, ranges, cut),
        _draw_lengths(lab, bleu, ranges, cut),
    )  # fmt: skip
    results = {"maps": maps, "cut": cut, "ranges": [list(lengths) for lengths in ranges], "scores": scores}
    return ExperimentReport(findings, parts, {**results, "comparison": trained.results()})


# Sinusoids


def sinusoid_table(positions: int, width: int = _WIDTH) -> _FloatMatrix:
    """Return the sinusoids of the first positions in double precision (positions × width)."""
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        return sinusoids(positions, width).numpy()
    finally:
        torch.set_default_dtype(default)


def fit_offset_map(offset: int, positions: int = _FITTED_POSITIONS, width: int = _WIDTH) -> _FloatMatrix:
    """Fit by least squares the matrix M of PE(pos + offset) = M PE(pos)."""
    table = sinusoid_table(positions + offset, width)
    solution = np.linalg.lstsq(table[:positions], table[offset:], rcond=None)[0]
    return np.asarray(solution.T)


def exact_offset_map(offset: int, width: int = _WIDTH) -> _FloatMatrix:
    """Return that matrix exactly: a rotation of each pair of sine and cosine."""
    exact = np.zeros((width, width))
    for pair in range(width // 2):
        angle = offset * 10_000.0 ** (-2 * pair / width)
        cosine, sine = np.cos(angle), np.sin(angle)
        exact[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [[cosine, sine], [-sine, cosine]]
    return exact


def offset_map_errors(offset: int) -> dict[str, float]:
    """Return the largest errors of the fitted map, within and beyond the fitted positions, and of the exact one."""
    fitted_map, exact_map = fit_offset_map(offset), exact_offset_map(offset)
    table = sinusoid_table(2 * _FITTED_POSITIONS + offset)

    def error(offset_map: _FloatMatrix, start: int, stop: int) -> float:
        return float(np.abs(table[start:stop] @ offset_map.T - table[start + offset : stop + offset]).max())

    return {
        "offset": offset,
        "recovered": error(fitted_map, 0, _FITTED_POSITIONS),
        "recovered, beyond": error(fitted_map, _FITTED_POSITIONS, 2 * _FITTED_POSITIONS),
        "exact": error(exact_map, 0, 2 * _FITTED_POSITIONS),
    }


# Long sentences


def median_length_cut(corpus: SplitCorpus) -> int:
    """Return the length in words below which about half of the training sentences lie."""
    lengths = [len(source.split()) for source, _ in corpus.pairs("train")]
    return max(int(np.quantile(lengths, _SEEN_SHARE)) + 1, min(lengths) + 1)


def seen_and_unseen_ranges(pairs: SentencePairs, cut: int) -> list[LengthRange]:
    """Divide the lengths of the test sources into up to two ranges below the cut and up to three from it on."""
    lengths = sorted(len(source.split()) for source, _ in pairs)
    seen = [length for length in lengths if length < cut]
    unseen = [length for length in lengths if length >= cut]
    return [*_even_ranges(seen, 2), *_even_ranges(unseen, 3)]


def _even_ranges(lengths: Sequence[int], count: int) -> list[LengthRange]:
    """Divide sorted lengths into ranges with about as many sentences each; fewer ranges if there are few sentences."""
    if not lengths:
        return []
    count = max(1, min(count, len(lengths) // _MIN_SENTENCES))
    ends = sorted({lengths[round((number + 1) * len(lengths) / count) - 1] for number in range(count)})
    starts = [lengths[0], *(end + 1 for end in ends[:-1])]
    return list(zip(starts, ends, strict=True))


def _score_model(
    lab: Laboratory, name: str, model: TrainedModel, pairs: SentencePairs, ranges: list[LengthRange]
) -> dict[str, Json]:
    def measure() -> Json:
        if not model.diverged:  # by default a translator splits sentences longer than any in training
            model.translator.max_length = model.translator.recipe.data.longest
        translations = model.translate_sources(pairs)
        return [bleu_in_range(translations, pairs, lengths) for lengths in ranges]

    minutes = model.run.read_recipe().training.minutes
    bleu = lab.measure_once(name, measure, minutes=minutes, ranges=[list(lengths) for lengths in ranges])
    return {"bleu": bleu, "perplexity": model.perplexity, "steps": model.steps}


# Report


def _draw_sinusoids(lab: Laboratory) -> ReportPicture:
    figure, (axes,) = subplots(height=4.2)
    image = axes.imshow(sinusoid_table(_POSITIONS), cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    label_axes(axes, x_label="dimension", y_label="position")
    axes.grid(visible=False)
    add_colorbar(figure, image, [axes], "value")
    size = f"{_POSITIONS} positions in {_WIDTH} dimensions"
    caption = f"The sinusoidal encodings of the first {size}: sines in the even columns, cosines in the odd ones."
    return save_picture(figure, lab.folder / "sinusoids.png", caption)


def _draw_products(lab: Laboratory) -> ReportPicture:
    table = sinusoid_table(4 * _POSITIONS + 1)
    products = range(-2 * _POSITIONS, 2 * _POSITIONS + 1), (table @ table[2 * _POSITIONS]).tolist()
    caption = (
        "The dot product of two encodings depends only on the distance between their positions; it is symmetric and "
        "largest at zero."
    )
    return line_picture(
        lab.folder / "products.png", caption, {"": {"": products}}, x_label="distance between positions",
        y_label="dot product", height=3.8, markers=False,
    )  # fmt: skip


def _map_table(maps: Json) -> ReportTable:
    rows = tuple((row["offset"], row["recovered"], row["recovered, beyond"], row["exact"]) for row in maps)
    header = (
        "k", f"least squares, positions 0–{_FITTED_POSITIONS - 1}",
        f"the same map, positions {_FITTED_POSITIONS}–{2 * _FITTED_POSITIONS - 1}", "exact rotation",
    )  # fmt: skip
    note = (
        f"The largest error in any of {_WIDTH} dimensions at any position, in double precision. Over "
        f"{_FITTED_POSITIONS} positions the lowest-frequency sinusoids are nearly identical, so many maps fit them: "
        "the least-squares map is inaccurate at later positions, while the rotation of each pair of sine and cosine is "
        "exact at every position."
    )
    return ReportTable("The linear map from PE(pos) to PE(pos + k)", header, rows, note)


def _explanation(cut: int, trained: TrainedComparison) -> str:
    return (
        f"Models with different positions are trained on sentences of fewer than {cut} words and tested on all "
        f"lengths. {chance_sentence(len(trained.plan.seeds))} Sentences are not split before translation; by default, "
        "a sentence longer than any in training is split. Learned positions exist beyond the longest training "
        "sentence, but are untrained there."
    )


def _length_table(
    bleu: _BleuByLength, trained: TrainedComparison, pairs: SentencePairs, ranges: list[LengthRange], cut: int
) -> ReportTable:
    names = (f"{format_range(lengths)} words{'' if lengths[1] < cut else ' (unseen)'}" for lengths in ranges)
    rows: list[tuple[Cell, ...]] = [
        (kind, trained.steps[kind], *(f"{sample:,.1f}" for sample in samples)) for kind, samples in bleu.items()
    ]
    counts = (sum(is_in_range(source, lengths) for source, _ in pairs) for lengths in ranges)
    rows.append(("sentences", None, *counts))
    note = "Median over seeds, with the lowest and the highest."
    return ReportTable("BLEU by source length", ("positions", "steps", *names), rows, note)


def _draw_lengths(lab: Laboratory, bleu: _BleuByLength, ranges: list[LengthRange], cut: int) -> ReportPicture:
    figure, (axes,) = subplots(height=4.0)
    middles = [(first + last) / 2 for first, last in ranges]
    lines = {kind: (middles, [sample.median for sample in samples]) for kind, samples in bleu.items()}
    draw_lines(axes, lines, x_label="words in the source", y_label="BLEU")
    for samples, colour in zip(bleu.values(), COLOURS, strict=False):
        lowest, highest = ([getattr(sample, end) for sample in samples] for end in ("lowest", "highest"))
        axes.vlines(middles, lowest, highest, color=colour, alpha=0.5)
    axes.axvline(cut - 0.5, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylim(bottom=0)
    caption = (
        "BLEU by source length: medians, with vertical lines for the range over seeds. Right of the dotted line: "
        "longer than any training sentence."
    )
    return save_picture(figure, lab.folder / "lengths.png", caption)


def _map_finding(maps: Json) -> str:
    worst = max(maps, key=lambda row: row["recovered"])
    return (
        "PE(pos + k) is a linear function of PE(pos): the map fitted by least squares has an error of at most "
        f"{worst['recovered']:.1e} (k = {worst['offset']}) at the {_FITTED_POSITIONS} fitted positions; the exact "
        f"rotation has an error of at most {max(row['exact'] for row in maps):.1e} at twice as many positions."
    )


def _length_findings(bleu: _BleuByLength, ranges: list[LengthRange], cut: int) -> list[str]:
    """Compare the paper's positions with each other kind, for seen lengths and for longer ones."""
    findings = []
    seen = [index for index, lengths in enumerate(ranges) if lengths[1] < cut]
    unseen = [index for index, lengths in enumerate(ranges) if lengths[1] >= cut]
    for indices, name in ((seen[-1:], "seen in training"), (unseen[:1], "longer"), (unseen[1:][-1:], "the longest")):
        for index in indices:
            values = ", ".join(f"{samples[index]:,.1f} {kind}" for kind, samples in bleu.items())
            finding = f"BLEU at {format_range(ranges[index])} words ({name}): {values}."
            if _PAPER in bleu:
                comparison = " and ".join(
                    f"{comparison_phrase(bleu[_PAPER][index], samples[index], less_is_better=False)} {kind}"
                    for kind, samples in bleu.items()
                    if kind != _PAPER
                )
                finding += f" Sinusoidal is {comparison}."
            findings.append(finding)
    return findings
