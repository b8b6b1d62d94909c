"""The end-to-end memory network (Sukhbaatar et al. 2015), which the paper names among its forebears: what hops are for.

A network with one, two or three hops learns to answer questions that take one, two or three sentences of a story. Each
of the nine is begun a few times (see `lab/reader.py` for why) and chosen on the validation split; all that is said of
it comes from the test split, which shares no story with the others.
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

from dragoman.corpora.questions import PEOPLE, PLACES, SPLITS, THINGS, Story, stories, words
from dragoman.errors import Stopped
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.memory_pictures import draw_accuracy, draw_attention
from dragoman.lab.reader import Exam, Plan, Reading, accuracy, encode, new_network, read, train, vocabulary
from dragoman.lab.report import Cell, Json, Part, Picture, Report, Table
from dragoman.tasks.events import Working

TITLE = "Memory: several hops of attention over a story"
QUESTION = "Does a question that takes several sentences of a story need as many hops over them?"
CLAIM = (
    "Section 2: end-to-end memory networks, which attend several times over instead of step by step, do well at "
    "answering questions in simple language."
)

FACTS, HOPS = (1, 2, 3), (1, 2, 3)
SHARES = {1: 4, 2: 8, 3: 12}  # of the time, for a training with so many facts
TRAINING = 0.85  # of the time; the rest goes into telling stories and drawing
FULL_SECONDS = 180  # with which there are as many stories as this
STORIES = {"train": 10_000, "valid": 1000, "test": 1000}
LINEAR = (0.2, 0.0)  # of a training; the starts take turns
SOLVED = 0.99  # on the validation split: no need to start again
STUCK = 0.1  # of accuracy below the best start of the same kind
EXAMPLE = (7, 10)  # sentences of a story that is shown, at least and at most
WORDS = {1: "one fact", 2: "two facts", 3: "three facts"}
NAMES = {name.lower() for name in PEOPLE + THINGS}
Corpus = dict[str, list[Story]]
Kind = tuple[int, int]  # facts, hops
Network = dict[str, Any]  # what was kept of a training


def run(lab: Laboratory) -> Report:
    """Train every network, and report what each answers and looks at."""
    counts = sizes(lab.budget_seconds)
    corpora = {facts: Told(facts, counts, lab.seed) for facts in FACTS}
    floors = {facts: lab.kept(f"facts-{facts}", told.floor, stories=counts) for facts, told in corpora.items()}
    found = {(facts, hops): begun(lab, corpora[facts], hops, counts) for facts in FACTS for hops in HOPS}
    best = {cell: max(starts, key=lambda start: start["valid"]) for cell, starts in found.items()}
    return report(lab, counts, floors, found, best)


# The plan


def sizes(seconds: float) -> dict[str, int]:
    """Return how many stories of each split are told: fewer when there is little time, for they take time too."""
    share = min(1.0, math.sqrt(seconds / FULL_SECONDS))
    return {split: math.ceil(share * count) for split, count in STORIES.items()}


def starts_within(seconds: float) -> int:
    """Return how often a training may be begun."""
    return min(5, max(1, round(seconds / 90)))


def seconds_of(facts: int, seconds: float) -> float:
    """Return how long one training may take."""
    trainings = len(HOPS) * starts_within(seconds)
    return round(TRAINING * seconds * SHARES[facts] / sum(SHARES.values()) / trainings, 2)


# The trainings


class Told:
    """The stories of one kind, told when somebody wants to hear them."""

    def __init__(self, facts: int, counts: dict[str, int], seed: int) -> None:
        self.facts, self.counts, self.seed = facts, counts, seed

    @cached_property
    def stories(self) -> Corpus:
        """The stories of each split."""
        return {split: list(stories(self.facts, split, self.counts[split], seed=self.seed)) for split in SPLITS}

    @cached_property
    def exams(self) -> tuple[dict[str, int], dict[str, Exam]]:
        """The numbers of the words, and the stories in them."""
        numbers = vocabulary(self.stories["train"])
        return numbers, {split: encode(told, numbers) for split, told in self.stories.items()}

    def floor(self) -> Json:
        """Return what needs no learning to be right, what chance finds, and the story that is shown."""
        told = self.stories
        test = told["test"]
        usual = Counter(story.answer for story in told["train"]).most_common(1)[0][0]
        return {
            "usual": share([story.answer == usual for story in test]),
            "last mention": share([last_mention(story) == story.answer for story in test]),
            "chance": sum(len(story.facts) / len(story.sentences) for story in test) / len(test),
            "story": asdict(test[example(test)]),
        }


def begun(lab: Laboratory, told: Told, hops: int, counts: dict[str, int]) -> list[Network]:
    """Train one kind of network from several starts, until one has learned it."""
    starts: list[Network] = []
    for start in range(starts_within(lab.budget_seconds)):
        seconds = seconds_of(told.facts, lab.budget_seconds)
        plan = Plan(hops, seconds, LINEAR[start % len(LINEAR)], seed=100 * lab.seed + start)
        name = f"facts-{told.facts}-hops-{hops}-start-{start + 1}"
        starts.append(lab.kept(name, partial(trained, lab, told, plan), plan=asdict(plan), stories=counts))
        if starts[-1]["valid"] >= SOLVED:
            break
    return starts


def trained(lab: Laboratory, told: Told, plan: Plan) -> Json:
    """Train one network, and return what it has come to on the test split."""
    numbers, exams = told.exams
    what = f"memory: {WORDS[told.facts]}, {counted(plan.hops)}, {plan.seconds:.0f} seconds, percent of them"

    def seen(part: float) -> None:
        if lab.stop.requested:
            raise Stopped(f"Stopped in memory, {what}; what was finished is kept. The same command goes on.")
        lab.listen(Working(what, round(100 * part), 100))

    model = new_network(exams["train"], numbers, plan)
    with one_thread():
        curve = train(model, exams["train"], exams["valid"], plan, seen)
    reading = read(model, exams["test"])
    shown = example(told.stories["test"])
    answers = {number: word for word, number in numbers.items()}
    return {
        "steps": curve[-1][0], "curve": curve, "valid": curve[-1][1], "test": accuracy(model, exams["test"]),
        **looks(reading, told.stories["test"]),
        "answer": answers.get(int(reading.answer[shown]), ""), "weights": reading.weights[shown].tolist(),
    }  # fmt: skip


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread inside this block: for matrices this small, several wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def looks(reading: Reading, told: Sequence[Story]) -> dict[str, Json]:
    """Return how often the sentence a hop looks at most is a fact, and how often all facts are among these."""
    strongest = reading.weights.argmax(-1).tolist()  # B hops
    hits = [[look in story.facts for look in row] for row, story in zip(strongest, told, strict=True)]
    every = [set(story.facts) <= set(row) for row, story in zip(strongest, told, strict=True)]
    return {"hops": torch.tensor(hits).double().mean(0).tolist(), "all": share(every)}


def last_mention(story: Story) -> str:
    """Answer with the place in the last sentence about who or what is asked for, or else in the nearest before it."""
    asked = next(word for word in words(story.question) if word in NAMES)
    told = [words(sentence) for sentence in story.sentences]
    last = max(number for number, sentence in enumerate(told) if asked in sentence)
    ruled_out = words(story.question)
    named = [word for sentence in told[: last + 1] for word in sentence if word in PLACES and word not in ruled_out]
    return named[-1] if named else ""


def example(told: Sequence[Story]) -> int:
    """Return the number of the first story that is short enough to be shown, whatever became of it."""
    fit = (number for number, story in enumerate(told) if EXAMPLE[0] <= len(story.sentences) <= EXAMPLE[1])
    return next(fit, 0)


def share(right: Sequence[bool]) -> float:
    """Return how much of it is true."""
    return sum(right) / len(right)


# The report


def report(
    lab: Laboratory,
    counts: dict[str, int],
    floors: dict[int, Json],
    found: dict[Kind, list[Network]],
    best: dict[Kind, Network],
) -> Report:
    """Write down what was found."""
    draw_accuracy(lab.folder / "accuracy.png", floors, best)
    parts: list[Part] = [
        accuracy_table(floors, best, counts["test"]),
        Picture("accuracy.png", "Questions answered right, by the facts that they take and the hops of the network."),
        attention_table(floors, best, counts["test"]),
    ]
    for facts in FACTS:
        parts += shown(lab, facts, floors[facts]["story"], best[facts, HOPS[-1]])
    parts.append(starts_table(found, best, lab.budget_seconds))
    results = {
        "stories": counts, "floors": {str(facts): floor for facts, floor in floors.items()},
        "networks": [{"facts": facts, "hops": hops, "starts": starts} for (facts, hops), starts in found.items()],
    }  # fmt: skip
    return Report(findings(counts["test"], floors, found, best), tuple(parts), results)


def findings(
    tested: int, floors: dict[int, Json], found: dict[Kind, list[Network]], best: dict[Kind, Network]
) -> tuple[str, ...]:
    """Say in sentences what the numbers are."""
    sentences = [answered(facts, floors[facts], best, tested) for facts in FACTS]
    for facts in FACTS:
        looked, chance = best[facts, HOPS[-1]], percent(floors[facts]["chance"])
        each = ", ".join(f"{percent(hit)} at hop {hop}" for hop, hit in zip(HOPS, looked["hops"], strict=True))
        sentences.append(
            f"With three hops and {WORDS[facts]}, the sentence looked at most is a fact in {each} (a sentence taken "
            f"blindly: {chance}); all facts are among these sentences in {percent(looked['all'])} of the stories."
        )
    trainings = [(start, best[cell]) for cell, starts in found.items() for start in starts]
    stuck = sum(start["valid"] < chosen["valid"] - STUCK for start, chosen in trainings)
    sentences.append(
        f"Of {len(trainings)} trainings, {stuck} got stuck: more than {100 * STUCK:.0f} points of validation behind "
        "another start of the same."
    )
    return tuple(sentences)


def answered(facts: int, floor: Json, best: dict[Kind, Network], tested: int) -> str:
    """Say how many questions of a kind are answered right, and what a further hop is good for."""
    rates = [best[facts, hops]["test"] for hops in HOPS]
    each = ", ".join(f"{percent(rate)} with {counted(hops)}" for hops, rate in zip(HOPS, rates, strict=True))
    gains = [
        f"{ordinal} hop {gain(before, after, tested)}"
        for ordinal, (before, after) in zip(("a second", "a third"), pairwise(rates), strict=True)
    ]
    learned = max(rates) > max(floor["usual"], floor["last mention"])
    compared = f"Between the chosen starts, {', '.join(gains)}"
    verdict = compared if learned else "No network has learned more than that in its time"
    return (
        f"Questions that take {WORDS[facts]}: {each} are answered right; the most frequent answer is right in "
        f"{percent(floor['usual'])}, the last mention in {percent(floor['last mention'])}. {verdict}."
    )


def gain(before: float, after: float, tested: int) -> str:
    """Say what a further hop changes, if it is more than the luck of which questions were asked (95 %)."""
    luck = 1.96 * math.sqrt((before * (1 - before) + after * (1 - after)) / tested)
    if abs(after - before) <= luck:
        return "makes no clear difference"
    return f"{'adds' if after > before else 'costs'} {100 * abs(after - before):.1f} points"


def accuracy_table(floors: dict[int, Json], best: dict[Kind, Network], tested: int) -> Table:
    """Return the answers that are right, in percent."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            WORDS[facts], tenths(floor["usual"]), tenths(floor["last mention"]),
            *(tenths(best[facts, hops]["test"]) for hops in HOPS),
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
    header = ("questions that take", "most frequent answer", "last mention", *map(counted, HOPS))
    return Table("Answers that are right, %", header, rows, note)


