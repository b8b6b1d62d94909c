"""The end-to-end memory network (Sukhbaatar et al. 2015), which the paper names among its forebears: what hops are for.

A network with one, two or three hops learns to answer questions that take one, two or three sentences of a story. Each
of the nine is begun a few times (see `lab/memory_training.py` for why) and chosen on the validation split; all that is
said of it comes from the test split, which shares no story with the others.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import torch

from dragoman.corpora.stories import PEOPLE, PLACES, SPLITS, THINGS, Story, stories, story_words
from dragoman.errors import TrainingStopped
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.memory_pictures import draw_accuracy, draw_hop_weights
from dragoman.lab.memory_training import (
    EncodedStories,
    MemoryPrediction,
    MemoryTrainingConfig,
    accuracy,
    build_memory_network,
    build_vocabulary,
    encode_stories,
    predict,
    train_memory_network,
)
from dragoman.report import Cell, ExperimentReport, Json, ReportPart, ReportPicture, ReportTable
from dragoman.tasks.events import ProgressUpdate

TITLE = "Memory: several hops of attention over a story"
QUESTION = "Does a question that takes several sentences of a story need as many hops over them?"
CLAIM = (
    "Section 2: end-to-end memory networks, which attend several times over instead of step by step, do well at "
    "answering questions in simple language."
)

_FACT_COUNTS, _HOP_COUNTS = (1, 2, 3), (1, 2, 3)
_TIME_SHARES = {1: 4, 2: 8, 3: 12}  # of the time, for a training with so many facts
_TRAINING_SHARE = 0.85  # of the time; the rest goes into telling stories and drawing
_FULL_SECONDS = 180  # with which there are as many stories as this
_STORY_COUNTS = {"train": 10_000, "valid": 1000, "test": 1000}
_LINEAR_SHARES = (0.2, 0.0)  # of a training; the starts take turns
_SOLVED_ACCURACY = 0.99  # on the validation split: no need to start again
_STUCK_MARGIN = 0.1  # of accuracy below the best start of the same kind
_EXAMPLE_LENGTHS = (7, 10)  # sentences of a story that is shown, at least and at most
_FACT_NAMES = {1: "one fact", 2: "two facts", 3: "three facts"}
_ENTITY_NAMES = {name.lower() for name in PEOPLE + THINGS}
_StorySplits = dict[str, list[Story]]
_FactsAndHops = tuple[int, int]  # facts, hops
_NetworkResult = dict[str, Any]  # what was kept of a training


def run(lab: Laboratory) -> ExperimentReport:
    """Train every network, and report what each answers and looks at."""
    counts = story_counts(lab.budget_seconds)
    corpora = {facts: _StoryData(facts, counts, lab.seed) for facts in _FACT_COUNTS}
    floors = {
        facts: lab.measure_once(f"facts-{facts}", told.baselines, stories=counts) for facts, told in corpora.items()
    }
    found = {
        (facts, hops): _train_restarts(lab, corpora[facts], hops, counts)
        for facts in _FACT_COUNTS
        for hops in _HOP_COUNTS
    }
    best = {cell: max(starts, key=lambda start: start["valid"]) for cell, starts in found.items()}
    return _report(lab, counts, floors, found, best)


# The plan


def story_counts(seconds: float) -> dict[str, int]:
    """Return how many stories of each split are told: fewer when there is little time, for they take time too."""
    share = min(1.0, math.sqrt(seconds / _FULL_SECONDS))
    return {split: math.ceil(share * count) for split, count in _STORY_COUNTS.items()}


def restarts_within(seconds: float) -> int:
    """Return how often a training may be begun."""
    return min(5, max(1, round(seconds / 90)))


def training_seconds(facts: int, seconds: float) -> float:
    """Return how long one training may take."""
    trainings = len(_HOP_COUNTS) * restarts_within(seconds)
    return round(_TRAINING_SHARE * seconds * _TIME_SHARES[facts] / sum(_TIME_SHARES.values()) / trainings, 2)


# The trainings


class _StoryData:
    """The stories of one kind, told when somebody wants to hear them."""

    def __init__(self, facts: int, counts: dict[str, int], seed: int) -> None:
        self.facts, self.counts, self.seed = facts, counts, seed

    @cached_property
    def stories(self) -> _StorySplits:
        """The stories of each split."""
        return {split: list(stories(self.facts, split, self.counts[split], seed=self.seed)) for split in SPLITS}

    @cached_property
    def encoded(self) -> tuple[dict[str, int], dict[str, EncodedStories]]:
        """The numbers of the words, and the stories in them."""
        numbers = build_vocabulary(self.stories["train"])
        return numbers, {split: encode_stories(told, numbers) for split, told in self.stories.items()}

    def baselines(self) -> Json:
        """Return what needs no learning to be right, what chance finds, and the story that is shown."""
        told = self.stories
        test = told["test"]
        usual = Counter(story.answer for story in told["train"]).most_common(1)[0][0]
        return {
            "usual": _share([story.answer == usual for story in test]),
            "last mention": _share([answer_by_last_mention(story) == story.answer for story in test]),
            "chance": sum(len(story.facts) / len(story.sentences) for story in test) / len(test),
            "story": asdict(test[_example_index(test)]),
        }


def _train_restarts(lab: Laboratory, data: _StoryData, hops: int, counts: dict[str, int]) -> list[_NetworkResult]:
    """Train one kind of network from several starts, until one has learned it."""
    starts: list[_NetworkResult] = []
    for start in range(restarts_within(lab.budget_seconds)):
        seconds = training_seconds(data.facts, lab.budget_seconds)
        plan = MemoryTrainingConfig(
            hops, seconds, _LINEAR_SHARES[start % len(_LINEAR_SHARES)], seed=100 * lab.seed + start
        )
        name = f"facts-{data.facts}-hops-{hops}-start-{start + 1}"
        starts.append(
            lab.measure_once(name, partial(_train_network, lab, data, plan), plan=asdict(plan), stories=counts)
        )
        if starts[-1]["valid"] >= _SOLVED_ACCURACY:
            break
    return starts


def _train_network(lab: Laboratory, data: _StoryData, config: MemoryTrainingConfig) -> Json:
    """Train one network, and return what it has come to on the test split."""
    numbers, exams = data.encoded
    what = (
        f"memory: {_FACT_NAMES[data.facts]}, {_format_hops(config.hops)}, {config.seconds:.0f} seconds, percent of them"
    )

    def seen(part: float) -> None:
        if lab.stop.requested:
            raise TrainingStopped(f"Stopped in memory, {what}; what was finished is kept. The same command goes on.")
        lab.on_event(ProgressUpdate(what, round(100 * part), 100))

    model = build_memory_network(exams["train"], numbers, config)
    with _single_thread():
        curve = train_memory_network(model, exams["train"], exams["valid"], config, seen)
    reading = predict(model, exams["test"])
    shown = _example_index(data.stories["test"])
    answers = {number: word for word, number in numbers.items()}
    return {
        "steps": curve[-1][0], "curve": curve, "valid": curve[-1][1], "test": accuracy(model, exams["test"]),
        **supporting_fact_rates(reading, data.stories["test"]),
        "answer": answers.get(int(reading.answer[shown]), ""), "weights": reading.weights[shown].tolist(),
    }  # fmt: skip


@contextmanager
def _single_thread() -> Iterator[None]:
    """Compute with one thread inside this block: for matrices this small, several wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def supporting_fact_rates(prediction: MemoryPrediction, stories: Sequence[Story]) -> dict[str, Json]:
    """Return how often the sentence a hop looks at most is a fact, and how often all facts are among these."""
    strongest = prediction.weights.argmax(-1).tolist()  # B hops
    hits = [[look in story.facts for look in row] for row, story in zip(strongest, stories, strict=True)]
    every = [set(story.facts) <= set(row) for row, story in zip(strongest, stories, strict=True)]
    return {"hops": torch.tensor(hits).double().mean(0).tolist(), "all": _share(every)}


