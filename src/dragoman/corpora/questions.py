"""Short stories with a question each, in the manner of bAbI (Weston et al. 2015), in words of our own.

People go from place to place, take things along and put them down; some of what they do matters to nobody. A question
has one word as its answer, and it takes one, two or three sentences of the story, the facts, to know it:

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

from dragoman.errors import UserError, nearest

SPLITS = ("train", "valid", "test")
HELD_OUT_PERCENT = {"test": 15, "valid": 15}  # of all stories
PEOPLE = ("Ada", "Bruno", "Clara", "Emil")
PLACES = ("attic", "cellar", "library", "orchard", "stable", "workshop")
THINGS = ("kettle", "lantern", "violin")
GOING = ("walked to", "hurried to", "strolled to")
TAKING = ("picked up", "took")
LAYING = ("put down", "laid down")
IDLING = ("hummed a tune", "looked around", "sneezed")
LENGTHS = {1: (4, 10), 2: (6, 12), 3: (8, 14)}  # sentences of a story with so many facts, at least and at most
HANDLING = {1: 0.0, 2: 0.4, 3: 0.35}  # how often somebody tries to take a thing or to put one down
IDLENESS = 0.1  # how often somebody does what matters to nobody


@dataclass(frozen=True)
class Story:
    """A story, a question about it, the one word that answers it, and the sentences that say so."""

    sentences: tuple[str, ...]
    question: str
    answer: str
    facts: tuple[int, ...]  # positions in `sentences`, counted from 0, in their order


@dataclass(frozen=True)
class Visit:
    """Somebody's coming to a place, and the sentence that tells of it."""

    place: str
    sentence: int


@dataclass(frozen=True)
class Question:
    """What may be asked at the end of a story."""

    text: str
    answer: str
    facts: tuple[int, ...]


def words(text: str) -> list[str]:
    """Split a sentence into its words, without capitals and marks."""
    return re.findall(r"\w+", text.lower())


def stories(facts: int, split: str, count: int, *, seed: int = 1) -> Iterator[Story]:
    """Return `count` different stories of a split, always the same ones for the same arguments."""
    if split not in SPLITS:
        raise UserError(f'The stories have the splits {", ".join(SPLITS)}, not "{split}".{nearest(split, [*SPLITS])}')
    if facts not in LENGTHS:
        raise UserError(f"A question takes 1, 2 or 3 facts, not {facts}.")
    return islice(drawn(facts, split, seed), count)


def drawn(facts: int, split: str, seed: int) -> Iterator[Story]:
    """Draw stories of a split for ever, none twice."""
    rng = Random(f"{facts} {split} {seed}")
    seen = set[tuple[str, ...]]()
    while True:
        story = draw_story(rng, facts)
        if story and story.sentences not in seen and split_of(story.sentences) == split:
            seen.add(story.sentences)
            yield story


def split_of(sentences: tuple[str, ...]) -> str:
    """Return the split that a story belongs to, the same on every machine and in every run."""
    percent = int.from_bytes(blake2b(" ".join(sentences).encode(), digest_size=8).digest(), "big") % 100
    if percent < HELD_OUT_PERCENT["test"]:
        return "test"
    return "valid" if percent < HELD_OUT_PERCENT["test"] + HELD_OUT_PERCENT["valid"] else "train"


def draw_story(rng: Random, facts: int) -> Story | None:
    """Draw a story and a question about it, or nothing if too little happened to ask."""
    world = World(rng)
    people = rng.sample(PEOPLE, rng.randint(2, len(PEOPLE)))
    for _ in range(rng.randint(*LENGTHS[facts])):
        world.go_on(rng.choice(people), HANDLING[facts])
    asked = {1: world.about_people, 2: world.about_things, 3: world.about_the_past}[facts]()
    if not asked:
        return None
    question = rng.choice(asked)
    return Story(tuple(world.sentences), question.text, question.answer, tuple(sorted(question.facts)))


