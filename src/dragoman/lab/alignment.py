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
from dragoman.lab.drawing import bar, label, panels, save, write_numbers
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.report import Cell, Json, Picture, Report, Table
from dragoman.lab.watching import records
from dragoman.tasks.translator import Translator
from dragoman.viewer.alignment import late, prompt, text_words
from dragoman.viewer.links import likely_links, posteriors
from dragoman.viewer.record import AttentionRecord, Weights
from dragoman.viewer.statistics import Floats, Tokens
from dragoman.viewer.words import Word, places

TITLE = "Word alignment: what cross-attention knows about who translates whom"
QUESTION = "How many word alignments does each layer and head get right, when a word is written and when it was read?"
CLAIM = (
    "Section 3.2.3: in encoder–decoder attention every place of the decoder looks at all places of the source, as in "
    "the recurrent models of Bahdanau et al. (2014), who read alignments from it. The paper measures none."
)

FULL_SECONDS = 30.0  # for which this many sentences are meant
SENTENCES = 400
FEWEST = 40
SPLITS = ("valid", "test")
LESSONS = 4000  # training pairs that IBM's model learns from, at most
STEPS: dict[str, Callable[[Weights], Weights]] = {"when written": prompt, "one step later": late}

Links = frozenset[tuple[int, int]]  # words of source and target
Scores = dict[str, dict[str, float]]  # of each reading by its name: error, precision, recall


@dataclass(frozen=True)
class Counts:
    """How many links were right, made and wanted."""

    right: int = 0
    made: int = 0
    wanted: int = 0

    def plus(self, made: Links, wanted: Links) -> "Counts":
        """Count one more sentence."""
        return Counts(self.right + len(made & wanted), self.made + len(made), self.wanted + len(wanted))

    @property
    def numbers(self) -> dict[str, float]:
        """Return error rate, precision and recall; all wanted links count as sure."""
        return {
            "error": 1 - 2 * self.right / max(1, self.made + self.wanted),
            "precision": self.right / max(1, self.made),
            "recall": self.right / max(1, self.wanted),
        }


@dataclass(frozen=True)
class Golden:
    """A sentence pair with its right links."""

    source: str
    target: str
    links: Links


def run(lab: Laboratory) -> Report:
    """Score every reading of the cross-attention against the links that are known, or the likeliest."""
    model = lab.reference().translator
    count = max(FEWEST, int(SENTENCES * min(lab.budget_seconds / FULL_SECONDS, 4.0)))
    judged_by = "gold" if lab.material.links else "IBM model 1"
    valid, test = (lab.kept(split, partial(scores, lab, model, split, count), count=count) for split in SPLITS)
    rivals = lab.kept("rivals", lambda: others(lab, count), count=count)
    chosen = min(valid, key=lambda name: float(valid[name]["error"]), default="")
    results: dict[str, Json] = {
        "judge": judged_by, "sentences": count, "chosen": chosen, "rivals": rivals, "valid": valid, "test": test,
    }  # fmt: skip
    if not chosen:
        return Report(("This architecture has no attention to the source, so it aligns nothing.",), (), results)
    return Report(findings(results), (table(results), picture(lab.folder, test)), results)


# What is right


def golden(lab: Laboratory, split: str, count: int) -> list[Golden]:
    """Return sentence pairs of a split with their links: known ones, or else those that IBM's model finds likely."""
    pairs = [pair for pair in lab.material.pairs(split)[:count] if pair[0].strip() and pair[1].strip()]
    file = links_file(lab, split)
    if file is None:
        return likely(pairs, lab.material.pairs("train")[:LESSONS])
    lines = file.read_text(encoding="utf-8").split("\n")[: len(pairs)]
    return [Golden(source, target, parsed(line)) for (source, target), line in zip(pairs, lines, strict=True)]


