"""Word alignment from cross-attention: how well each layer and head says which word translates which.

Each target piece is linked to the source piece with the largest weight, at the step that wrote it or at the next one,
which has just read it; words are linked if any of their pieces are (`viewer/alignment.py`). The best reading is chosen
on validation sentences and judged on test sentences, beside IBM's first model (Brown et al. 1993), which has seen the
training text and no attention, and beside the diagonal, which has seen nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dragoman.errors import UserError
from dragoman.ibm1 import likely_links, link_posteriors
from dragoman.lab.attention_records import record_attention
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.plots import add_colorbar, label_axes, save_figure, subplots, write_cell_values
from dragoman.lab.report import Cell, ExperimentReport, Json, Picture, ReportTable
from dragoman.tasks.translator import Translator
from dragoman.viewer.alignment import source_and_target_words, weights_when_read, weights_when_written
from dragoman.viewer.head_statistics import FloatArray, TokenArray
from dragoman.viewer.record import AttentionRecord, AttentionWeights
from dragoman.viewer.words import WordSpan, word_numbers

TITLE = "Word alignment: what cross-attention knows about who translates whom"
QUESTION = "How many word alignments does each layer and head get right, when a word is written and when it was read?"
CLAIM = (
    "Section 3.2.3: in encoder–decoder attention every place of the decoder looks at all places of the source, as in "
    "the recurrent models of Bahdanau et al. (2014), who read alignments from it. The paper measures none."
)

_FULL_SECONDS = 30.0  # for which this many sentences are meant
_SENTENCES = 400
_MIN_SENTENCES = 40
_SPLITS = ("valid", "test")
_MAX_TRAINING_PAIRS = 4000  # training pairs that IBM's model learns from, at most
_READING_STEPS: dict[str, Callable[[AttentionWeights], AttentionWeights]] = {
    "when written": weights_when_written,
    "one step later": weights_when_read,
}

_WordLinks = frozenset[tuple[int, int]]  # words of source and target
_AlignmentScores = dict[str, dict[str, float]]  # of each reading by its name: error, precision, recall


@dataclass(frozen=True)
class LinkCounts:
    """How many links were right, made and wanted."""

    correct: int = 0
    predicted: int = 0
    gold: int = 0

    def add(self, predicted: _WordLinks, gold: _WordLinks) -> "LinkCounts":
        """Count one more sentence."""
        return LinkCounts(self.correct + len(predicted & gold), self.predicted + len(predicted), self.gold + len(gold))

    @property
    def rates(self) -> dict[str, float]:
        """Return error rate, precision and recall; all wanted links count as sure."""
        return {
            "error": 1 - 2 * self.correct / max(1, self.predicted + self.gold),
            "precision": self.correct / max(1, self.predicted),
            "recall": self.correct / max(1, self.gold),
        }


@dataclass(frozen=True)
class AlignedPair:
    """A sentence pair with its right links."""

    source: str
    target: str
    links: _WordLinks


def run(lab: Laboratory) -> ExperimentReport:
    """Score every reading of the cross-attention against the links that are known, or the likeliest."""
    model = lab.reference_model().translator
    count = max(_MIN_SENTENCES, int(_SENTENCES * min(lab.budget_seconds / _FULL_SECONDS, 4.0)))
    judged_by = "gold" if lab.corpus.links else "IBM model 1"
    valid, test = (
        lab.measure_once(split, partial(_score_attention, lab, model, split, count), count=count) for split in _SPLITS
    )
    rivals = lab.measure_once("rivals", lambda: _score_baselines(lab, count), count=count)
    chosen = min(valid, key=lambda name: float(valid[name]["error"]), default="")
    results: dict[str, Json] = {
        "judge": judged_by, "sentences": count, "chosen": chosen, "rivals": rivals, "valid": valid, "test": test,
    }  # fmt: skip
    if not chosen:
        return ExperimentReport(
            ("This architecture has no attention to the source, so it aligns nothing.",), (), results
        )
    return ExperimentReport(
        _findings(results), (_error_rate_table(results), _draw_error_rates(lab.folder, test)), results
    )


# What is right


def load_aligned_pairs(lab: Laboratory, split: str, count: int) -> list[AlignedPair]:
    """Return sentence pairs of a split with their links: known ones, or else those that IBM's model finds likely."""
    pairs = [pair for pair in lab.corpus.pairs(split)[:count] if pair[0].strip() and pair[1].strip()]
    file = _gold_links_file(lab, split)
    if file is None:
        return align_with_ibm1(pairs, lab.corpus.pairs("train")[:_MAX_TRAINING_PAIRS])
    lines = file.read_text(encoding="utf-8").split("\n")[: len(pairs)]
    return [AlignedPair(source, target, parse_links(line)) for (source, target), line in zip(pairs, lines, strict=True)]


