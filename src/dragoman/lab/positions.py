"""Section 3.5: what the sinusoids are, and what positions are worth on sentences longer than any in training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.bench.stats import SampleStats
from dragoman.lab.corpus import SplitCorpus
from dragoman.lab.laboratory import Laboratory, TrainedModel
from dragoman.lab.lengths import LengthRange, bleu_in_range, format_range, is_in_range
from dragoman.lab.plots import COLOURS, add_colorbar, draw_lines, label_axes, save_figure, subplots
from dragoman.lab.report import Cell, ExperimentReport, Json, Picture, ReportTable
from dragoman.lab.seeds import SeedPlan, comparison_phrase, decimal_formatter, plan_seeds, seed_statistics
from dragoman.models.positions import sinusoids

TITLE = "Section 3.5: positional encoding"
QUESTION = "What do the sinusoids look like, and do they help with sentences longer than any seen in training?"
CLAIM = (
    "Section 3.5: PE(pos + k) is a linear function of PE(pos). Learned positions give nearly the same quality "
    "(table 3, row E); sinusoids were chosen because they may let a model extrapolate to sentences longer than those "
    "it has seen."
)

_POSITIONS, _WIDTH = 50, 128  # of the heat map
_OFFSETS = (1, 2, 5, 10, 50)  # between two places whose encodings a linear map connects
_FITTED_POSITIONS = 400  # from which that map is recovered
_KINDS = ("sinusoidal", "learned", "none")  # the first is the paper's
_SEEN_SHARE = 0.5  # of the training sentences: those that are short enough to be trained on
_MIN_SENTENCES = 20  # of a range of lengths: with fewer, BLEU says nothing

_FloatMatrix = npt.NDArray[np.float64]
_TextPairs = list[tuple[str, str]]


def run(lab: Laboratory) -> ExperimentReport:
    """Draw and take apart the sinusoids, then train on short sentences and translate long ones."""
    maps = lab.measure_once("maps", lambda: [offset_map_errors(offset) for offset in _OFFSETS])
    cut = median_length_cut(lab.corpus)
    short = lab.corpus.filter_shorter_than(cut, lab.folder / "short")
    plan = plan_seeds(lab.budget_seconds, len(_KINDS), lab.seed)
    pairs = lab.corpus.pairs("test")
    ranges = seen_and_unseen_ranges(pairs, cut)
    scores = {kind: [_train_and_score(lab, kind, seed, plan.seconds, short, pairs, ranges) for seed in plan.seeds]
              for kind in _KINDS}  # fmt: skip
    parts = (
        _draw_heat_map(lab), _draw_products(lab), _map_table(maps), _explanation(cut, plan),
        _length_table(scores, pairs, ranges, cut), _draw_lengths(lab, scores, ranges, cut),
    )  # fmt: skip
    results = {"maps": maps, "cut": cut, "ranges": [list(each) for each in ranges], "scores": scores}
    return ExperimentReport(_findings(maps, scores, ranges, cut), parts, {**results, "seconds_each": plan.seconds})


# The sinusoids


def sinusoid_table(positions: int, width: int = _WIDTH) -> _FloatMatrix:
    """Return the sinusoids of the first places in double precision (places × width)."""
    import torch

    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        return sinusoids(positions, width).numpy()
    finally:
        torch.set_default_dtype(before)


def fit_offset_map(offset: int, positions: int = _FITTED_POSITIONS, width: int = _WIDTH) -> _FloatMatrix:
    """Find by least squares the matrix M for which PE(pos + offset) = M PE(pos) holds best."""
    table = sinusoid_table(positions + offset, width)
    solution = np.linalg.lstsq(table[:positions], table[offset:], rcond=None)[0]
    return np.asarray(solution.T)


def exact_offset_map(offset: int, width: int = _WIDTH) -> _FloatMatrix:
    """Return that matrix exactly: each pair of sine and cosine is turned by its speed times the offset."""
    exact = np.zeros((width, width))
    for pair in range(width // 2):
        angle = offset * 10_000.0 ** (-2 * pair / width)
        cosine, sine = np.cos(angle), np.sin(angle)
        exact[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [[cosine, sine], [-sine, cosine]]
    return exact


def offset_map_errors(offset: int) -> dict[str, float]:
    """Return how far the recovered map and the exact rotation are from what they should give, and from each other.

    Errors are largest differences; they are measured at places beyond those that the map was recovered from as well.
    """
    found, exact = fit_offset_map(offset), exact_offset_map(offset)
    table = sinusoid_table(2 * _FITTED_POSITIONS + offset)
    fitted, beyond = slice(0, _FITTED_POSITIONS), slice(_FITTED_POSITIONS, 2 * _FITTED_POSITIONS)

    def error(by: _FloatMatrix, places: slice) -> float:
        moved = table[places.start + offset : places.stop + offset]
        return float(np.abs(table[places] @ by.T - moved).max())

    return {
        "offset": offset, "recovered": error(found, fitted), "recovered, beyond": error(found, beyond),
        "exact": error(exact, slice(0, 2 * _FITTED_POSITIONS)),
    }  # fmt: skip


# Longer sentences


def median_length_cut(corpus: SplitCorpus) -> int:
    """Return the length in words below which a sentence may be trained on: about half of them are."""
    lengths = [len(source.split()) for source, _ in corpus.pairs("train")]
    return max(int(np.quantile(lengths, _SEEN_SHARE)) + 1, min(lengths) + 1)


def seen_and_unseen_ranges(pairs: _TextPairs, cut: int) -> list[LengthRange]:
    """Cut the lengths of the test sources into ranges, both ends included: two that training knows, and longer ones.

    A range with too few sentences joins the one before it, but never across the cut.
    """
    lengths = sorted(len(source.split()) for source, _ in pairs)
    seen = [length for length in lengths if length < cut]
    unseen = [length for length in lengths if length >= cut]
    return [*_even_ranges(seen, 2), *_even_ranges(unseen, 3)]


def _even_ranges(lengths: Sequence[int], count: int) -> list[LengthRange]:
    """Cut sorted lengths into so many ranges with about as many sentences in each, or fewer if there are few."""
    count = max(1, min(count, len(lengths) // _MIN_SENTENCES))
    if not lengths:
        return []
    ends = sorted({lengths[round((number + 1) * len(lengths) / count) - 1] for number in range(count)})
    starts = [lengths[0], *(end + 1 for end in ends[:-1])]
    return list(zip(starts, ends, strict=True))


def _train_and_score(
    lab: Laboratory,
    kind: str,
    seed: int,
    seconds: float,
    short: SplitCorpus,
    pairs: _TextPairs,
    ranges: list[LengthRange],
) -> dict[str, Json]:
    """Train with one kind of positions on short sentences; return BLEU for each range of lengths."""
    settings: dict[str, Any] = {"model.positions": kind}
    trained = lab.train_model(f"{kind}-{seed}", settings, seconds=seconds, seed=seed, corpus=short)

    def measure() -> Json:
        translations = _translate_unsplit(trained, pairs)
        return [bleu_in_range(translations, pairs, each) for each in ranges]

    found = lab.measure_once(f"bleu-{kind}-{seed}", measure, seconds=seconds, ranges=[list(each) for each in ranges])
    return {"seed": seed, "bleu": found, "perplexity": trained.perplexity, "steps": trained.steps}


def _translate_unsplit(trained: TrainedModel, pairs: _TextPairs) -> list[str]:
    """Translate every sentence in one piece; a translator by itself would cut one that is longer than it knows."""
    if trained.diverged:
        return [""] * len(pairs)
    trained.translator.max_length = trained.translator.recipe.data.longest
    return trained.translate_sources(pairs)


# What is shown


def _draw_heat_map(lab: Laboratory) -> Picture:
    """Draw the sinusoids of 50 places in 128 dimensions."""
    figure, (axes,) = subplots(height=4.2)
    image = axes.imshow(sinusoid_table(_POSITIONS), cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    label_axes(axes, x_label="dimension", y_label="place")
    axes.grid(visible=False)
    add_colorbar(figure, image, [axes], "value")
    caption = f"The sinusoidal encodings of the first {_POSITIONS} places in {_WIDTH} dimensions: sines in the even "
    return Picture(save_figure(figure, lab.folder / "sinusoids.png"), caption + "columns, cosines in the odd ones.")


def _draw_products(lab: Laboratory) -> Picture:
    """Draw the dot product of two encodings over the distance of their places."""
    table = sinusoid_table(4 * _POSITIONS + 1)
    figure, (axes,) = subplots(height=3.8)
    distances = [float(distance) for distance in range(-2 * _POSITIONS, 2 * _POSITIONS + 1)]
    values = [float(value) for value in table @ table[2 * _POSITIONS]]
    draw_lines(
        axes, {"": (distances, values)}, x_label="distance between two places", y_label="dot product", markers=False
    )
    caption = "The dot product of two encodings depends on the distance of their places alone, the same in both "
    return Picture(save_figure(figure, lab.folder / "products.png"), caption + "directions, and is largest at zero.")


def _map_table(maps: Json) -> ReportTable:
    """Return the errors of the maps from one place to another."""
    rows = tuple((row["offset"], row["recovered"], row["recovered, beyond"], row["exact"]) for row in maps)
    header = (
        "k", f"least squares, places 0–{_FITTED_POSITIONS - 1}", f"the same map, places {_FITTED_POSITIONS}–"
        f"{2 * _FITTED_POSITIONS - 1}", "exact rotation",
    )  # fmt: skip
    note = (
        f"The largest error in any of {_WIDTH} dimensions at any place, in double precision. Over {_FITTED_POSITIONS} "
        "places the slowest waves look alike, so that many maps fit them: the one of least squares is wrong beyond, "
        "while the rotation of each pair of sine and cosine is exact at every place."
    )
    return ReportTable("The linear map from PE(pos) to PE(pos + k)", header, rows, note)


def _explanation(cut: int, seed_plan: SeedPlan) -> str:
    """Say what was trained on, and that sentences were read whole."""
    return (
        f"Three kinds of positions, trained on sentences of fewer than {cut} words and tested on all lengths. "
        f"{seed_plan} "
        "Sentences are read in one piece, though a translator in use would cut those that are longer than any it has "
        "learned from. Learned positions exist beyond the longest training sentence, but nothing was learned there."
    )


def _length_table(scores: dict[str, list[Json]], pairs: _TextPairs, ranges: list[LengthRange], cut: int) -> ReportTable:
    """Return BLEU by kind and length."""
    one = decimal_formatter(1)
    lengths = (f"{format_range(each)} words{'' if each[1] < cut else ' (unseen)'}" for each in ranges)
    rows: list[tuple[Cell, ...]] = [
        (
            kind, seed_statistics([row["steps"] for row in scores[kind]]).format(decimal_formatter(0)),
            *(_bleu_at(scores, kind, place).format(one) for place in range(len(ranges))),
        )
        for kind in _KINDS
    ]  # fmt: skip
    counts = (sum(is_in_range(source, each) for source, _ in pairs) for each in ranges)
    note = "The median of all seeds, and the lowest and highest."
    header = ("positions", "steps", *lengths)
    return ReportTable("BLEU by the length of the source", header, (*rows, ("sentences", None, *counts)), note)


def _bleu_at(scores: dict[str, list[Json]], kind: str, range_index: int) -> SampleStats:
    """Return BLEU of one kind in one range over the seeds."""
    return seed_statistics([row["bleu"][range_index] for row in scores[kind]])


def _draw_lengths(
    lab: Laboratory, scores: dict[str, list[Json]], ranges: list[LengthRange], cut: int
) -> Picture:  # fmt: skip
    """Draw BLEU over the length of the source."""
    figure, (axes,) = subplots(height=4.0)
    middles = [(first + last) / 2 for first, last in ranges]
    lines = {kind: (middles, [_bleu_at(scores, kind, place).median for place in range(len(ranges))]) for kind in _KINDS}
    draw_lines(axes, lines, x_label="words in the source", y_label="BLEU")
    for kind, colour in zip(_KINDS, COLOURS, strict=False):
        found = [_bleu_at(scores, kind, place) for place in range(len(ranges))]
        axes.vlines(middles, [each.lowest for each in found], [each.highest for each in found], color=colour, alpha=0.5)
    axes.axvline(cut - 0.5, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylim(bottom=0)
    file = save_figure(figure, lab.folder / "lengths.png")
    caption = (
        "BLEU over the length of the source: medians, and the spread over seeds as upright lines. Right of the dotted "
        "line: longer than any in training."
    )
    return Picture(file, caption)


# What was found


def _findings(maps: Json, scores: dict[str, list[Json]], ranges: list[LengthRange], cut: int) -> tuple[str, ...]:
    """Say what was found, in sentences."""
    worst = max(maps, key=lambda row: row["recovered"])
    lines = [
        f"PE(pos + k) is a linear function of PE(pos): the map recovered by least squares is off by "
        f"{worst['recovered']:.1e} at most (k = {worst['offset']}) at the {_FITTED_POSITIONS} places that it "
        "was recovered "
        f"from; the rotation that it should be, by {max(row['exact'] for row in maps):.1e} at twice as many."
    ]
    seen = [place for place, each in enumerate(ranges) if each[1] < cut]
    unseen = [place for place, each in enumerate(ranges) if each[1] >= cut]
    for places, what in ((seen[-1:], "seen in training"), (unseen[:1], "longer"), (unseen[1:][-1:], "the longest")):
        for place in places:
            where = f"BLEU at {format_range(ranges[place])} words ({what})"
            lines.append(_length_finding(where, {kind: _bleu_at(scores, kind, place) for kind in _KINDS}))
    return tuple(lines)


def _length_finding(where: str, found: dict[str, SampleStats]) -> str:
    """Compare sinusoids with the other kinds at some lengths."""
    values = ", ".join(f"{found[kind].format(decimal_formatter(1))} {kind}" for kind in _KINDS)
    verdicts = (
        f"{comparison_phrase(found[_KINDS[0]], found[kind], less_is_better=False)} {kind}" for kind in _KINDS[1:]
    )
    return f"{where}: {values}. Sinusoidal is {' and '.join(verdicts)}."
