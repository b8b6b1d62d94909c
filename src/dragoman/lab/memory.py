"""The end-to-end memory network (Sukhbaatar et al. 2015), one of the models behind the paper: the effect of hops.

Networks with one, two or three hops are trained to answer questions that depend on one, two or three sentences of a
story. Each of the nine is trained from several starts (`lab/memory_training.py` explains why) and the best is chosen on
the validation split; all reported numbers are of the test split, which shares no story with the others.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from dragoman.corpora.stories import PEOPLE, PLACES, SPLITS, THINGS, Story, stories, story_words
from dragoman.errors import TrainingStopped, format_count
from dragoman.lab.comparison import has_learned, nothing_learned
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.memory_training import (
    EncodedStories,
    MemoryTrainingConfig,
    accuracy,
    answer_loss,
    build_memory_network,
    build_vocabulary,
    encode_stories,
    predict,
    train_memory_network,
)
from dragoman.lab.plots import add_colorbar, draw_heat_map, label_axes, save_picture, subplots
from dragoman.report import Cell, ExperimentReport, Json, ReportPart, ReportPicture, ReportTable
from dragoman.tasks.events import Notice, ProgressUpdate

TITLE = "Memory: several hops of attention over a story"
QUESTION = "Does a question that depends on several sentences of a story need one hop per sentence?"
CLAIM = (
    "section 2: end-to-end memory networks, based on a recurrent attention mechanism instead of sequence-aligned "
    "recurrence, perform well on simple-language question answering."
)

_FACT_COUNTS, _HOP_COUNTS = (1, 2, 3), (1, 2, 3)
_TIME_SHARES = {1: 4, 2: 8, 3: 12}  # of trainings by the number of facts, relative to each other
_TRAINING_SHARE = 0.85  # of the budget; the rest is for generating stories and drawing
_FULL_SECONDS = 180  # the budget for _STORY_COUNTS
_STORY_COUNTS = {"train": 10_000, "valid": 1000, "test": 1000}
_LINEAR_SHARES = (0.2, 0.0)  # of a training, alternating between starts
_SOLVED_ACCURACY = 0.99  # on the validation split, after which there are no further starts
_STUCK_MARGIN = 0.1  # of accuracy, below the best start of the same kind
_EXAMPLE_LENGTHS = (7, 10)  # fewest and most sentences of the example story
_FACT_NAMES = {1: "one fact", 2: "two facts", 3: "three facts"}
_ENTITY_NAMES = {name.lower() for name in PEOPLE + THINGS}

_HOP_COLOURS = ("#a6cee3", "#1f78b4", "#08306b")  # darker with more hops, readable in greyscale
_BASELINE_STYLES = {"usual": ("most frequent answer", "--"), "last mention": ("last mention", ":")}
_BAR_WIDTH, _GROUP_WIDTH = 0.25, 0.8  # relative to the distance between groups
_ROW_HEIGHT = 0.3  # inches

_FactsAndHops = tuple[int, int]
_NetworkResult = dict[str, Any]  # the stored result of a training
_BestNetworks = Mapping[_FactsAndHops, _NetworkResult]


def run(lab: Laboratory) -> ExperimentReport:
    """Train all networks and report their answers and attention."""
    counts = story_counts(lab.budget_seconds)
    plan = _describe_plan(lab.budget_seconds)
    lab.on_event(Notice(f"{lab.name}: {plan}"))
    data = {facts: _StoryData(facts, counts, lab.seed) for facts in _FACT_COUNTS}
    baselines = {facts: lab.measure_once(f"facts-{facts}", data[facts].baselines, stories=counts) for facts in data}
    starts = {
        (facts, hops): _train_starts(lab, data[facts], hops, counts) for facts in _FACT_COUNTS for hops in _HOP_COUNTS
    }
    best = {key: max(trained, key=lambda start: float(start["valid"])) for key, trained in starts.items()}
    parts: tuple[ReportPart, ...] = (
        plan,
        _accuracy_table(baselines, best, counts["test"]),
        _draw_accuracy(lab, baselines, best),
        _attention_table(baselines, best, counts["test"]),
        *(_draw_example(lab, facts, baselines[facts]["story"], best[facts, _HOP_COUNTS[-1]]) for facts in _FACT_COUNTS),
        _starts_table(starts, best, lab.budget_seconds),
    )
    results = {
        "stories": counts, "baselines": {str(facts): baseline for facts, baseline in baselines.items()},
        "networks": [{"facts": facts, "hops": hops, "starts": each} for (facts, hops), each in starts.items()],
    }  # fmt: skip
    minutes = _needed_minutes(lab.budget_seconds)
    return ExperimentReport(_findings(counts["test"], baselines, starts, best, minutes), parts, results)


# Budget


def story_counts(seconds: float) -> dict[str, int]:
    """Return the number of stories per split; fewer for a small budget, since generating them takes time."""
    share = min(1.0, math.sqrt(seconds / _FULL_SECONDS))
    return {split: math.ceil(share * count) for split, count in _STORY_COUNTS.items()}


def starts_within(seconds: float) -> int:
    """Return the number of starts per network."""
    return min(5, max(1, round(seconds / 90)))


def training_seconds(facts: int, seconds: float) -> float:
    """Return the seconds of one training."""
    trainings = len(_HOP_COUNTS) * starts_within(seconds)
    return round(_TRAINING_SHARE * seconds * _TIME_SHARES[facts] / sum(_TIME_SHARES.values()) / trainings, 2)


def _describe_plan(seconds: float) -> str:
    """Return the plan: the number of networks and starts, and the time of a training."""
    networks, starts = len(_FACT_COUNTS) * len(_HOP_COUNTS), starts_within(seconds)
    times = [training_seconds(facts, seconds) for facts in (_FACT_COUNTS[0], _FACT_COUNTS[-1])]
    return (
        f"{networks} networks with up to {format_count(starts, 'start')} each, {times[0]:.1f}–{times[1]:.1f} s per "
        "start; networks for the same number of facts are compared after the same training time."
    )


def _needed_minutes(seconds: float) -> int:
    """Estimate the budget in which networks learn: that of docs/results.md, and at least twice the present one."""
    return math.ceil(max(_FULL_SECONDS, 2 * seconds) / 60)


# Training


class _StoryData:
    """The stories with one number of facts, generated when they are first used."""

    def __init__(self, facts: int, counts: dict[str, int], seed: int) -> None:
        self.facts, self.counts, self.seed = facts, counts, seed

    @cached_property
    def stories(self) -> dict[str, list[Story]]:
        return {split: list(stories(self.facts, split, self.counts[split], seed=self.seed)) for split in SPLITS}

    @cached_property
    def encoded(self) -> tuple[dict[str, int], dict[str, EncodedStories]]:
        """The vocabulary, and the encoded stories of each split."""
        vocabulary = build_vocabulary(self.stories["train"])
        return vocabulary, {split: encode_stories(stories, vocabulary) for split, stories in self.stories.items()}

    def baselines(self) -> Json:
        """Return the accuracy of answers without learning, the share of facts among sentences, and the example."""
        test = self.stories["test"]
        usual = Counter(story.answer for story in self.stories["train"]).most_common(1)[0][0]
        return {
            "unigram loss": unigram_answer_loss(self.stories["train"], self.stories["valid"]),
            "usual": _share([story.answer == usual for story in test]),
            "last mention": _share([answer_by_last_mention(story) == story.answer for story in test]),
            "chance": sum(len(story.facts) / len(story.sentences) for story in test) / len(test),
            "story": asdict(test[_example_index(test)]),
        }


def unigram_answer_loss(training: Sequence[Story], validation: Sequence[Story]) -> float:
    """Return the validation loss of predicting every answer by its frequency in the training stories."""
    counts = Counter(story.answer for story in training)
    total = len(training) + len(counts) + 1  # add-one smoothing; one answer may be unknown
    return -sum(math.log((counts[story.answer] + 1) / total) for story in validation) / len(validation)


def _train_starts(lab: Laboratory, data: _StoryData, hops: int, counts: dict[str, int]) -> list[_NetworkResult]:
    """Train one kind of network from several starts, until one has solved the task."""
    starts: list[_NetworkResult] = []
    seconds = training_seconds(data.facts, lab.budget_seconds)
    for start in range(starts_within(lab.budget_seconds)):
        linear_share = _LINEAR_SHARES[start % len(_LINEAR_SHARES)]
        config = MemoryTrainingConfig(hops, seconds, linear_share, seed=100 * lab.seed + start)
        name = f"facts-{data.facts}-hops-{hops}-start-{start + 1}"
        train = partial(_train_network, lab, data, config)
        starts.append(lab.measure_once(name, train, plan=asdict(config), stories=counts))
        if starts[-1]["valid"] >= _SOLVED_ACCURACY:
            break
    return starts


def _train_network(lab: Laboratory, data: _StoryData, config: MemoryTrainingConfig) -> Json:
    vocabulary, splits = data.encoded
    name = f"memory: {_FACT_NAMES[data.facts]}, {_format_hops(config.hops)}"

    def on_progress(share: float) -> None:
        if lab.stop.requested:
            raise TrainingStopped(
                f"Stopped during {name}; finished trainings are saved. Run the same command to continue."
            )
        lab.on_event(ProgressUpdate(f"{name}, percent of {config.seconds:.0f} seconds", round(100 * share), 100))

    model = build_memory_network(splits["train"], vocabulary, config)
    with _single_thread():
        curve = train_memory_network(model, splits["train"], splits["valid"], config, on_progress)
    answers, weights = predict(model, splits["test"])
    example = _example_index(data.stories["test"])
    words = {token: word for word, token in vocabulary.items()}
    return {
        "steps": curve[-1][0], "curve": curve, "valid": curve[-1][1], "test": accuracy(model, splits["test"]),
        "loss": answer_loss(model, splits["valid"]),
        **supporting_fact_rates(weights, data.stories["test"]),
        "answer": words.get(int(answers[example]), ""), "weights": weights[example].tolist(),
    }  # fmt: skip


@contextmanager
def _single_thread() -> Iterator[None]:
    """Use one thread of torch, which is faster for matrices this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def supporting_fact_rates(weights: Tensor, stories: Sequence[Story]) -> dict[str, Json]:
    """Return how often the largest weight of each hop is on a fact, and how often all facts are among these."""
    strongest = weights.argmax(-1).tolist()  # B hops
    rows = list(zip(strongest, stories, strict=True))
    hits = [[sentence in story.facts for sentence in row] for row, story in rows]
    return {
        "hops": torch.tensor(hits).double().mean(0).tolist(),
        "all": _share([set(story.facts) <= set(row) for row, story in rows]),
    }