def attention_table(floors: dict[int, Json], best: dict[Kind, Network], tested: int) -> Table:
    """Return where the networks look, in percent."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            WORDS[facts], hops, *map(tenths, start["hops"]), *([None] * (len(HOPS) - hops)),
            tenths(start["all"]), tenths(floors[facts]["chance"]),
        )
        for (facts, hops), start in best.items()
    )  # fmt: skip
    header = ("questions that take", "hops", *(f"hop {hop}" for hop in HOPS), "all facts", "taken blindly")
    note = (
        f"How often, over {tested:,} test stories, the sentence with the greatest weight at a hop is one of the facts; "
        "how often each fact has the greatest weight at some hop; and how often a sentence taken blindly is a fact. "
        "A network is free to spread its look over several sentences, or to learn from one that is no fact."
    )
    return Table("The sentence looked at most is a fact, %", header, rows, note)


def starts_table(found: dict[Kind, list[Network]], best: dict[Kind, Network], seconds: float) -> Table:
    """Return every training, the chosen ones marked."""
    rows = tuple(
        (
            WORDS[facts], hops, number, 100 * LINEAR[(number - 1) % len(LINEAR)], start["steps"],
            tenths(start["valid"]), tenths(start["test"]), "chosen" if start is best[facts, hops] else "",
        )
        for (facts, hops), starts in found.items()
        for number, start in enumerate(starts, start=1)
    )  # fmt: skip
    times = ", ".join(f"{seconds_of(facts, seconds):.1f} s with {WORDS[facts]}" for facts in FACTS)
    note = (
        f"A training lasts {times}, or until validation finds no mistake. Every other start leaves the softmax of the "
        f"hops away at first (linear start). After {percent(SOLVED)} on the validation split nothing is begun again."
    )
    header = ("questions that take", "hops", "start", "linear, % of the time", "steps", "validation, %", "test, %", "")
    return Table("All trainings", header, rows, note)


def shown(lab: Laboratory, facts: int, story: Json, start: Network) -> list[Part]:
    """Return one story as a table and a picture: what three hops look at."""
    right = "which is right" if start["answer"] == story["answer"] else f"but it is “{story['answer']}”"
    says = f"“{story['question']}” The network with three hops says “{start['answer']}”, {right}."
    file = f"story-{facts}.png"
    weights = [row[: len(story["sentences"])] for row in start["weights"]]
    draw_attention(lab.folder / file, story, weights, says)
    rows = tuple(
        (
            f"{number + 1}. {sentence}",
            "fact" if number in story["facts"] else "",
            *(f"{row[number]:.2f}" for row in weights),
        )
        for number, sentence in enumerate(story["sentences"])
    )
    header = ("sentence", "", *(f"hop {hop}" for hop in HOPS))
    caption = f"The weights of the sentences, hop by hop, for a question that takes {WORDS[facts]}. {says}"
    note = f"The first test story with {EXAMPLE[0]} to {EXAMPLE[1]} sentences. {says}"
    return [Picture(file, caption), Table(f"A story with {WORDS[facts]}", header, rows, note)]


def counted(hops: int) -> str:
    """Write "1 hop", "2 hops"."""
    return f"{hops} hop" if hops == 1 else f"{hops} hops"


def percent(part: float) -> str:
    """Write a share as percent."""
    return f"{tenths(part):g} %"


def tenths(part: float) -> float:
    """Return a share in percent, with one digit."""
    return round(100 * part, 1)