def answer_by_last_mention(story: Story) -> str:
    """Answer with the place in the last sentence about who or what is asked for, or else in the nearest before it."""
    asked = next(word for word in story_words(story.question) if word in _ENTITY_NAMES)
    told = [story_words(sentence) for sentence in story.sentences]
    last = max(number for number, sentence in enumerate(told) if asked in sentence)
    ruled_out = story_words(story.question)
    named = [word for sentence in told[: last + 1] for word in sentence if word in PLACES and word not in ruled_out]
    return named[-1] if named else ""


def _example_index(stories: Sequence[Story]) -> int:
    """Return the number of the first story that is short enough to be shown, whatever became of it."""
    fit = (
        number
        for number, story in enumerate(stories)
        if _EXAMPLE_LENGTHS[0] <= len(story.sentences) <= _EXAMPLE_LENGTHS[1]
    )
    return next(fit, 0)


def _share(right: Sequence[bool]) -> float:
    """Return how much of it is true."""
    return sum(right) / len(right)


# The report


def _report(
    lab: Laboratory,
    counts: dict[str, int],
    floors: dict[int, Json],
    found: dict[_FactsAndHops, list[_NetworkResult]],
    best: dict[_FactsAndHops, _NetworkResult],
) -> ExperimentReport:
    """Write down what was found."""
    draw_accuracy(lab.folder / "accuracy.png", floors, best)
    parts: list[ReportPart] = [
        _accuracy_table(floors, best, counts["test"]),
        ReportPicture(
            "accuracy.png", "Questions answered right, by the facts that they take and the hops of the network."
        ),
        _attention_table(floors, best, counts["test"]),
    ]
    for facts in _FACT_COUNTS:
        parts += _example_story(lab, facts, floors[facts]["story"], best[facts, _HOP_COUNTS[-1]])
    parts.append(_restarts_table(found, best, lab.budget_seconds))
    results = {
        "stories": counts, "floors": {str(facts): floor for facts, floor in floors.items()},
        "networks": [{"facts": facts, "hops": hops, "starts": starts} for (facts, hops), starts in found.items()],
    }  # fmt: skip
    return ExperimentReport(_findings(counts["test"], floors, found, best), tuple(parts), results)