def _gold_links_file(lab: Laboratory, split: str) -> Path | None:
    """Return the file of gold links of a split; those of the validation text stand beside those of the test text."""
    if lab.corpus.links is None or split == "test":
        return lab.corpus.links
    beside = lab.corpus.links.with_name(lab.corpus.links.name.replace("test", split))
    if not beside.exists():
        raise UserError(f"{beside} is missing: the best reading is chosen on validation links. Write them beside.")
    return beside


def parse_links(line: str) -> _WordLinks:
    """Read links written as "0-0 1-2"."""
    return frozenset((int(i), int(j)) for i, _, j in (link.partition("-") for link in line.split()))


def align_with_ibm1(pairs: Sequence[tuple[str, str]], training_pairs: Sequence[tuple[str, str]]) -> list[AlignedPair]:
    """Return the links on which IBM's first model agrees with itself in both directions."""
    found = likely_links(_word_ids([*pairs, *training_pairs]))[: len(pairs)]
    return [
        AlignedPair(*pair, frozenset((int(i), int(j)) for j, i in np.argwhere(links)))
        for pair, links in zip(pairs, found, strict=True)
    ]


def _word_ids(pairs: Iterable[tuple[str, str]]) -> list[tuple[TokenArray, TokenArray]]:
    """Turn pairs into word numbers; words are counted as everywhere in alignments, and case does not matter."""
    numbers: dict[str, int] = {}

    def of(text: str) -> TokenArray:
        return np.array([numbers.setdefault(word.casefold(), len(numbers)) for word in alignment_words(text)], np.int64)

    return [(of(source), of(target)) for source, target in pairs]


def alignment_words(text: str) -> list[str]:
    """Split a text into the words that the viewer shows."""
    groups: dict[int, str] = {}
    for place, letter in zip(word_numbers(text), text, strict=True):
        groups[place] = groups.get(place, "") + letter
    return [word.strip() for word in groups.values() if word.strip()]


# What attention says


def _score_attention(lab: Laboratory, model: Translator, split: str, count: int) -> _AlignmentScores:
    """Score every reading of the cross-attention on the sentences of a split; the model reads the right target."""
    found: dict[str, LinkCounts] = {}
    pairs = load_aligned_pairs(lab, split, count)
    texts = [(one.source, one.target) for one in pairs]
    for one, record in zip(
        pairs, record_attention(model, texts, lab.on_event, f"alignment: reading {split}"), strict=True
    ):
        for name, made in attention_links(record) if record else ():
            found[name] = found.get(name, LinkCounts()).add(made, one.links)
    return {name: counts.rates for name, counts in found.items()}


def attention_links(record: AttentionRecord) -> Iterator[tuple[str, _WordLinks]]:
    """Yield the links of every head, of the mean of every layer and of the mean of all, at either step."""
    source, target = (_word_of_each_piece(side) for side in source_and_target_words(record))
    for step, read in _READING_STEPS.items():
        for name, weights in _head_and_mean_weights(record.cross):
            yield f"{name}, {step}", _argmax_links(read(weights), source, target)


def _head_and_mean_weights(cross: AttentionWeights) -> Iterator[tuple[str, AttentionWeights]]:
    """Yield the weights (T S) of every head, of the mean of every layer and of the mean of all, by name."""
    for layer, heads in enumerate(cross, 1):
        yield from ((f"layer {layer}, head {head}", weights) for head, weights in enumerate(heads, 1))
        yield f"layer {layer}, mean", heads.mean(0)
    if len(cross):
        yield "all layers, mean", cross.mean((0, 1))


def _word_of_each_piece(words: Sequence[WordSpan]) -> NDArray[np.int64]:
    """Return for each piece which word it belongs to."""
    return np.repeat(np.arange(len(words)), [word.end - word.first for word in words])


def _argmax_links(
    weights: AttentionWeights | FloatArray, source: NDArray[np.int64], target: NDArray[np.int64]
) -> _WordLinks:
    """Link each target piece (row) to its heaviest source piece, and return the words so linked."""
    return frozenset(zip(source[weights.argmax(1)].tolist(), target.tolist(), strict=True))


# What others say


def _score_baselines(lab: Laboratory, count: int) -> _AlignmentScores:
    """Score IBM's first model in one direction and in both, unless it is the judge, and the diagonal."""
    pairs = load_aligned_pairs(lab, "test", count)
    found = {"the diagonal": _count_links(pairs, [diagonal_links(one) for one in pairs])}
    if lab.corpus.links:
        both = [(one.source, one.target) for one in pairs] + lab.corpus.pairs("train")[:_MAX_TRAINING_PAIRS]
        ibm = link_posteriors(_word_ids(pair for pair in both if pair[0].strip() and pair[1].strip()))[: len(pairs)]
        makers = [_argmax_links(each, np.arange(each.shape[1]), np.arange(each.shape[0])) for each in ibm]
        found["IBM model 1, each target word"] = _count_links(pairs, makers)
        agreed = align_with_ibm1(
            [(one.source, one.target) for one in pairs], lab.corpus.pairs("train")[:_MAX_TRAINING_PAIRS]
        )
        found["IBM model 1, where both directions agree"] = _count_links(pairs, [one.links for one in agreed])
    return {name: counts.rates for name, counts in found.items()}