def answer_by_last_mention(story: Story) -> str:
    """Return the place in the last sentence that mentions the subject of the question, or in the nearest before it."""
    question = story_words(story.question)
    subject = next(word for word in question if word in _ENTITY_NAMES)
    sentences = [story_words(sentence) for sentence in story.sentences]
    last = max(number for number, sentence in enumerate(sentences) if subject in sentence)
    mentioned = (word for sentence in sentences[: last + 1] for word in sentence)
    places = [word for word in mentioned if word in PLACES and word not in question]
    return places[-1] if places else ""


def _example_index(stories: Sequence[Story]) -> int:
    """Return the index of the first story with a suitable length."""
    fewest, most = _EXAMPLE_LENGTHS
    return next((index for index, story in enumerate(stories) if fewest <= len(story.sentences) <= most), 0)


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


# Findings


def _findings(
    test_count: int,
    baselines: dict[int, Json],
    starts: Mapping[_FactsAndHops, list[_NetworkResult]],
    best: _BestNetworks,
    minutes: int,
) -> tuple[str, ...]:
    findings = [accuracy_finding(facts, baselines[facts], best, test_count, minutes) for facts in _FACT_COUNTS]
    for facts in _FACT_COUNTS:
        if _HOP_COUNTS[-1] not in _learned_hops(facts, baselines[facts], best):
            continue
        network, chance = best[facts, _HOP_COUNTS[-1]], _format_percent(baselines[facts]["chance"])
        rates = zip(_HOP_COUNTS, network["hops"], strict=True)
        hops = ", ".join(f"{_format_percent(rate)} at hop {hop}" for hop, rate in rates)
        findings.append(
            f"With three hops and {_FACT_NAMES[facts]}, the share of stories in which the sentence with the largest "
            f"weight is a fact is {hops} (a random sentence: {chance}). In {_format_percent(network['all'])} of the "
            "stories, every fact has the largest weight at some hop."
        )
    trainings = [(start, best[key]) for key, results in starts.items() for start in results]
    stuck = sum(start["valid"] < best_start["valid"] - _STUCK_MARGIN for start, best_start in trainings)
    findings.append(
        f"Of {len(trainings)} trainings, {stuck} got stuck: their validation accuracy is more than "
        f"{100 * _STUCK_MARGIN:.0f} points below that of the best start of the same network."
    )
    return tuple(findings)


