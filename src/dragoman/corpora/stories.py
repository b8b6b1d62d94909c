"""Short stories with a question each, modelled on bAbI (Weston et al. 2015).

People move between places, pick things up and put them down; some actions are distractors. The answer to a question is
one word, which follows from one, two or three sentences of the story (the supporting facts):

1. "Where is Ada?" takes where she went last.
2. "Where is the lantern?" takes who took it (or put it down), and where they went last (or had gone before).
3. "Where was the lantern before the attic?" takes who took it, where they were, and that they went to the attic. The
   lantern came there only once.

A stable hash of its sentences gives every story to one split, so that no two splits share one, whatever the question.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from random import Random

from dragoman.errors import UserError, did_you_mean

SPLITS = ("train", "valid", "test")
_HELD_OUT_PERCENT = {"test": 15, "valid": 15}  # of all stories
PEOPLE = ("Ada", "Bruno", "Clara", "Emil")
PLACES = ("attic", "cellar", "library", "orchard", "stable", "workshop")
THINGS = ("kettle", "lantern", "violin")
_GOING = ("walked to", "hurried to", "strolled to")
_TAKING = ("picked up", "took")
_PUTTING_DOWN = ("put down", "laid down")
_IDLING = ("hummed a tune", "looked around", "sneezed")
SENTENCE_LIMITS = {1: (4, 10), 2: (6, 12), 3: (8, 14)}  # minimum and maximum number of sentences, by number of facts
_HANDLING_RATE = {1: 0.0, 2: 0.4, 3: 0.35}  # probability of picking a thing up or putting one down
_IDLING_RATE = 0.1  # probability of a distractor


@dataclass(frozen=True)
class Story:
    """A story, a question about it, the answer, and the supporting facts."""

    sentences: tuple[str, ...]
    question: str
    answer: str
    facts: tuple[int, ...]  # positions in `sentences`, counted from 0, in their order


@dataclass(frozen=True)
class _Arrival:
    """The arrival of a person at a place, and the sentence that states it."""

    place: str
    sentence: int


@dataclass(frozen=True)
class _StoryQuestion:
    """A question that can be asked at the end of a story."""

    text: str
    answer: str
    facts: tuple[int, ...]


def story_words(text: str) -> list[str]:
    """Split a sentence into lower-case words without punctuation."""
    return re.findall(r"\w+", text.lower())


def stories(facts: int, split: str, count: int, *, seed: int = 1) -> Iterator[Story]:
    """Return `count` distinct stories of a split; they depend on the arguments alone."""
    if split not in SPLITS:
        raise UserError(f'There is no split "{split}"; choose {", ".join(SPLITS)}.{did_you_mean(split, [*SPLITS])}')
    if facts not in SENTENCE_LIMITS:
        raise UserError(f"facts must be 1, 2 or 3, got {facts}.")
    return islice(_draw_stories(facts, split, seed), count)


def _draw_stories(facts: int, split: str, seed: int) -> Iterator[Story]:
    """Yield distinct stories of a split endlessly."""
    rng = Random(f"{facts} {split} {seed}")
    seen = set[tuple[str, ...]]()
    while True:
        story = _draw_story(rng, facts)
        if story and story.sentences not in seen and _split_of_story(story.sentences) == split:
            seen.add(story.sentences)
            yield story


def _split_of_story(sentences: tuple[str, ...]) -> str:
    """Return the split of a story; it is the same on every machine and in every run."""
    percent = int.from_bytes(blake2b(" ".join(sentences).encode(), digest_size=8).digest(), "big") % 100
    if percent < _HELD_OUT_PERCENT["test"]:
        return "test"
    return "valid" if percent < _HELD_OUT_PERCENT["test"] + _HELD_OUT_PERCENT["valid"] else "train"


def _draw_story(rng: Random, facts: int) -> Story | None:
    """Draw a story and a question about it; return None if there is nothing to ask."""
    world = _StoryWorld(rng)
    people = rng.sample(PEOPLE, rng.randint(2, len(PEOPLE)))
    for _ in range(rng.randint(*SENTENCE_LIMITS[facts])):
        world.act(rng.choice(people), _HANDLING_RATE[facts])
    questions = {1: world.questions_about_people, 2: world.questions_about_things, 3: world.questions_about_the_past}[
        facts
    ]()
    if not questions:
        return None
    question = rng.choice(questions)
    return Story(tuple(world.sentences), question.text, question.answer, tuple(sorted(question.facts)))


class _StoryWorld:
    """The state of a story: where people and things are, and which sentences state it."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.sentences: list[str] = []
        self.visits: dict[str, _Arrival] = {}  # of people: where they went last
        self.held: dict[str, tuple[str, int]] = {}  # held things: by whom, and since which sentence
        self.put_down: dict[str, tuple[_Arrival, int]] = {}  # things put down: where, and in which sentence
        self.places: dict[str, list[str]] = {}  # of things: where each has been, in turn
        self.arrivals: dict[
            str, list[tuple[str, str, tuple[int, int, int]]]
        ] = {}  # of things: place, previous place, facts

    def write_sentence(self, person: str, deed: str) -> int:
        """Append a sentence and return its index."""
        self.sentences.append(f"{person} {deed}.")
        return len(self.sentences) - 1

    def act(self, person: str, handling: float) -> None:
        """Draw an action of a person."""
        uniform = self.rng.random()
        if uniform < _IDLING_RATE:
            self.write_sentence(person, self.rng.choice(_IDLING))
        elif person in self.visits and uniform < _IDLING_RATE + handling:
            self.take_or_put_down(person)
        else:
            self.move(person)

    def move(self, person: str) -> None:
        """Move a person, with everything they hold, to another place."""
        before = self.visits.get(person)
        place = self.rng.choice([place for place in PLACES if before is None or place != before.place])
        now = _Arrival(place, self.write_sentence(person, f"{self.rng.choice(_GOING)} the {place}"))
        self.visits[person] = now
        for thing, (holder, since) in self.held.items():
            if holder == person and before is not None:
                self.places[thing].append(place)
                facts = (since, before.sentence, now.sentence)
                self.arrivals.setdefault(thing, []).append((place, before.place, facts))

    def take_or_put_down(self, person: str) -> None:
        """Let a person pick a thing up or put one down; move if neither is possible."""
        held = [thing for thing, (holder, _) in self.held.items() if holder == person]
        takeable = [thing for thing in THINGS if self.can_take(person, thing)]
        if not held and not takeable:
            self.move(person)
        elif takeable and (not held or self.rng.random() < 0.5):
            self.take(person, self.rng.choice(takeable))
        else:
            self.put_thing_down(person, self.rng.choice(held))

    def can_take(self, person: str, thing: str) -> bool:
        """Return whether a thing is where a person is; one that was not mentioned can be anywhere."""
        if thing in self.held:
            return False
        return thing not in self.put_down or self.put_down[thing][0].place == self.visits[person].place

    def take(self, person: str, thing: str) -> None:
        """Let a person pick a thing up."""
        self.put_down.pop(thing, None)
        self.held[thing] = person, self.write_sentence(person, f"{self.rng.choice(_TAKING)} the {thing}")
        self.places.setdefault(thing, [self.visits[person].place])

    def put_thing_down(self, person: str, thing: str) -> None:
        """Let a person put a thing down."""
        del self.held[thing]
        self.put_down[thing] = (
            self.visits[person],
            self.write_sentence(person, f"{self.rng.choice(_PUTTING_DOWN)} the {thing}"),
        )

    def questions_about_people(self) -> list[_StoryQuestion]:
        """Return the questions about where a person is: one fact."""
        return [
            _StoryQuestion(f"Where is {person}?", visit.place, (visit.sentence,))
            for person, visit in self.visits.items()
        ]

    def questions_about_things(self) -> list[_StoryQuestion]:
        """Return the questions about where something is: two facts."""
        held = {thing: (self.visits[holder], since) for thing, (holder, since) in self.held.items()}
        return [
            _StoryQuestion(f"Where is the {thing}?", visit.place, (visit.sentence, sentence))
            for thing, (visit, sentence) in sorted({**self.put_down, **held}.items())
        ]

    def questions_about_the_past(self) -> list[_StoryQuestion]:
        """Return the questions about where something was before it came to a place, once: three facts."""
        return [
            _StoryQuestion(f"Where was the {thing} before the {place}?", previous, facts)
            for thing, arrivals in self.arrivals.items()
            for place, previous, facts in arrivals
            if Counter(self.places[thing])[place] == 1
        ]