def links_file(lab: Laboratory, split: str) -> Path | None:
    """Return the file of gold links of a split; those of the validation text stand beside those of the test text."""
    if lab.material.links is None or split == "test":
        return lab.material.links
    beside = lab.material.links.with_name(lab.material.links.name.replace("test", split))
    if not beside.exists():
        raise UserError(f"{beside} is missing: the best reading is chosen on validation links. Write them beside.")
    return beside


def parsed(line: str) -> Links:
    """Read links written as "0-0 1-2"."""
    return frozenset((int(i), int(j)) for i, _, j in (link.partition("-") for link in line.split()))


def likely(pairs: Sequence[tuple[str, str]], lessons: Sequence[tuple[str, str]]) -> list[Golden]:
    """Return the links on which IBM's first model agrees with itself in both directions."""
    found = likely_links(numbered([*pairs, *lessons]))[: len(pairs)]
    return [
        Golden(*pair, frozenset((int(i), int(j)) for j, i in np.argwhere(links)))
        for pair, links in zip(pairs, found, strict=True)
    ]


def numbered(pairs: Iterable[tuple[str, str]]) -> list[tuple[Tokens, Tokens]]:
    """Turn pairs into word numbers; words are counted as everywhere in alignments, and case does not matter."""
    numbers: dict[str, int] = {}

    def of(text: str) -> Tokens:
        return np.array([numbers.setdefault(word.casefold(), len(numbers)) for word in split_words(text)], np.int64)

    return [(of(source), of(target)) for source, target in pairs]


def split_words(text: str) -> list[str]:
    """Split a text into the words that the viewer shows."""
    groups: dict[int, str] = {}
    for place, letter in zip(places(text), text, strict=True):
        groups[place] = groups.get(place, "") + letter
    return [word.strip() for word in groups.values() if word.strip()]


# What attention says


def scores(lab: Laboratory, model: Translator, split: str, count: int) -> Scores:
    """Score every reading of the cross-attention on the sentences of a split; the model reads the right target."""
    found: dict[str, Counts] = {}
    pairs = golden(lab, split, count)
    texts = [(one.source, one.target) for one in pairs]
    for one, record in zip(pairs, records(model, texts, lab.listen, f"alignment: reading {split}"), strict=True):
        for name, made in readings(record) if record else ():
            found[name] = found.get(name, Counts()).plus(made, one.links)
    return {name: counts.numbers for name, counts in found.items()}


def readings(record: AttentionRecord) -> Iterator[tuple[str, Links]]:
    """Yield the links of every head, of the mean of every layer and of the mean of all, at either step."""
    source, target = (holders(side) for side in text_words(record))
    for step, read in STEPS.items():
        for name, weights in matrices(record.cross):
            yield f"{name}, {step}", heaviest(read(weights), source, target)


def matrices(cross: Weights) -> Iterator[tuple[str, Weights]]:
    """Yield the weights (T S) of every head, of the mean of every layer and of the mean of all, by name."""
    for layer, heads in enumerate(cross, 1):
        yield from ((f"layer {layer}, head {head}", weights) for head, weights in enumerate(heads, 1))
        yield f"layer {layer}, mean", heads.mean(0)
    if len(cross):
        yield "all layers, mean", cross.mean((0, 1))


def holders(found: Sequence[Word]) -> NDArray[np.int64]:
    """Return for each piece which word it belongs to."""
    return np.repeat(np.arange(len(found)), [word.end - word.first for word in found])


def heaviest(weights: Weights | Floats, source: NDArray[np.int64], target: NDArray[np.int64]) -> Links:
    """Link each target piece (row) to its heaviest source piece, and return the words so linked."""
    return frozenset(zip(source[weights.argmax(1)].tolist(), target.tolist(), strict=True))


# What others say