def _learned_hops(facts: int, baseline: Json, best: _BestNetworks) -> list[int]:
    """Return the numbers of hops whose network has learned."""
    return [hops for hops in _HOP_COUNTS if has_learned(best[facts, hops]["loss"], baseline["unigram loss"])]


def accuracy_finding(facts: int, baseline: Json, best: _BestNetworks, test_count: int, minutes: int) -> str:
    """Return a sentence on the accuracy by hops for one number of facts, and on what each further hop changes."""
    subject, learned = f"Questions that depend on {_FACT_NAMES[facts]}", _learned_hops(facts, baseline, best)
    if not learned:
        return f"{subject}: {nothing_learned(minutes)}"
    rates = {hops: best[facts, hops]["test"] for hops in learned}
    accuracies = ", ".join(f"{_format_percent(rate)} with {_format_hops(hops)}" for hops, rate in rates.items())
    finding = (
        f"{subject}: accuracy {accuracies}; baselines: {_format_percent(baseline['usual'])} with the most frequent "
        f"answer, {_format_percent(baseline['last mention'])} with the last mention."
    )
    gains = [
        f"{'a second' if more == 2 else 'a third'} hop {describe_gain(rates[fewer], rates[more], test_count)}"
        for fewer, more in pairwise(_HOP_COUNTS)
        if fewer in rates and more in rates
    ]
    if gains:
        finding += f" With the chosen starts, {', '.join(gains)}."
    others = [_format_hops(hops) for hops in _HOP_COUNTS if hops not in rates]
    return f"{finding} Did not learn in this budget: {' and '.join(others)}." if others else finding


