"""Section 3.5: what the sinusoids are, and what positions are worth on sentences longer than any in training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.bench.measure import Measure
from dragoman.lab.drawing import COLOURS, bar, draw_lines, label, panels, save
from dragoman.lab.laboratory import Laboratory, Trained
from dragoman.lab.lengths import Lengths, range_bleu, within, written_range
from dragoman.lab.material import Material
from dragoman.lab.repeats import Repeats, digits, over_seeds, repeats, verdict
from dragoman.lab.report import Cell, Json, Picture, Report, Table
from dragoman.model.positions import sinusoids

TITLE = "Section 3.5: positional encoding"
QUESTION = "What do the sinusoids look like, and do they help with sentences longer than any seen in training?"
CLAIM = (
    "Section 3.5: PE(pos + k) is a linear function of PE(pos). Learned positions give nearly the same quality "
    "(table 3, row E); sinusoids were chosen because they may let a model extrapolate to sentences longer than those "
    "it has seen."
)

PLACES, WIDTH = 50, 128  # of the heat map
OFFSETS = (1, 2, 5, 10, 50)  # between two places whose encodings a linear map connects
FITTED_PLACES = 400  # from which that map is recovered
KINDS = ("sinusoidal", "learned", "none")  # the first is the paper's
SEEN_SHARE = 0.5  # of the training sentences: those that are short enough to be trained on
LEAST_SENTENCES = 20  # of a range of lengths: with fewer, BLEU says nothing

Matrix = npt.NDArray[np.float64]
Pairs = list[tuple[str, str]]


def run(lab: Laboratory) -> Report:
    """Draw and take apart the sinusoids, then train on short sentences and translate long ones."""
    maps = lab.kept("maps", lambda: [map_errors(offset) for offset in OFFSETS])
    cut = length_cut(lab.material)
    short = lab.material.shorter_than(cut, lab.folder / "short")
    plan = repeats(lab.budget_seconds, len(KINDS), lab.seed)
    pairs = lab.material.pairs("test")
    ranges = length_ranges(pairs, cut)
    scores = {kind: [scored(lab, kind, seed, plan.seconds, short, pairs, ranges) for seed in plan.seeds]
              for kind in KINDS}  # fmt: skip
    parts = (
        draw_heat_map(lab), draw_products(lab), map_table(maps), explanation(cut, plan),
        length_table(scores, pairs, ranges, cut), draw_lengths(lab, scores, ranges, cut),
    )  # fmt: skip
    results = {"maps": maps, "cut": cut, "ranges": [list(each) for each in ranges], "scores": scores}
    return Report(findings(maps, scores, ranges, cut), parts, {**results, "seconds_each": plan.seconds})


# The sinusoids


def encodings(places: int, width: int = WIDTH) -> Matrix:
    """Return the sinusoids of the first places in double precision (places × width)."""
    import torch

    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        return sinusoids(places, width).numpy()
    finally:
        torch.set_default_dtype(before)


def recovered_map(offset: int, places: int = FITTED_PLACES, width: int = WIDTH) -> Matrix:
    """Find by least squares the matrix M for which PE(pos + offset) = M PE(pos) holds best."""
    table = encodings(places + offset, width)
    solution = np.linalg.lstsq(table[:places], table[offset:], rcond=None)[0]
    return np.asarray(solution.T)


def rotation(offset: int, width: int = WIDTH) -> Matrix:
    """Return that matrix exactly: each pair of sine and cosine is turned by its speed times the offset."""
    exact = np.zeros((width, width))
    for pair in range(width // 2):
        angle = offset * 10_000.0 ** (-2 * pair / width)
        cosine, sine = np.cos(angle), np.sin(angle)
        exact[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [[cosine, sine], [-sine, cosine]]
    return exact


def map_errors(offset: int) -> dict[str, float]:
    """Return how far the recovered map and the exact rotation are from what they should give, and from each other.

    Errors are largest differences; they are measured at places beyond those that the map was recovered from as well.
    """
    found, exact = recovered_map(offset), rotation(offset)
    table = encodings(2 * FITTED_PLACES + offset)
    fitted, beyond = slice(0, FITTED_PLACES), slice(FITTED_PLACES, 2 * FITTED_PLACES)

    def error(by: Matrix, places: slice) -> float:
        moved = table[places.start + offset : places.stop + offset]
        return float(np.abs(table[places] @ by.T - moved).max())

    return {
        "offset": offset, "recovered": error(found, fitted), "recovered, beyond": error(found, beyond),
        "exact": error(exact, slice(0, 2 * FITTED_PLACES)),
    }  # fmt: skip


# Longer sentences


def length_cut(material: Material) -> int:
    """Return the length in words below which a sentence may be trained on: about half of them are."""
    lengths = [len(source.split()) for source, _ in material.pairs("train")]
    return max(int(np.quantile(lengths, SEEN_SHARE)) + 1, min(lengths) + 1)


def length_ranges(pairs: Pairs, cut: int) -> list[Lengths]:
    """Cut the lengths of the test sources into ranges, both ends included: two that training knows, and longer ones.

    A range with too few sentences joins the one before it, but never across the cut.
    """
    lengths = sorted(len(source.split()) for source, _ in pairs)
    seen = [length for length in lengths if length < cut]
    unseen = [length for length in lengths if length >= cut]
    return [*even_ranges(seen, 2), *even_ranges(unseen, 3)]


def even_ranges(lengths: Sequence[int], count: int) -> list[Lengths]:
    """Cut sorted lengths into so many ranges with about as many sentences in each, or fewer if there are few."""
    count = max(1, min(count, len(lengths) // LEAST_SENTENCES))
    if not lengths:
        return []
    ends = sorted({lengths[round((number + 1) * len(lengths) / count) - 1] for number in range(count)})
    starts = [lengths[0], *(end + 1 for end in ends[:-1])]
    return list(zip(starts, ends, strict=True))


def scored(
    lab: Laboratory, kind: str, seed: int, seconds: float, short: Material, pairs: Pairs, ranges: list[Lengths]
) -> dict[str, Json]:
    """Train with one kind of positions on short sentences; return BLEU for each range of lengths."""
    settings: dict[str, Any] = {"model.positions": kind}
    trained = lab.trained(f"{kind}-{seed}", settings, seconds=seconds, seed=seed, material=short)

    def measure() -> Json:
        translations = translated_whole(trained, pairs)
        return [range_bleu(translations, pairs, each) for each in ranges]

    found = lab.kept(f"bleu-{kind}-{seed}", measure, seconds=seconds, ranges=[list(each) for each in ranges])
    return {"seed": seed, "bleu": found, "perplexity": trained.perplexity, "steps": trained.steps}


def translated_whole(trained: Trained, pairs: Pairs) -> list[str]:
    """Translate every sentence in one piece; a translator by itself would cut one that is longer than it knows."""
    if trained.diverged:
        return [""] * len(pairs)
    trained.translator.longest = trained.translator.recipe.data.longest
    return trained.translations(pairs)


# What is shown


def draw_heat_map(lab: Laboratory) -> Picture:
    """Draw the sinusoids of 50 places in 128 dimensions."""
    figure, (axes,) = panels(height=4.2)
    image = axes.imshow(encodings(PLACES), cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    label(axes, across="dimension", up="place")
    axes.grid(visible=False)
    bar(figure, image, [axes], "value")
    caption = f"The sinusoidal encodings of the first {PLACES} places in {WIDTH} dimensions: sines in the even "
    return Picture(save(figure, lab.folder / "sinusoids.png"), caption + "columns, cosines in the odd ones.")


def draw_products(lab: Laboratory) -> Picture:
    """Draw the dot product of two encodings over the distance of their places."""
    table = encodings(4 * PLACES + 1)
    figure, (axes,) = panels(height=3.8)
    distances = [float(distance) for distance in range(-2 * PLACES, 2 * PLACES + 1)]
    values = [float(value) for value in table @ table[2 * PLACES]]
    draw_lines(axes, {"": (distances, values)}, across="distance between two places", up="dot product", markers=False)
    caption = "The dot product of two encodings depends on the distance of their places alone, the same in both "
    return Picture(save(figure, lab.folder / "products.png"), caption + "directions, and is largest at zero.")


def map_table(maps: Json) -> Table:
    """Return the errors of the maps from one place to another."""
    rows = tuple((row["offset"], row["recovered"], row["recovered, beyond"], row["exact"]) for row in maps)
    header = (
        "k", f"least squares, places 0–{FITTED_PLACES - 1}", f"the same map, places {FITTED_PLACES}–"
        f"{2 * FITTED_PLACES - 1}", "exact rotation",
    )  # fmt: skip
    note = (
        f"The largest error in any of {WIDTH} dimensions at any place, in double precision. Over {FITTED_PLACES} "
        "places the slowest waves look alike, so that many maps fit them: the one of least squares is wrong beyond, "
        "while the rotation of each pair of sine and cosine is exact at every place."
    )
    return Table("The linear map from PE(pos) to PE(pos + k)", header, rows, note)


def explanation(cut: int, plan: Repeats) -> str:
    """Say what was trained on, and that sentences were read whole."""
    return (
        f"Three kinds of positions, trained on sentences of fewer than {cut} words and tested on all lengths. {plan} "
        "Sentences are read in one piece, though a translator in use would cut those that are longer than any it has "
        "learned from. Learned positions exist beyond the longest training sentence, but nothing was learned there."
    )


def length_table(scores: dict[str, list[Json]], pairs: Pairs, ranges: list[Lengths], cut: int) -> Table:
    """Return BLEU by kind and length."""
    one = digits(1)
    lengths = (f"{written_range(each)} words{'' if each[1] < cut else ' (unseen)'}" for each in ranges)
    rows: list[tuple[Cell, ...]] = [
        (
            kind, over_seeds([row["steps"] for row in scores[kind]]).written(digits(0)),
            *(at(scores, kind, place).written(one) for place in range(len(ranges))),
        )
        for kind in KINDS
    ]  # fmt: skip
    counts = (sum(within(source, each) for source, _ in pairs) for each in ranges)
    note = "The median of all seeds, and the lowest and highest."
    header = ("positions", "steps", *lengths)
    return Table("BLEU by the length of the source", header, (*rows, ("sentences", None, *counts)), note)


def at(scores: dict[str, list[Json]], kind: str, place: int) -> Measure:
    """Return BLEU of one kind in one range over the seeds."""
    return over_seeds([row["bleu"][place] for row in scores[kind]])


def draw_lengths(
    lab: Laboratory, scores: dict[str, list[Json]], ranges: list[Lengths], cut: int
) -> Picture:  # fmt: skip
    """Draw BLEU over the length of the source."""
    figure, (axes,) = panels(height=4.0)
    middles = [(first + last) / 2 for first, last in ranges]
    lines = {kind: (middles, [at(scores, kind, place).median for place in range(len(ranges))]) for kind in KINDS}
    draw_lines(axes, lines, across="words in the source", up="BLEU")
    for kind, colour in zip(KINDS, COLOURS, strict=False):
        found = [at(scores, kind, place) for place in range(len(ranges))]
        axes.vlines(middles, [each.lowest for each in found], [each.highest for each in found], color=colour, alpha=0.5)
    axes.axvline(cut - 0.5, color="0.4", linestyle=":", linewidth=1)
    axes.set_ylim(bottom=0)
    file = save(figure, lab.folder / "lengths.png")
    caption = (
        "BLEU over the length of the source: medians, and the spread over seeds as upright lines. Right of the dotted "
        "line: longer than any in training."
    )
    return Picture(file, caption)


# What was found


def findings(maps: Json, scores: dict[str, list[Json]], ranges: list[Lengths], cut: int) -> tuple[str, ...]:
    """Say what was found, in sentences."""
    worst = max(maps, key=lambda row: row["recovered"])
    lines = [
        f"PE(pos + k) is a linear function of PE(pos): the map recovered by least squares is off by "
        f"{worst['recovered']:.1e} at most (k = {worst['offset']}) at the {FITTED_PLACES} places that it was recovered "
        f"from; the rotation that it should be, by {max(row['exact'] for row in maps):.1e} at twice as many."
    ]
    seen = [place for place, each in enumerate(ranges) if each[1] < cut]
    unseen = [place for place, each in enumerate(ranges) if each[1] >= cut]
    for places, what in ((seen[-1:], "seen in training"), (unseen[:1], "longer"), (unseen[1:][-1:], "the longest")):
        for place in places:
            where = f"BLEU at {written_range(ranges[place])} words ({what})"
            lines.append(finding(where, {kind: at(scores, kind, place) for kind in KINDS}))
    return tuple(lines)


def finding(where: str, found: dict[str, Measure]) -> str:
    """Compare sinusoids with the other kinds at some lengths."""
    values = ", ".join(f"{found[kind].written(digits(1))} {kind}" for kind in KINDS)
    verdicts = (f"{verdict(found[KINDS[0]], found[kind], less_is_better=False)} {kind}" for kind in KINDS[1:])
    return f"{where}: {values}. Sinusoidal is {' and '.join(verdicts)}."