def others(lab: Laboratory, count: int) -> Scores:
    """Score IBM's first model in one direction and in both, unless it is the judge, and the diagonal."""
    pairs = golden(lab, "test", count)
    found = {"the diagonal": scored(pairs, [diagonal(one) for one in pairs])}
    if lab.material.links:
        both = [(one.source, one.target) for one in pairs] + lab.material.pairs("train")[:LESSONS]
        ibm = posteriors(numbered(pair for pair in both if pair[0].strip() and pair[1].strip()))[: len(pairs)]
        makers = [heaviest(each, np.arange(each.shape[1]), np.arange(each.shape[0])) for each in ibm]
        found["IBM model 1, each target word"] = scored(pairs, makers)
        agreed = likely([(one.source, one.target) for one in pairs], lab.material.pairs("train")[:LESSONS])
        found["IBM model 1, where both directions agree"] = scored(pairs, [one.links for one in agreed])
    return {name: counts.numbers for name, counts in found.items()}


def diagonal(one: Golden) -> Links:
    """Link each target word to the source word at the same share of the sentence."""
    sources, targets = len(split_words(one.source)), len(split_words(one.target))
    return frozenset((min(sources - 1, int((j + 0.5) * sources / targets)), j) for j in range(targets))


def scored(pairs: Sequence[Golden], made: Sequence[Links]) -> Counts:
    """Count links over sentences."""
    total = Counts()
    for one, links in zip(pairs, made, strict=True):
        total = total.plus(links, one.links)
    return total


# What is shown


def findings(results: Mapping[str, Json]) -> tuple[str, ...]:
    """Say which reading aligns best, at which step, and how the rivals do."""
    test, chosen, rivals = results["test"], results["chosen"], results["rivals"]
    best = test[chosen]
    rival = min(rivals, key=lambda name: float(rivals[name]["error"]))
    steps = [
        min((test[name]["error"], name.removesuffix(f", {step}")) for name in test if name.endswith(step))
        for step in STEPS
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


def table(results: Mapping[str, Json]) -> Table:
    """Return every reading and every rival, the best first."""
    test, valid = results["test"], results["valid"]
    rows: list[tuple[Cell, ...]] = [
        (name, *shown(test[name]), f"{valid[name]['error']:.3f}", "chosen" if name == results["chosen"] else "")
        for name in sorted(test, key=lambda name: float(test[name]["error"]))
    ]
    rows += [(name, *shown(numbers), "", "without attention") for name, numbers in results["rivals"].items()]
    header = ("reading", "error rate", "precision", "recall", "error rate, validation", "")
    note = (
        "Alignment error rate: 1 − 2 · right / (made + wanted). Every target piece makes one link, to its heaviest "
        "source piece, END left out; a word that translates two source words finds one of them only. IBM model 1 "
        f"prefers the diagonal, and learned from {LESSONS:,} training pairs and the sentences themselves."
    )
    return Table(f"Alignment error rates on {results['sentences']:,} test sentences", header, tuple(rows), note)


def shown(numbers: Mapping[str, float]) -> tuple[str, str, str]:
    """Write error rate, precision and recall."""
    return f"{numbers['error']:.3f}", f"{numbers['precision']:.3f}", f"{numbers['recall']:.3f}"


def picture(folder: Path, test: Mapping[str, Mapping[str, float]]) -> Picture:
    """Draw the error rates as maps: layers down, heads and their mean across, one map for each step."""
    named = [name.split(", ") for name in test if not name.startswith("all")]
    layers, columns = (list(dict.fromkeys(parts[place] for parts in named)) for place in (0, 1))
    figure, axes = panels(len(STEPS), width=len(STEPS) * (0.7 * len(columns) + 1.4), height=0.5 * len(layers) + 1.6)
    for place, step in zip(axes, STEPS, strict=True):
        grid = [[test[f"{layer}, {column}, {step}"]["error"] for column in columns] for layer in layers]
        image = place.imshow(grid, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        write_numbers(place, grid, 1.0)
        label(place, title=f"read {step}", across="", up="")
        place.set_xticks(range(len(columns)), columns)
        place.set_yticks(range(len(layers)), layers)
        place.grid(visible=False)
    bar(figure, image, axes, "alignment error rate")
    file = save(figure, folder / "error-rates.png")
    return Picture(file, "Alignment error rate of each layer and head, and of each layer's mean; less is better.")