def describe_gain(before: float, after: float, test_count: int) -> str:
    """Return the change of an accuracy in words, if it is outside of its 95 % interval."""
    interval = 1.96 * math.sqrt((before * (1 - before) + after * (1 - after)) / test_count)
    if abs(after - before) <= interval:
        return "makes no clear difference"
    return f"{'raises' if after > before else 'lowers'} the accuracy by {100 * abs(after - before):.1f} points"


# Tables


def _accuracy_table(baselines: dict[int, Json], best: _BestNetworks, test_count: int) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for facts, baseline in baselines.items():
        rates = (*(baseline[name] for name in _BASELINE_STYLES), *(best[facts, hops]["test"] for hops in _HOP_COUNTS))
        rows.append((_FACT_NAMES[facts], *map(_round_percent, rates)))
    note = (
        f"{test_count:,} test questions of each kind; the 95 % interval of the sample is at most "
        f"±{196 * math.sqrt(0.25 / test_count):.1f} points. The last-mention baseline answers with the location in the "
        "last sentence about the subject of the question, or in the nearest earlier sentence that names a location. "
        "Each network was trained from one or more starts (random initialisations); this table shows the start with "
        "the highest validation accuracy, the last table shows all."
    )
    header = ("questions that depend on", "most frequent answer", "last mention", *map(_format_hops, _HOP_COUNTS))
    return ReportTable("Accuracy, %", header, rows, note)


def _attention_table(baselines: dict[int, Json], best: _BestNetworks, test_count: int) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for (facts, hops), network in best.items():
        rates = [*map(_round_percent, network["hops"]), *([None] * (len(_HOP_COUNTS) - hops))]
        shares = map(_round_percent, (network["all"], baselines[facts]["chance"]))
        rows.append((_FACT_NAMES[facts], hops, *rates, *shares))
    hop_names = (f"hop {hop}" for hop in _HOP_COUNTS)
    header = ("questions that depend on", "hops", *hop_names, "all facts", "random sentence")
    note = (
        f"How often, over {test_count:,} test stories, the sentence with the largest weight at a hop is a fact; how "
        "often each fact has the largest weight at some hop; and how often a random sentence is a fact. A network can "
        "also distribute its weights over several sentences, or use a sentence that is not a fact."
    )
    return ReportTable("The sentence with the largest weight is a fact, %", header, rows, note)