def diagonal_links(pair: AlignedPair) -> _WordLinks:
    """Link each target word to the source word at the same share of the sentence."""
    sources, targets = len(alignment_words(pair.source)), len(alignment_words(pair.target))
    return frozenset((min(sources - 1, int((j + 0.5) * sources / targets)), j) for j in range(targets))


def _count_links(pairs: Sequence[AlignedPair], predicted: Sequence[_WordLinks]) -> LinkCounts:
    """Count links over sentences."""
    total = LinkCounts()
    for one, links in zip(pairs, predicted, strict=True):
        total = total.add(links, one.links)
    return total


# What is shown


def _findings(results: Mapping[str, Json]) -> tuple[str, ...]:
    """Say which reading aligns best, at which step, and how the rivals do."""
    test, chosen, rivals = results["test"], results["chosen"], results["rivals"]
    best = test[chosen]
    rival = min(rivals, key=lambda name: float(rivals[name]["error"]))
    steps = [
        min((test[name]["error"], name.removesuffix(f", {step}")) for name in test if name.endswith(step))
        for step in _READING_STEPS
    ]
    judge = "the gold alignment" if results["judge"] == "gold" else "what IBM's first model is sure of"
    others = "" if rival == "the diagonal" else f", the diagonal {rivals['the diagonal']['error']:.3f}"
    (written, by), (later, by_later) = steps
    return (
        f"The reading chosen on validation sentences ({chosen}) has an alignment error rate of {best['error']:.3f} on "
        f"test sentences against {judge} (precision {best['precision']:.3f}, recall {best['recall']:.3f}).",
        f"Without attention: {rival} {rivals[rival]['error']:.3f}{others}.",
        f"At the step that writes a word the best reading has {written:.3f} ({by}); one step later, when the word has "
        f"just been read, {later:.3f} ({by_later}).",
    )


def _error_rate_table(results: Mapping[str, Json]) -> ReportTable:
    """Return every reading and every rival, the best first."""
    test, valid = results["test"], results["valid"]
    rows: list[tuple[Cell, ...]] = [
        (name, *_format_rates(test[name]), f"{valid[name]['error']:.3f}", "chosen" if name == results["chosen"] else "")
        for name in sorted(test, key=lambda name: float(test[name]["error"]))
    ]
    rows += [(name, *_format_rates(numbers), "", "without attention") for name, numbers in results["rivals"].items()]
    header = ("reading", "error rate", "precision", "recall", "error rate, validation", "")
    note = (
        "Alignment error rate: 1 − 2 · right / (made + wanted). Every target piece makes one link, to its heaviest "
        "source piece, END left out; a word that translates two source words finds one of them only. IBM model 1 "
        f"prefers the diagonal, and learned from {_MAX_TRAINING_PAIRS:,} training pairs and the sentences themselves."
    )
    return ReportTable(f"Alignment error rates on {results['sentences']:,} test sentences", header, tuple(rows), note)


def _format_rates(rates: Mapping[str, float]) -> tuple[str, str, str]:
    """Write error rate, precision and recall."""
    return f"{rates['error']:.3f}", f"{rates['precision']:.3f}", f"{rates['recall']:.3f}"


def _draw_error_rates(folder: Path, test: Mapping[str, Mapping[str, float]]) -> Picture:
    """Draw the error rates as maps: layers down, heads and their mean across, one map for each step."""
    named = [name.split(", ") for name in test if not name.startswith("all")]
    layers, columns = (list(dict.fromkeys(parts[place] for parts in named)) for place in (0, 1))
    figure, axes = subplots(
        len(_READING_STEPS), width=len(_READING_STEPS) * (0.7 * len(columns) + 1.4), height=0.5 * len(layers) + 1.6
    )
    for place, step in zip(axes, _READING_STEPS, strict=True):
        grid = [[test[f"{layer}, {column}, {step}"]["error"] for column in columns] for layer in layers]
        image = place.imshow(grid, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        write_cell_values(place, grid, 1.0)
        label_axes(place, title=f"read {step}", x_label="", y_label="")
        place.set_xticks(range(len(columns)), columns)
        place.set_yticks(range(len(layers)), layers)
        place.grid(visible=False)
    add_colorbar(figure, image, axes, "alignment error rate")
    file = save_figure(figure, folder / "error-rates.png")
    return Picture(file, "Alignment error rate of each layer and head, and of each layer's mean; less is better.")