def _findings(
    tested: int,
    floors: dict[int, Json],
    found: dict[_FactsAndHops, list[_NetworkResult]],
    best: dict[_FactsAndHops, _NetworkResult],
) -> tuple[str, ...]:
    """Say in sentences what the numbers are."""
    sentences = [accuracy_finding(facts, floors[facts], best, tested) for facts in _FACT_COUNTS]
    for facts in _FACT_COUNTS:
        looked, chance = best[facts, _HOP_COUNTS[-1]], _format_percent(floors[facts]["chance"])
        each = ", ".join(
            f"{_format_percent(hit)} at hop {hop}" for hop, hit in zip(_HOP_COUNTS, looked["hops"], strict=True)
        )
        sentences.append(
            f"With three hops and {_FACT_NAMES[facts]}, the sentence looked at most is a fact in {each} (a "
            "sentence taken "
            f"blindly: {chance}); all facts are among these sentences in {_format_percent(looked['all'])} of the "
            "stories."
        )
    trainings = [(start, best[cell]) for cell, starts in found.items() for start in starts]
    stuck = sum(start["valid"] < chosen["valid"] - _STUCK_MARGIN for start, chosen in trainings)
    sentences.append(
        f"Of {len(trainings)} trainings, {stuck} got stuck: more than {100 * _STUCK_MARGIN:.0f} points of "
        "validation behind "
        "another start of the same."
    )
    return tuple(sentences)


def accuracy_finding(facts: int, floor: Json, best: dict[_FactsAndHops, _NetworkResult], tested: int) -> str:
    """Say how many questions of a kind are answered right, and what a further hop is good for."""
    rates = [best[facts, hops]["test"] for hops in _HOP_COUNTS]
    each = ", ".join(
        f"{_format_percent(rate)} with {_format_hops(hops)}" for hops, rate in zip(_HOP_COUNTS, rates, strict=True)
    )
    gains = [
        f"{ordinal} hop {describe_gain(before, after, tested)}"
        for ordinal, (before, after) in zip(("a second", "a third"), pairwise(rates), strict=True)
    ]
    learned = max(rates) > max(floor["usual"], floor["last mention"])
    compared = f"Between the chosen starts, {', '.join(gains)}"
    verdict = compared if learned else "No network has learned more than that in its time"
    return (
        f"Questions that take {_FACT_NAMES[facts]}: {each} are answered right; the most frequent answer is right in "
        f"{_format_percent(floor['usual'])}, the last mention in {_format_percent(floor['last mention'])}. {verdict}."
    )


def describe_gain(before: float, after: float, tested: int) -> str:
    """Say what a further hop changes, if it is more than the luck of which questions were asked (95 %)."""
    luck = 1.96 * math.sqrt((before * (1 - before) + after * (1 - after)) / tested)
    if abs(after - before) <= luck:
        return "makes no clear difference"
    return f"{'adds' if after > before else 'costs'} {100 * abs(after - before):.1f} points"