class World:
    """Who is where and has what, and which sentences said so."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.sentences: list[str] = []
        self.visits: dict[str, Visit] = {}  # of people: where they went last
        self.taken: dict[str, tuple[str, int]] = {}  # things in somebody's hands: whose, and since which sentence
        self.laid: dict[str, tuple[Visit, int]] = {}  # things put down: where, and in which sentence
        self.places: dict[str, list[str]] = {}  # of things: where each has been, in turn
        self.arrivals: dict[str, list[tuple[str, str, tuple[int, int, int]]]] = {}  # of things: where, whence, facts

    def tell(self, person: str, deed: str) -> int:
        """Write a sentence, and return its number."""
        self.sentences.append(f"{person} {deed}.")
        return len(self.sentences) - 1

    def go_on(self, person: str, handling: float) -> None:
        """Let a person do something that they can do."""
        drawn = self.rng.random()
        if drawn < IDLENESS:
            self.tell(person, self.rng.choice(IDLING))
        elif person in self.visits and drawn < IDLENESS + handling:
            self.handle(person)
        else:
            self.go(person)

    def go(self, person: str) -> None:
        """Let a person go to another place, with all they carry."""
        before = self.visits.get(person)
        place = self.rng.choice([place for place in PLACES if before is None or place != before.place])
        now = Visit(place, self.tell(person, f"{self.rng.choice(GOING)} the {place}"))
        self.visits[person] = now
        for thing, (holder, since) in self.taken.items():
            if holder == person and before is not None:
                self.places[thing].append(place)
                facts = (since, before.sentence, now.sentence)
                self.arrivals.setdefault(thing, []).append((place, before.place, facts))

    def handle(self, person: str) -> None:
        """Let a person take a thing or put one down; with none at hand they go."""
        held = [thing for thing, (holder, _) in self.taken.items() if holder == person]
        near = [thing for thing in THINGS if self.may_take(person, thing)]
        if not held and not near:
            self.go(person)
        elif near and (not held or self.rng.random() < 0.5):
            self.take(person, self.rng.choice(near))
        else:
            self.lay(person, self.rng.choice(held))

    def may_take(self, person: str, thing: str) -> bool:
        """Tell whether a thing lies where a person is; one not heard of yet may lie anywhere."""
        if thing in self.taken:
            return False
        return thing not in self.laid or self.laid[thing][0].place == self.visits[person].place

    def take(self, person: str, thing: str) -> None:
        """Let a person take a thing."""
        self.laid.pop(thing, None)
        self.taken[thing] = person, self.tell(person, f"{self.rng.choice(TAKING)} the {thing}")
        self.places.setdefault(thing, [self.visits[person].place])

    def lay(self, person: str, thing: str) -> None:
        """Let a person put a thing down."""
        del self.taken[thing]
        self.laid[thing] = self.visits[person], self.tell(person, f"{self.rng.choice(LAYING)} the {thing}")

    def about_people(self) -> list[Question]:
        """Return the questions about where somebody is: one fact."""
        return [
            Question(f"Where is {person}?", visit.place, (visit.sentence,)) for person, visit in self.visits.items()
        ]

    def about_things(self) -> list[Question]:
        """Return the questions about where something is: two facts."""
        held = {thing: (self.visits[holder], since) for thing, (holder, since) in self.taken.items()}
        return [
            Question(f"Where is the {thing}?", visit.place, (visit.sentence, sentence))
            for thing, (visit, sentence) in sorted({**self.laid, **held}.items())
        ]

    def about_the_past(self) -> list[Question]:
        """Return the questions about where something was before it came to a place, once: three facts."""
        return [
            Question(f"Where was the {thing} before the {place}?", whence, facts)
            for thing, arrivals in self.arrivals.items()
            for place, whence, facts in arrivals
            if Counter(self.places[thing])[place] == 1
        ]