def _starts_table(
    starts: Mapping[_FactsAndHops, list[_NetworkResult]], best: _BestNetworks, seconds: float
) -> ReportTable:
    rows = tuple(
        (
            _FACT_NAMES[facts], hops, number, 100 * _LINEAR_SHARES[(number - 1) % len(_LINEAR_SHARES)], start["steps"],
            _round_percent(start["valid"]), _round_percent(start["test"]),
            "chosen" if start is best[facts, hops] else "",
        )
        for (facts, hops), trained in starts.items()
        for number, start in enumerate(trained, start=1)
    )  # fmt: skip
    times = ", ".join(f"{training_seconds(facts, seconds):.1f} s with {_FACT_NAMES[facts]}" for facts in _FACT_COUNTS)
    note = (
        f"Training takes {times}, or stops when the validation accuracy is 100 %. Every second start omits the softmax "
        f"of the hops at first (linear start). After a start with {_format_percent(_SOLVED_ACCURACY)} validation "
        "accuracy, no further starts are trained."
    )
    header = (
        "questions that depend on", "hops", "start", "linear, % of training time", "steps", "validation, %", "test, %",
        "",
    )  # fmt: skip
    return ReportTable("All trainings", header, rows, note)


def _format_hops(hops: int) -> str:
    return format_count(hops, "hop")


def _format_percent(share: float) -> str:
    return f"{_round_percent(share):g} %"


def _round_percent(share: float) -> float:
    return round(100 * share, 1)


# Pictures


def _draw_accuracy(lab: Laboratory, baselines: dict[int, Json], best: _BestNetworks) -> ReportPicture:
    """Draw one group of bars per number of facts, one bar per number of hops, and lines for the baselines."""
    figure, (axes,) = subplots(height=4.2)
    for hops, colour in zip(_HOP_COUNTS, _HOP_COLOURS, strict=True):
        heights = [100 * best[facts, hops]["test"] for facts in baselines]
        centres = [facts + (hops - (len(_HOP_COUNTS) + 1) / 2) * _BAR_WIDTH for facts in baselines]
        bars = axes.bar(centres, heights, 0.92 * _BAR_WIDTH, color=colour, label=_format_hops(hops))
        box = {"facecolor": "w", "edgecolor": "none", "pad": 0.5, "alpha": 0.85}
        axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2, bbox=box, zorder=3)
    for name, (label, style) in _BASELINE_STYLES.items():
        for facts, baseline in baselines.items():
            ends = facts - _GROUP_WIDTH / 2, facts + _GROUP_WIDTH / 2
            axes.hlines(100 * baseline[name], *ends, color="0.25", linestyle=style, label=label if facts == 1 else "")
    label_axes(axes, x_label="sentences that a question depends on", y_label="test accuracy (%)")
    axes.set_xticks(list(baselines), [f"{facts} fact{'s' * (facts > 1)}" for facts in baselines])
    axes.set_ylim(0, 108)
    axes.grid(visible=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=5, fontsize=8, frameon=False)
    return save_picture(figure, lab.folder / "accuracy.png", "Accuracy by the number of facts and of hops.")


def _draw_example(lab: Laboratory, facts: int, story: Json, network: _NetworkResult) -> ReportPicture:
    """Draw the weights of three hops over one story: sentences as rows, hops as columns, a mark at each fact."""
    sentences = [f"{text} {'●' if row in story['facts'] else '  '}" for row, text in enumerate(story["sentences"])]
    figure, (axes,) = subplots(height=1.0 + _ROW_HEIGHT * len(sentences))
    weights = [list(column) for column in zip(*network["weights"], strict=True)][: len(sentences)]  # sentences × hops
    image = draw_heat_map(axes, weights, 1.0, columns=[f"hop {hop}" for hop in _HOP_COUNTS], rows=sentences)
    add_colorbar(figure, image, [axes], "weight")
    is_correct = network["answer"] == story["answer"]
    verdict = "which is correct" if is_correct else f"but the correct answer is “{story['answer']}”"
    caption = (
        f"The weights of the sentences by hop, for a question that depends on {_FACT_NAMES[facts]} (●). "
        f"“{story['question']}” The network with three hops answers “{network['answer']}”, {verdict}. The story is the "
        f"first of the test split with {_EXAMPLE_LENGTHS[0]} to {_EXAMPLE_LENGTHS[1]} sentences."
    )
    return save_picture(figure, lab.folder / f"story-{facts}.png", caption)
