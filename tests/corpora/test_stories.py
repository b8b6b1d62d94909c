"""The stories and their questions, judged by an interpreter that knows only English words, not how they were drawn."""

import re
from collections import Counter
from itertools import islice

import pytest

from dragoman.corpora.stories import SENTENCE_LIMITS, SPLITS, stories, story_words
from dragoman.errors import UserError

FACTS = (1, 2, 3)
every_kind = pytest.mark.parametrize("facts", FACTS)
WENT = re.compile(r"(\w+) (?:walked|hurried|strolled) to the (\w+)\.")
TOOK = re.compile(r"(\w+) (?:picked up|took) the (\w+)\.")
LAID = re.compile(r"(\w+) (?:put|laid) down the (\w+)\.")


class Reader:
    """Reads sentences in their order and answers questions, or says None where they do not tell."""

    def __init__(self, sentences):
        self.place, self.holder, self.way = {}, {}, {}
        for sentence in sentences:
            self.read(sentence)

    def read(self, sentence):
        if found := WENT.fullmatch(sentence):
            self.place[found[1]] = found[2]
            for thing in [thing for thing, holder in self.holder.items() if holder == found[1]]:
                self.see(thing, found[2])
        elif found := TOOK.fullmatch(sentence):
            self.holder[found[2]] = found[1]
            self.see(found[2], self.place.get(found[1]))
        elif found := LAID.fullmatch(sentence):
            self.holder.pop(found[2], None)
            self.see(found[2], self.place.get(found[1]))

    def see(self, thing, place):
        """Note that a thing is at a place, known or not."""
        way = self.way.setdefault(thing, [])
        if not way or way[-1] != place:
            way.append(place)

    def answer(self, question):
        if found := re.fullmatch(r"Where is (\w+)\?", question):
            return self.place.get(found[1])
        if found := re.fullmatch(r"Where is the (\w+)\?", question):
            return self.way.get(found[1], [None])[-1]
        thing, place = re.fullmatch(r"Where was the (\w+) before the (\w+)\?", question).groups()
        way = self.way.get(thing, [])
        return way[way.index(place) - 1] if place in way[1:] else None


@pytest.fixture(scope="module")
def drawn():
    return {(facts, split): list(stories(facts, split, 400)) for facts in FACTS for split in SPLITS}


def of_kind(drawn, facts):
    return [story for split in SPLITS for story in drawn[facts, split]]


@every_kind
def test_whoever_reads_the_whole_story_finds_the_answer(drawn, facts):
    for story in of_kind(drawn, facts):
        assert Reader(story.sentences).answer(story.question) == story.answer


@every_kind
def test_the_facts_alone_tell_the_answer(drawn, facts):
    for story in of_kind(drawn, facts):
        assert Reader([story.sentences[fact] for fact in story.facts]).answer(story.question) == story.answer


@every_kind
def test_without_one_of_the_facts_the_others_do_not_tell(drawn, facts):
    for story in of_kind(drawn, facts):
        for missing in story.facts:
            left = [story.sentences[fact] for fact in story.facts if fact != missing]
            assert Reader(left).answer(story.question) is None


@every_kind
def test_a_question_takes_as_many_facts_as_were_asked_for_and_the_rest_distracts(drawn, facts):
    for story in of_kind(drawn, facts):
        assert len(set(story.facts)) == facts and list(story.facts) == sorted(story.facts)
        assert SENTENCE_LIMITS[facts][0] <= len(story.sentences) <= SENTENCE_LIMITS[facts][1]
    assert sum(len(story.sentences) - facts for story in of_kind(drawn, facts)) > 4 * len(of_kind(drawn, facts))


def test_a_thing_came_only_once_to_the_place_that_is_asked_about(drawn):
    for story in of_kind(drawn, 3):
        thing, place = story_words(story.question)[3], story_words(story.question)[-1]
        assert Counter(Reader(story.sentences).way[thing])[place] == 1


def test_a_thing_is_taken_only_from_where_it_lies_and_by_one_at_a_time(drawn):
    for story in of_kind(drawn, 2) + of_kind(drawn, 3):
        world = Reader(())
        for sentence in story.sentences:
            if found := TOOK.fullmatch(sentence):
                assert found[2] not in world.holder
                assert world.way.get(found[2], [world.place[found[1]]])[-1] == world.place[found[1]]
            if found := LAID.fullmatch(sentence):
                assert world.holder[found[2]] == found[1]
            world.read(sentence)


@every_kind
def test_no_story_is_in_two_splits_or_twice_in_one(drawn, facts):
    texts = [story.sentences for story in of_kind(drawn, facts)]
    assert len(set(texts)) == len(texts)


def test_splits_of_different_seeds_share_no_story_either():
    train = {story.sentences for story in stories(1, "train", 2000, seed=1)}
    assert train.isdisjoint(story.sentences for story in stories(1, "test", 500, seed=2))


@every_kind
def test_no_answer_is_much_likelier_than_another(drawn, facts):
    counts = Counter(story.answer for story in drawn[facts, "train"])
    assert len(counts) == 6
    assert max(counts.values()) < 0.25 * sum(counts.values())


@every_kind
def test_every_word_of_the_test_split_occurs_in_training(drawn, facts):
    def vocabulary(split):
        texts = (text for story in drawn[facts, split] for text in (*story.sentences, story.question, story.answer))
        return {word for text in texts for word in story_words(text)}

    assert vocabulary("test") <= vocabulary("train")


def test_the_same_arguments_give_the_same_stories_and_others_give_others(drawn):
    assert list(stories(2, "train", 50)) == drawn[2, "train"][:50]
    assert list(stories(2, "train", 50, seed=2)) != drawn[2, "train"][:50]
    assert list(stories(2, "valid", 50)) != drawn[2, "train"][:50]


def test_one_known_story_stays_as_it_is():
    """A change of the drawing would silently change every number that was reported."""
    story = next(islice(stories(3, "train", 1), 1))
    assert (story.question, story.answer, story.facts) == (
        "Where was the lantern before the attic?",
        "library",
        (4, 5, 8),
    )
    assert story.sentences[4:6] == ("Bruno picked up the lantern.", "Bruno strolled to the library.")


def test_words_have_neither_capitals_nor_marks():
    assert story_words("Where was the lantern before the attic?") == [
        "where",
        "was",
        "the",
        "lantern",
        "before",
        "the",
        "attic",
    ]


def test_an_unknown_split_names_the_known_ones():
    with pytest.raises(UserError, match=r'no split "tests"; choose train, valid, test\. Did you mean "test"'):
        stories(1, "tests", 1)


def test_four_facts_are_too_many():
    with pytest.raises(UserError, match="facts must be 1, 2 or 3, got 4"):
        stories(4, "train", 1)