def _accuracy_table(floors: dict[int, Json], best: dict[_FactsAndHops, _NetworkResult], tested: int) -> ReportTable:
    """Return the answers that are right, in percent."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            _FACT_NAMES[facts], _round_percent(floor["usual"]), _round_percent(floor["last mention"]),
            *(_round_percent(best[facts, hops]["test"]) for hops in _HOP_COUNTS),
        )
        for facts, floor in floors.items()
    )  # fmt: skip
    note = (
        f"{tested:,} test questions of each kind; the luck of which were asked is at most "
        f"±{196 * math.sqrt(0.25 / tested):.1f} points (95 %). The last mention answers with the place in the last "
        "sentence about the one who is asked for, or in the nearest sentence before it that names one. Each network is "
        "the start that validation chose; the luck of the start comes on top of that of the questions, and the last "
        "table shows how far apart the starts of one kind are."
    )
    header = ("questions that take", "most frequent answer", "last mention", *map(_format_hops, _HOP_COUNTS))
    return ReportTable("Answers that are right, %", header, rows, note)


def _attention_table(floors: dict[int, Json], best: dict[_FactsAndHops, _NetworkResult], tested: int) -> ReportTable:
    """Return where the networks look, in percent."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            _FACT_NAMES[facts], hops, *map(_round_percent, start["hops"]), *([None] * (len(_HOP_COUNTS) - hops)),
            _round_percent(start["all"]), _round_percent(floors[facts]["chance"]),
        )
        for (facts, hops), start in best.items()
    )  # fmt: skip
    header = ("questions that take", "hops", *(f"hop {hop}" for hop in _HOP_COUNTS), "all facts", "taken blindly")
    note = (
        f"How often, over {tested:,} test stories, the sentence with the greatest weight at a hop is one of the facts; "
        "how often each fact has the greatest weight at some hop; and how often a sentence taken blindly is a fact. "
        "A network is free to spread its look over several sentences, or to learn from one that is no fact."
    )
    return ReportTable("The sentence looked at most is a fact, %", header, rows, note)


def _restarts_table(
    found: dict[_FactsAndHops, list[_NetworkResult]], best: dict[_FactsAndHops, _NetworkResult], seconds: float
) -> ReportTable:
    """Return every training, the chosen ones marked."""
    rows = tuple(
        (
            _FACT_NAMES[facts],
            hops,
            number,
            100 * _LINEAR_SHARES[(number - 1) % len(_LINEAR_SHARES)],
            start["steps"],
            _round_percent(start["valid"]),
            _round_percent(start["test"]),
            "chosen" if start is best[facts, hops] else "",
        )
        for (facts, hops), starts in found.items()
        for number, start in enumerate(starts, start=1)
    )
    times = ", ".join(f"{training_seconds(facts, seconds):.1f} s with {_FACT_NAMES[facts]}" for facts in _FACT_COUNTS)
    note = (
        f"A training lasts {times}, or until validation finds no mistake. Every other start leaves the softmax of the "
        f"hops away at first (linear start). After {_format_percent(_SOLVED_ACCURACY)} on the validation "
        "split nothing is begun again."
    )
    header = ("questions that take", "hops", "start", "linear, % of the time", "steps", "validation, %", "test, %", "")
    return ReportTable("All trainings", header, rows, note)


def _example_story(lab: Laboratory, facts: int, story: Json, start: _NetworkResult) -> list[ReportPart]:
    """Return one story as a table and a picture: what three hops look at."""
    right = "which is right" if start["answer"] == story["answer"] else f"but it is “{story['answer']}”"
    says = f"“{story['question']}” The network with three hops says “{start['answer']}”, {right}."
    file = f"story-{facts}.png"
    weights = [row[: len(story["sentences"])] for row in start["weights"]]
    draw_hop_weights(lab.folder / file, story, weights, says)
    rows = tuple(
        (
            f"{number + 1}. {sentence}",
            "fact" if number in story["facts"] else "",
            *(f"{row[number]:.2f}" for row in weights),
        )
        for number, sentence in enumerate(story["sentences"])
    )
    header = ("sentence", "", *(f"hop {hop}" for hop in _HOP_COUNTS))
    caption = f"The weights of the sentences, hop by hop, for a question that takes {_FACT_NAMES[facts]}. {says}"
    note = f"The first test story with {_EXAMPLE_LENGTHS[0]} to {_EXAMPLE_LENGTHS[1]} sentences. {says}"
    return [ReportPicture(file, caption), ReportTable(f"A story with {_FACT_NAMES[facts]}", header, rows, note)]


def _format_hops(hops: int) -> str:
    """Write "1 hop", "2 hops"."""
    return f"{hops} hop" if hops == 1 else f"{hops} hops"


def _format_percent(part: float) -> str:
    """Write a share as percent."""
    return f"{_round_percent(part):g} %"


def _round_percent(part: float) -> float:
    """Return a share in percent, with one digit."""
    return round(100 * part, 1)
