"""Word alignment from cross-attention: the alignment error rate of each layer and head.

Each target token is linked to the source token with the largest weight, at the step that wrote it or at the next step,
which reads it; words are linked if any of their tokens are (`viewer/alignment.py`). The best head and step are chosen
on validation sentences and scored on test sentences, next to two baselines without attention: IBM model 1 (Brown et al.
1993), trained on the training text, and the diagonal.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dragoman.errors import UserError
from dragoman.ibm1 import likely_links, link_posteriors
from dragoman.lab.comparison import reference_refusal
from dragoman.lab.corpus import SentencePairs
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.plots import add_colorbar, draw_heat_map, save_picture, subplots
from dragoman.report import Cell, ExperimentReport, Json, ReportPicture, ReportTable
from dragoman.tasks.attention import record_attention
from dragoman.tasks.translate import Translator
from dragoman.viewer.alignment import source_and_target_words, weights_when_read, weights_when_written
from dragoman.viewer.head_statistics import FloatArray, TokenArray
from dragoman.viewer.record import AttentionRecord, AttentionWeights
from dragoman.viewer.words import word_numbers

TITLE = "Word alignment from cross-attention"
QUESTION = (
    "How accurate is the word alignment given by each layer and head, at the step that generates a word and one step "
    "later?"
)
CLAIM = (
    "section 3.2.3: in encoder–decoder attention, every decoder position attends to all source positions, as in the "
    "recurrent models of Bahdanau et al. (2014), who show alignments. The paper does not measure alignment."
)

_FULL_SECONDS = 30.0  # the budget for _SENTENCES
_SENTENCES = 400
_MIN_SENTENCES = 40
_SPLITS = ("valid", "test")
_MAX_TRAINING_PAIRS = 4000  # of IBM model 1
_READING_STEPS: dict[str, Callable[[AttentionWeights], AttentionWeights]] = {
    "when written": weights_when_written,
    "one step later": weights_when_read,
}

_WordLinks = frozenset[tuple[int, int]]  # indices of a source and a target word
_LinkRates = dict[str, float]  # error, precision and recall


def run(lab: Laboratory) -> ExperimentReport:
    """Score every head of the cross-attention against gold links, or against those of IBM model 1 if there are none."""
    reference = lab.reference_model()
    if refusal := reference_refusal(lab, reference):
        return refusal
    model = reference.translator
    count = max(_MIN_SENTENCES, int(_SENTENCES * min(lab.budget_seconds / _FULL_SECONDS, 4.0)))
    valid, test = (
        lab.measure_once(split, partial(_score_attention, lab, model, split, count), count=count) for split in _SPLITS
    )
    baselines = lab.measure_once("baselines", lambda: _score_baselines(lab, count), count=count)
    chosen = min(valid, key=lambda name: float(valid[name]["error"]), default="")
    results: dict[str, Json] = {
        "judge": "gold" if lab.corpus.links else "IBM model 1", "sentences": count, "chosen": chosen,
        "baselines": baselines, "valid": valid, "test": test,
    }  # fmt: skip
    if not chosen:
        return ExperimentReport(("This architecture has no cross-attention.",), (), results)
    return ExperimentReport(
        _findings(results), (_error_rate_table(results), _draw_error_rates(lab.folder, test)), results
    )


# Gold links


def load_aligned_pairs(lab: Laboratory, split: str, count: int) -> tuple[SentencePairs, list[_WordLinks]]:
    """Return sentence pairs of a split with their gold links, or with those of IBM model 1 if there are none."""
    pairs = [pair for pair in lab.corpus.pairs(split)[:count] if pair[0].strip() and pair[1].strip()]
    file = _gold_links_file(lab, split)
    if file is None:
        return pairs, align_with_ibm1(pairs, _training_pairs(lab))
    return pairs, [parse_links(line) for line in file.read_text(encoding="utf-8").split("\n")[: len(pairs)]]


def _training_pairs(lab: Laboratory) -> SentencePairs:
    return lab.corpus.pairs("train")[:_MAX_TRAINING_PAIRS]


def _gold_links_file(lab: Laboratory, split: str) -> Path | None:
    if lab.corpus.links is None or split == "test":
        return lab.corpus.links
    file = lab.corpus.links.with_name(lab.corpus.links.name.replace("test", split))
    if not file.exists():
        raise UserError(f"{file} is missing; the gold links of the validation split are needed to select heads.")
    return file


def parse_links(line: str) -> _WordLinks:
    """Parse links in the Pharaoh format, "0-0 1-2"."""
    return frozenset((int(i), int(j)) for i, _, j in (link.partition("-") for link in line.split()))


def align_with_ibm1(pairs: SentencePairs, training_pairs: SentencePairs) -> list[_WordLinks]:
    """Return the links of pairs on which both directions of IBM model 1 agree."""
    alignments = likely_links(_word_ids([*pairs, *training_pairs]))[: len(pairs)]
    return [frozenset((int(i), int(j)) for j, i in np.argwhere(links)) for links in alignments]


def _word_ids(pairs: Iterable[tuple[str, str]]) -> list[tuple[TokenArray, TokenArray]]:
    """Replace words by ids, ignoring case."""
    ids: dict[str, int] = {}

    def encode(text: str) -> TokenArray:
        return np.array([ids.setdefault(word.casefold(), len(ids)) for word in alignment_words(text)], np.int64)

    return [(encode(source), encode(target)) for source, target in pairs]


def alignment_words(text: str) -> list[str]:
    """Split a text into words as the viewer does."""
    groups: dict[int, str] = {}
    for number, letter in zip(word_numbers(text), text, strict=True):
        groups[number] = groups.get(number, "") + letter
    return [word.strip() for word in groups.values() if word.strip()]


def link_rates(predicted: Sequence[_WordLinks], gold: Sequence[_WordLinks]) -> _LinkRates:
    """Return the error rate, precision and recall of the links of sentences; all gold links count as sure."""
    correct = sum(len(ours & theirs) for ours, theirs in zip(predicted, gold, strict=True))
    predicted_count, gold_count = (sum(map(len, links)) for links in (predicted, gold))
    return {
        "error": 1 - 2 * correct / max(1, predicted_count + gold_count),
        "precision": correct / max(1, predicted_count),
        "recall": correct / max(1, gold_count),
    }


# Links from attention


def _score_attention(lab: Laboratory, model: Translator, split: str, count: int) -> dict[str, _LinkRates]:
    """Score the links of every head on the sentences of a split, with teacher forcing."""
    pairs, links = load_aligned_pairs(lab, split, count)
    records = record_attention(model, pairs, lab.on_event, f"alignment: recording the {split} sentences")
    predicted: dict[str, list[_WordLinks]] = {}
    for record in filter(None, records):
        for name, made in attention_links(record):
            predicted.setdefault(name, []).append(made)
    gold = [right for right, record in zip(links, records, strict=True) if record]
    return {name: link_rates(made, gold) for name, made in predicted.items()}


def attention_links(record: AttentionRecord) -> Iterator[tuple[str, _WordLinks]]:
    """Yield the links of every head, of the mean of every layer and of the mean of all, at both steps."""
    source, target = (
        np.repeat(np.arange(len(words)), [word.end - word.first for word in words])  # the word of each token
        for words in source_and_target_words(record)
    )
    for step, select_rows in _READING_STEPS.items():
        for name, weights in _head_and_mean_weights(record.cross):
            yield f"{name}, {step}", _argmax_links(select_rows(weights), source, target)


def _head_and_mean_weights(cross: AttentionWeights) -> Iterator[tuple[str, AttentionWeights]]:
    """Yield names and weights (T S)."""
    for layer, heads in enumerate(cross, 1):
        yield from ((f"layer {layer}, head {head}", weights) for head, weights in enumerate(heads, 1))
        yield f"layer {layer}, mean", heads.mean(0)
    if len(cross):
        yield "all layers, mean", cross.mean((0, 1))


def _argmax_links(
    weights: AttentionWeights | FloatArray, source: NDArray[np.int64], target: NDArray[np.int64]
) -> _WordLinks:
    """Link the word of each target token (row) to the word of the source token with the largest weight."""
    return frozenset(zip(source[weights.argmax(1)].tolist(), target.tolist(), strict=True))


# Baselines


def _score_baselines(lab: Laboratory, count: int) -> dict[str, _LinkRates]:
    """Score the diagonal and, if there are gold links, IBM model 1 in one direction and in both."""
    pairs, gold = load_aligned_pairs(lab, "test", count)
    links = {"the diagonal": [diagonal_links(*pair) for pair in pairs]}
    if lab.corpus.links:
        training = _training_pairs(lab)
        posteriors = link_posteriors(_word_ids(pair for pair in [*pairs, *training] if all(map(str.strip, pair))))
        links["IBM model 1, each target word"] = [
            _argmax_links(posterior, np.arange(posterior.shape[1]), np.arange(posterior.shape[0]))
            for posterior in posteriors[: len(pairs)]
        ]
        links["IBM model 1, where both directions agree"] = align_with_ibm1(pairs, training)
    return {name: link_rates(predicted, gold) for name, predicted in links.items()}


def diagonal_links(source: str, target: str) -> _WordLinks:
    """Link each target word to the source word at the same relative position."""
    sources, targets = len(alignment_words(source)), len(alignment_words(target))
    return frozenset((min(sources - 1, int((j + 0.5) * sources / targets)), j) for j in range(targets))


# Report


def _findings(results: Mapping[str, Json]) -> tuple[str, ...]:
    test, chosen, baselines = results["test"], results["chosen"], results["baselines"]
    best = test[chosen]
    baseline = min(baselines, key=lambda name: float(baselines[name]["error"]))
    writing, reading = (
        min((test[name]["error"], name.removesuffix(f", {step}")) for name in test if name.endswith(step))
        for step in _READING_STEPS
    )
    ibm1 = "the links that IBM model 1 predicts in both directions"
    judge = "the gold alignment" if results["judge"] == "gold" else ibm1
    others = dict.fromkeys((baseline, "the diagonal"))
    without = " and ".join(f"{baselines[name]['error']:.3f} ({name})" for name in others)
    return (
        f"The weights that were chosen on the validation sentences ({chosen}) have an alignment error rate of "
        f"{best['error']:.3f} on the test sentences, measured against {judge} (precision {best['precision']:.3f}, "
        f"recall {best['recall']:.3f}).",
        f"Without attention, the error rate is {without}.",
        "If links are read from the weights of the step that generates a word, the lowest error rate on the test "
        f"sentences is {writing[0]:.3f} ({writing[1]}); one step later, when that word is the decoder’s input, it is "
        f"{reading[0]:.3f} ({reading[1]}).",
    )


def _error_rate_table(results: Mapping[str, Json]) -> ReportTable:
    test, valid = results["test"], results["valid"]
    rows: list[tuple[Cell, ...]] = [
        (name, *_format_rates(test[name]), f"{valid[name]['error']:.3f}", "chosen" if name == results["chosen"] else "")
        for name in sorted(test, key=lambda name: float(test[name]["error"]))
    ]
    rows += [(name, *_format_rates(rates), "", "without attention") for name, rates in results["baselines"].items()]
    header = ("links from", "error rate", "precision", "recall", "error rate, validation", "")
    note = (
        "Alignment error rate: 1 − 2 · correct / (predicted + gold). Every target token except END is linked to the "
        "source token with the largest weight, so a word that translates two source words is linked to one of "
        f"them. IBM model 1 has a diagonal prior and was trained on {_MAX_TRAINING_PAIRS:,} training pairs "
        "and the test sentences."
    )
    return ReportTable(f"Alignment error rates on {results['sentences']:,} test sentences", header, rows, note)


def _format_rates(rates: Mapping[str, float]) -> tuple[str, str, str]:
    return f"{rates['error']:.3f}", f"{rates['precision']:.3f}", f"{rates['recall']:.3f}"


def _draw_error_rates(folder: Path, test: Mapping[str, Mapping[str, float]]) -> ReportPicture:
    names = [name.split(", ") for name in test if not name.startswith("all")]
    layers, columns = (list(dict.fromkeys(parts[side] for parts in names)) for side in (0, 1))
    figure, axes = subplots(
        len(_READING_STEPS), width=len(_READING_STEPS) * (0.7 * len(columns) + 1.4), height=0.5 * len(layers) + 1.6
    )
    for panel, step in zip(axes, _READING_STEPS, strict=True):
        grid = [[test[f"{layer}, {column}, {step}"]["error"] for column in columns] for layer in layers]
        image = draw_heat_map(panel, grid, 1.0, title=step, columns=columns, rows=layers)
    add_colorbar(figure, image, axes, "alignment error rate")
    caption = "Alignment error rate of each layer and head, and of each layer's mean; lower is better."
    return save_picture(figure, folder / "error-rates.png", caption)
